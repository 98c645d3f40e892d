//! The built agent on a folder of its own, standalone: what it is asked for, and what it says.
//!
//! In: an origin, settings, documents. Out: a running agent, its report, metrics and local API, and what stands in its tree.
//! Deliberately absent: any assertion, and any knowledge of how the agent works: only what people and scripts rely on.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stokehold_core::{
    checksum::SnapshotId,
    hold::{Reason, Subject},
    name::CacheId,
    plan::Phase,
    record::Manifest,
    report::{Report, WEIGHTS_LABEL_PREFIX},
};
use tempfile::TempDir;

use crate::lab::{
    self,
    agent::{Agent, Running},
    bucket::Access,
    http, port,
};

/// Longest wait for something the agent should do or say: many times what it takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);
/// The Kubernetes namespace of all caches here.
pub const NAMESPACE: &str = "models";

/// One document that asks for a cache.
#[derive(Clone, Debug)]
pub struct Wanted {
    name: String,
    spec: Value,
}

impl Wanted {
    /// Weights from S3.
    pub fn s3(name: &str, bucket: &str, prefix: &str) -> Self {
        let source = json!({ "s3": { "bucket": bucket, "prefix": prefix } });
        Self { name: name.to_owned(), spec: json!({ "weights": { "source": source } }) }
    }

    /// Images alone, which this release does not bring.
    pub fn images(name: &str) -> Self {
        let images = json!([{ "image": "registry.example.com/engine:1" }]);
        Self { name: name.to_owned(), spec: json!({ "images": images }) }
    }

    /// With a field below `spec`.
    #[must_use]
    pub fn spec(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.spec[field] = value.into();
        self
    }

    /// With a field below `spec.weights`.
    #[must_use]
    pub fn weights(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.spec["weights"][field] = value.into();
        self
    }

    /// Its id.
    pub fn id(&self) -> CacheId {
        id(&self.name)
    }

    /// The document. JSON is YAML.
    pub fn text(&self) -> String {
        let metadata = json!({ "name": self.name, "namespace": NAMESPACE });
        let document = json!({
            "apiVersion": "stokehold.dev/v1alpha1", "kind": "InferenceCache", "metadata": metadata, "spec": self.spec,
        });
        format!("{document:#}\n")
    }
}

/// The id of the cache of this name.
pub fn id(name: &str) -> CacheId {
    CacheId::new(NAMESPACE, name).expect("names of tests are DNS labels")
}

/// Where an agent lives: its root, documents, state and settings.
#[derive(Debug)]
pub struct Site {
    folder: PathBuf,
    root: PathBuf,
    /// Holds the socket, whose path must be short, and all else that is not kept. Removed when dropped.
    scratch: TempDir,
    environment: Vec<(String, String)>,
}

impl Site {
    /// For an agent whose origin is `access`, with its root beside all else.
    pub fn new(access: &Access) -> Result<Self> {
        let scratch = scratch()?;
        let folder = scratch.path().to_owned();
        Self::with_root(access, folder.join("root"), folder, scratch)
    }

    /// The same in a folder that stays, made when absent.
    pub fn kept(access: &Access, folder: &Path) -> Result<Self> {
        Self::with_root(access, folder.join("root"), folder.to_owned(), scratch()?)
    }

    /// The same with its root on another filesystem.
    pub fn on(access: &Access, root: &Path) -> Result<Self> {
        let scratch = scratch()?;
        let folder = scratch.path().to_owned();
        Self::with_root(access, root.to_owned(), folder, scratch)
    }

    fn with_root(access: &Access, root: PathBuf, folder: PathBuf, scratch: TempDir) -> Result<Self> {
        for path in [&root, &folder.join("desired"), &folder.join("state")] {
            fs::create_dir_all(path).with_context(|| format!("make {} for the agent", path.display()))?;
        }
        let site = Self { folder, root, scratch, environment: access.environment() };
        // Not immutable: the folder is removed afterwards. Parts and connections are small, as the models here are.
        site.configure(&json!({ "transfer": { "connectionsMax": 4, "partSize": "4Mi" } }))?;
        Ok(site)
    }

    /// Settings in place of those before; what every site needs stays.
    pub fn configure(&self, settings: &Value) -> Result<()> {
        let mut all = settings.clone();
        all["allowNonLocal"] = json!(true);
        all["immutable"] = json!(false);
        fs::write(self.path("agent.yaml"), all.to_string()).context("write the agent's settings")
    }

