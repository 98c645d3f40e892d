//! A node that does what the planner says, is cut off anywhere, and then left alone: it comes to rest with all that fits served.

use proptest::prelude::*;

use super::dice::{Dice, NAMES, THROWS};
use super::node::Node;
use super::*;

/// Two caches that take turns need some twenty passes: list, record, promise, stage, and clean up, one after another.
const PASSES_MAX: u32 = 60;
/// Longer than any retention, back-off, quarantine or interval between listings.
const LONG: Duration = Duration::from_secs(7_200);

/// One pass that is cut off after some of its steps, and what the world does meanwhile.
fn disturbed_pass(node: &mut Node, dice: &mut Dice<'_>) {
    node.meddle(dice);
    let steps = node.plan().steps;
    let crash_after = if dice.one_in(3) { usize::from(dice.below(4)) } else { steps.len() };
    for step in steps.iter().take(crash_after) {
        node.perform(step);
    }
    if crash_after < steps.len() || dice.one_in(6) {
        node.crash(dice);
    }
    node.some_jobs_end(dice);
    node.wait(Duration::from_secs(u64::from(dice.below(200)) * 10));
}

/// Passes that nothing disturbs, until one has nothing to do.
fn come_to_rest(node: &mut Node) -> Result<Plan, TestCaseError> {
    node.calm_down();
    node.wait(LONG);
    let mut last = Vec::new();
    for _ in 0..PASSES_MAX {
        let plan = node.plan();
        if plan.steps.is_empty() && node.is_idle() && !node.waits_for_its_next_retry() {
            return Ok(plan);
        }
        last.push(lines(&plan));
        plan.steps.iter().for_each(|step| node.perform(step));
        node.all_jobs_end();
    }
    let shown = last.split_off(last.len() - 4);
    Err(TestCaseError::fail(format!("still busy after {PASSES_MAX} passes: {shown:#?}")))
}

fn throws() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), THROWS)
}

proptest! {
    // A history takes 5 ms unoptimised.
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happened_a_node_left_alone_settles_with_all_that_fits_served(throws in throws()) {
        let mut dice = Dice::new(&throws, false);
        let mut node = Node::new(&mut dice, &NAMES[..3]);
        for _ in 0..dice.below(24) {
            disturbed_pass(&mut node, &mut dice);
        }
        let plan = come_to_rest(&mut node)?;
        prop_assert_eq!(node.outstanding(), Bytes::ZERO, "promised for nothing");
        for (cache, verdict) in &plan.verdicts {
            if verdict.phase == Phase::Ready {
                continue;
            }
            let standing = plan.holds.iter().find(|hold| {
                hold.subject.cache() == Some(cache) && hold.reason.stands_in_the_way(true)
            });
            let is_right = match standing.map(|hold| &hold.reason) {
                Some(Reason::NoRoom { needed, .. }) => *needed > node.writable(),
                Some(Reason::OverLimit { needed, used, limit }) => *needed + *used > *limit,
                Some(Reason::OriginChanged { target, offered }) => target != offered,
                Some(Reason::RevisionNotOffered { wanted, offered }) => wanted != offered,
                Some(_) | None => false,
            };
            prop_assert!(is_right, "{cache} in {:#?}", lines(&plan));
        }
        node.check_that_nothing_is_left_over(&plan);
    }

    #[test]
    fn with_room_and_updates_all_are_ready_in_the_end(throws in throws()) {
        let mut dice = Dice::new(&throws, false);
        let mut node = Node::new(&mut dice, &NAMES[..3]);
        for _ in 0..dice.below(24) {
            disturbed_pass(&mut node, &mut dice);
        }
        node.has_room_and_follows();
        let plan = come_to_rest(&mut node)?;
        let all_ready = plan.verdicts.values().all(|verdict| verdict.phase == Phase::Ready);
        prop_assert!(all_ready, "{:#?}", lines(&plan));
    }
}
