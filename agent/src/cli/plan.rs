//! `stokehold plan`: what the last pass would do, and what it would not, with reasons.

use std::collections::BTreeMap;

use clap::Args;
use stokehold_core::name::CacheId;
use stokehold_core::plan::Step;
use stokehold_core::quantity::Bytes;

use super::Exit;
use super::ask::{Agent, AskError, SocketFlags, runtime};
use super::output::{Format, print, render, table};
use crate::server::view::PlanView;

/// Show the plan of the last pass.
#[derive(Debug, Clone, Args)]
pub struct PlanFlags {
    #[command(flatten)]
    socket: SocketFlags,
    /// In which form
    #[arg(long, value_enum, default_value_t)]
    output: Format,
}

/// Prints it.
///
/// # Errors
/// An error where the agent does not answer.
pub fn run(flags: &PlanFlags) -> Result<Exit, AskError> {
    let agent = Agent::of(&flags.socket);
    let plan = runtime()?.block_on(agent.get::<PlanView>("/v1/plan"))?;
    print(&render(&plan, flags.output, text));
    Ok(Exit::Done)
}

fn text(plan: &PlanView) -> String {
    let rows: Vec<_> = plan.steps.iter().map(described).collect();
    let mut text = if rows.is_empty() {
        format!("pass {} had nothing to do\n", plan.passes)
    } else {
        table(["STEP", "SUBJECT", "WHAT"], rows)
    };
    for hold in &plan.holds {
        text += &format!("held: {}: {}: {}\n", hold.subject, hold.reason, hold.message);
    }
    text
}

fn promises(promised: &BTreeMap<CacheId, Bytes>) -> String {
    let sum: Bytes = promised.values().copied().sum();
    format!("{sum} to {} caches", promised.len())
}

/// A step in three columns.
fn described(step: &Step) -> [String; 3] {
    let (name, subject, what) = match step {
        Step::CancelJob { key } => ("cancel", key.cache().map(ToString::to_string), format!("the {} job", key.kind())),
        Step::Evict { cache, snapshot } => ("evict", Some(cache.to_string()), snapshot.to_string()),
        Step::Discard { cache, snapshot } => {
            ("discard", Some(cache.to_string()), format!("what was left half-way of {snapshot}"))
        }
        Step::Remove { cache } => ("remove", Some(cache.to_string()), "its folder".to_owned()),
        Step::Sweep { trees } => ("sweep", None, format!("{} trees that were renamed aside", trees.len())),
        Step::ShrinkPromises { promised } => ("promise less", None, promises(promised)),
        Step::Create { cache, .. } => ("create", Some(cache.to_string()), "its folder".to_owned()),
        Step::WriteRecord { cache, .. } => ("write", Some(cache.to_string()), "its record".to_owned()),
        Step::GrowPromises { promised } => ("promise", None, promises(promised)),
        Step::PointCurrent { cache, snapshot } => ("point", Some(cache.to_string()), format!("current to {snapshot}")),
        Step::Verify { cache, snapshot } => ("verify", Some(cache.to_string()), snapshot.to_string()),
        Step::List { cache } => ("list", Some(cache.to_string()), "its origin".to_owned()),
        Step::Stage { cache, snapshot, priority, bytes } => {
            ("stage", Some(cache.to_string()), format!("{snapshot}, {bytes}, priority {priority}"))
        }
    };
    [name.to_owned(), subject.unwrap_or_else(|| "node".to_owned()), what]
}

#[cfg(test)]
mod tests {
    use stokehold_core::checksum::SnapshotId;

    use super::*;
    use crate::server::view::HoldView;

    #[test]
    fn steps_are_a_table_and_holds_are_sentences_below_it() {
        let cache = CacheId::new("inference", "llama").expect("a name");
        let stage =
            Step::Stage { cache: cache.clone(), snapshot: SnapshotId([7; 8]), priority: 5, bytes: Bytes(1 << 30) };
        let hold = HoldView {
            subject: "weights of inference/qwen".to_owned(),
            cache: None,
            reason: "NoRoom".to_owned(),
            message: "needs 2.0 GiB, and 1.0 GiB can be promised".to_owned(),
            stands_in_the_way: true,
        };
        let plan = PlanView { passes: 3, steps: vec![Step::List { cache }, stage], holds: vec![hold] };
        let want = "STEP    SUBJECT           WHAT\n\
                    list    inference/llama   its origin\n\
                    stage   inference/llama   0707070707070707, 1.0 GiB, priority 5\n\
                    held: weights of inference/qwen: NoRoom: needs 2.0 GiB, and 1.0 GiB can be promised\n";
        assert_eq!(text(&plan), want);
        let nothing = PlanView { passes: 4, steps: Vec::new(), holds: Vec::new() };
        assert_eq!(text(&nothing), "pass 4 had nothing to do\n");
    }
}