    /// The cache root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path beside the root.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Ask for a cache, or ask otherwise.
    pub fn want(&self, wanted: &Wanted) -> Result<()> {
        self.write(&wanted.name, &wanted.text())
    }

    /// Ask for it no more.
    pub fn unwant(&self, wanted: &Wanted) -> Result<()> {
        let path = self.path("desired").join(format!("{}.yaml", wanted.name));
        fs::remove_file(path).with_context(|| format!("remove the document of {}", wanted.name))
    }

    /// Write a document's file in one step, whatever is in it.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let aside = self.path("desired").join(format!(".{name}"));
        fs::write(&aside, text).with_context(|| format!("write the document of {name}"))?;
        let path = self.path("desired").join(format!("{name}.yaml"));
        fs::rename(aside, path).with_context(|| format!("put the document of {name} in place"))
    }

    /// Start the agent.
    pub fn start(&self) -> Result<Node> {
        self.start_within(&[])
    }

    /// Start the agent in a PID namespace of its own (root): there it may look at every process that there is, and so tell
    /// whether bytes are in use. It ends with the program that started it.
    pub fn start_alone(&self) -> Result<Node> {
        self.start_within(&["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
    }

    fn start_within(&self, starter: &[&str]) -> Result<Node> {
        let [port] = port::free();
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let socket = self.scratch.path().join("agent.sock");
        let path = |name: &str| self.path(name).display().to_string();
        let args = [
            ("--config", path("agent.yaml")),
            ("--root", self.root.display().to_string()),
            ("--desired", path("desired")),
            ("--state", path("state")),
            ("--listen", listen.to_string()),
            ("--socket", socket.display().to_string()),
            ("--node-name", "node-1".to_owned()),
        ];
        let args = args.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        // What the agent before it said is not what this one says.
        remove(&self.path("state").join("report.json"))?;
        let agent = Agent::within(&self.folder, starter, ["run".to_owned()].into_iter().chain(args))?;
        let running = agent.envs(self.environment.clone()).start()?;
        Ok(Node { running, listen, socket, report: self.path("state").join("report.json"), root: self.root.clone() })
    }

    /// What the agents of this site logged.
    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.path(name)).unwrap_or_default();
        read("stdout") + &read("stderr")
    }
}

