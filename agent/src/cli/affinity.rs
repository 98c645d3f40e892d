//! `stokehold affinity NAME`: the stanza that prefers nodes where a cache is ready.

use clap::Args;
use stokehold_core::name::{BadName, CacheId};
use stokehold_core::report::WARM_LABEL_PREFIX;

use super::Exit;
use super::output::print;

/// Print a node affinity.
#[derive(Debug, Clone, Args)]
pub struct AffinityFlags {
    /// The cache, as NAMESPACE/NAME, or NAME in the namespace default
    #[arg(value_parser = cache)]
    name: CacheId,
}

fn cache(text: &str) -> Result<CacheId, BadName> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    CacheId::new(namespace, name)
}

/// Prints it.
#[must_use]
pub fn run(flags: &AffinityFlags) -> Exit {
    print(&stanza(&flags.name));
    Exit::Done
}

/// For `spec.affinity` of a pod.
fn stanza(cache: &CacheId) -> String {
    format!(
        "affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        preference:
          matchExpressions:
            - key: {WARM_LABEL_PREFIX}{}
              operator: Exists
",
        cache.slug()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stanza_prefers_nodes_where_all_of_the_cache_is_ready() {
        let text = stanza(&cache("inference/llama").expect("a name"));
        let value: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
        let terms = &value["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        let wanted = &terms[0]["preference"]["matchExpressions"][0];
        assert_eq!(wanted["key"], "warm.stokehold.dev/inference.llama");
        assert_eq!(wanted["operator"], "Exists");
        assert_eq!(cache("llama").expect("a name").to_string(), "default/llama");
        assert!(cache("a/b/c").is_err());
    }
}
