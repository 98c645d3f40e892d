//! Whether a node is settled: all is ready, or what is not has been held for the same reason for a while.
//!
//! In go statuses with their moments, out comes a verdict. Deliberately absent: clocks and waiting.

use std::time::Duration;

use crate::cli::status::{is_held, is_ready};
use crate::server::view::{HoldView, StatusView};

/// A reason that stands this long is told: a held listing is tried again within it.
pub(super) const HELD_FOR: Duration = Duration::from_secs(5);
/// A hold that goes by itself, without anybody doing anything.
const PASSING: &str = "WaitingForTurn";

/// How a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All that is asked for is here.
    Ready,
    /// The rest is held.
    Held,
    /// Something moves.
    Moving,
}

/// Remembers since when the same holds stand.
#[derive(Debug, Default)]
pub(super) struct Settling {
    holds: Vec<(String, String)>,
    since: Duration,
}

impl Settling {
    /// Looks at a status at a moment since some start.
    pub(super) fn look(&mut self, status: &StatusView, now: Duration) -> Verdict {
        let standing = |hold: &&HoldView| hold.stands_in_the_way;
        let name = |hold: &HoldView| (hold.subject.clone(), hold.reason.clone());
        // What is held of caches that nobody asks for is nobody's wait.
        let of_node = status.holds.iter().filter(|hold| hold.cache.is_none());
        let of_caches = status.caches.iter().filter(|cache| !is_ready(cache)).flat_map(|cache| &cache.holds);
        let holds: Vec<_> = of_node.chain(of_caches).filter(standing).map(name).collect();
        if holds != self.holds {
            (self.holds, self.since) = (holds, now);
        }
        let is_passing = self.holds.iter().any(|(_, reason)| reason == PASSING);
        let is_still = status.caches.iter().all(|cache| is_ready(cache) || is_held(cache)) && !is_passing;
        match (is_still, self.holds.is_empty()) {
            (true, true) => Verdict::Ready,
            (true, false) if now.saturating_sub(self.since) >= HELD_FOR => Verdict::Held,
            (true | false, _) => Verdict::Moving,
        }
    }
}

#[cfg(test)]
mod tests {
    use stokehold_core::plan::Phase;

    use super::*;
    use crate::cli::status::tests::{cache, hold, node};

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_is_settled_when_all_is_ready_or_held_for_a_while_for_one_reason() {
        let ready = node(vec![cache("a/one", Phase::Ready)]);
        assert_eq!(Settling::default().look(&ready, at(0)), Verdict::Ready);
        let moving = node(vec![cache("a/one", Phase::Ready), cache("a/two", Phase::Staging)]);
        assert_eq!(Settling::default().look(&moving, at(9)), Verdict::Moving);

        let held = |reason| {
            let mut two = cache("a/two", Phase::Held);
            two.holds = vec![hold(reason, "because")];
            node(vec![cache("a/one", Phase::Ready), two])
        };
        let mut settling = Settling::default();
        assert_eq!(settling.look(&held("NoRoom"), at(1)), Verdict::Moving);
        assert_eq!(settling.look(&held("OriginMissing"), at(4)), Verdict::Moving, "another reason begins anew");
        assert_eq!(settling.look(&held("OriginMissing"), at(8)), Verdict::Moving);
        assert_eq!(settling.look(&held("OriginMissing"), at(9)), Verdict::Held);
        assert_eq!(settling.look(&held(PASSING), at(30)), Verdict::Moving);
        assert_eq!(settling.look(&held(PASSING), at(300)), Verdict::Moving, "its turn will come");
    }

    #[test]
    fn a_document_that_cannot_be_read_is_a_hold_too() {
        let mut node = node(Vec::new());
        node.holds = vec![hold("Rejected", "is no YAML")];
        let mut settling = Settling::default();
        assert_eq!(settling.look(&node, at(0)), Verdict::Moving);
        assert_eq!(settling.look(&node, at(5)), Verdict::Held);
    }
}