fn scratch() -> Result<TempDir> {
    tempfile::tempdir().context("make a folder for the agent")
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("remove the report before"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A started agent.
#[derive(Debug)]
pub struct Node {
    running: Running,
    listen: SocketAddr,
    socket: PathBuf,
    report: PathBuf,
    root: PathBuf,
}

impl Node {
    /// Its process.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Its local API, as `--socket` of the command line.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What it last said; nothing before its first word.
    pub fn report(&self) -> Option<Report> {
        serde_json::from_slice(&fs::read(&self.report).ok()?).ok()
    }

    /// Wait until its report is as wanted; the error shows the last one and what it logged.
    pub fn until(&self, what: &str, is_so: impl Fn(&Report) -> bool) -> Result<Report> {
        let seen = lab::until(what, LIMIT, || {
            let report = self.report().filter(&is_so);
            let has_ended = self.running.process().exit().is_some();
            report.map(Some).or_else(|| has_ended.then_some(None))
        });
        let said = || {
            let report = fs::read_to_string(&self.report).unwrap_or_default();
            format!("it reported:\n{report}\nit logged:\n{}{}", self.running.stdout(), self.running.stderr())
        };
        seen.with_context(said)?.with_context(|| format!("the agent ended before {what}; {}", said()))
    }

    /// Wait until a cache is ready and labelled; gives the snapshot.
    pub fn until_ready(&self, cache: &CacheId) -> Result<SnapshotId> {
        let report = self.until(&format!("{cache} ready"), |report| is_ready(report, cache))?;
        report.caches[cache].served.context("what is ready is served")
    }

    /// Wait until a cache is held for this reason.
    pub fn until_held(&self, cache: &CacheId, reason: &str) -> Result<Reason> {
        let report = self.until(&format!("{cache} held {reason}"), |report| held(report, cache, reason).is_some())?;
        held(&report, cache, reason).context("just seen")
    }

    /// A path of the local API, as JSON.
    pub fn ask(&self, path: &str) -> Result<Value> {
        let answer = http::get_unix(&self.socket, path).with_context(|| format!("ask the agent for {path}"))?;
        serde_json::from_str(&answer.body).with_context(|| format!("{path} answered {answer:?}"))
    }

    /// All its metrics, as Prometheus reads them.
    pub fn metrics(&self) -> Result<String> {
        Ok(http::get(self.listen, "/metrics").context("ask the agent for its metrics")?.body)
    }

    /// A metric with its labels as they are written, such as `stokehold_passes_total` or `x{a="b"}`.
    pub fn metric(&self, series: &str) -> Result<f64> {
        let all = self.metrics()?;
        let value = all.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.with_context(|| format!("no {series} in\n{all}"))
    }

    /// Where a cache's folder is.
    pub fn folder(&self, cache: &CacheId) -> PathBuf {
        folder(&self.root, cache)
    }
}

/// Where a cache's folder is below a root.
pub fn folder(root: &Path, cache: &CacheId) -> PathBuf {
    root.join("deployments").join(cache.namespace.as_str()).join(cache.name.as_str())
}

/// The label that vouches for a cache's weights.
pub fn label(cache: &CacheId) -> String {
    format!("{WEIGHTS_LABEL_PREFIX}{}", cache.slug())
}

/// Whether a report says that a cache is ready, in every place where it can.
pub fn is_ready(report: &Report, cache: &CacheId) -> bool {
    let verdict = report.caches.get(cache);
    let served = verdict.filter(|verdict| verdict.phase == Phase::Ready).and_then(|verdict| verdict.served);
    served.is_some_and(|served| report.labels.get(&label(cache)) == Some(&served.to_string()))
}

/// Why a cache's weights or images are held, if for this reason.
pub fn held(report: &Report, cache: &CacheId, reason: &str) -> Option<Reason> {
    let is_it = |subject: &Subject| subject.cache() == Some(cache);
    let holds = report.holds.iter().filter(|hold| is_it(&hold.subject));
    holds.map(|hold| &hold.reason).find(|held| held.name() == reason).cloned()
}

/// All files below a folder by relative path, with their bytes.
pub fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for path in paths(folder)? {
        let real = folder.join(&path);
        if !real.is_dir() {
            found.insert(path, fs::read(&real).with_context(|| format!("read {}", real.display()))?);
        }
    }
    Ok(found)
}

/// Everything below a folder by relative path, links not followed, sorted.
pub fn paths(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("list {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path.clone());
            }
            let below = path.strip_prefix(folder).context("it was listed there")?;
            found.push(below.to_str().context("names of tests are UTF-8")?.to_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// Bytes allocated below a folder; what goes meanwhile counts as gone.
pub fn allocated(folder: &Path) -> u64 {
    let blocks = |path: String| fs::symlink_metadata(folder.join(path)).map_or(0, |found| found.blocks() * 512);
    paths(folder).unwrap_or_default().into_iter().map(blocks).sum()
}

/// Whether a file holds exactly what `expected` gives for each offset and length; it is read a MiB at a time.
pub fn holds_bytes(path: &Path, len: u64, expected: impl Fn(u64, u64) -> bytes::Bytes) -> Result<bool> {
    const CHUNK: u64 = 1 << 20;
    let mut file = fs::File::open(path).with_context(|| format!("open {}", path.display()))?;
    if file.metadata()?.len() != len {
        return Ok(false);
    }
    let mut buffer = vec![0; CHUNK as usize];
    for at in (0..len).step_by(CHUNK as usize) {
        let part = &mut buffer[..CHUNK.min(len - at) as usize];
        file.read_exact(part).with_context(|| format!("read {}", path.display()))?;
        if *part != expected(at, part.len() as u64)[..] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a reader finds behind `current` of a cache's folder: nothing published, or a snapshot with its manifest whose files are
/// all there in full length.
///
/// # Errors
/// What a reader must never find.
pub fn look_through_current(folder: &Path) -> Result<Option<SnapshotId>> {
    let target = fs::read_link(folder.join("current")).context("read current")?;
    let target = target.to_str().context("current is UTF-8")?;
    if target == "empty" {
        fs::metadata(folder.join("empty/.stokehold-cold")).context("current leads to empty")?;
        return Ok(None);
    }
    let id = target.strip_prefix("snapshots/").with_context(|| format!("current leads to {target}"))?;
    let manifest = fs::read(folder.join(format!("snapshots/{id}.json"))).context("current has a manifest")?;
    let manifest: Manifest = serde_json::from_slice(&manifest).context("the manifest is whole")?;
    for file in &manifest.files {
        let path = folder.join(target).join(file.path.as_str());
        let found = fs::metadata(&path).with_context(|| format!("current has {}", file.path))?;
        anyhow::ensure!(found.len() == file.size.0, "{} has {} bytes, not {}", file.path, found.len(), file.size.0);
    }
    Ok(Some(manifest.snapshot))
}
