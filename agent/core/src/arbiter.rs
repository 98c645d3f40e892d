//! Who may use the link and the disk next: one arbiter for weights and for images to come.
//!
//! A sans-IO machine. In go claims and releases, out come grants: higher priority first, then whose subject has fewest turns now, then
//! who asked first. Deliberately absent: waiting, which is the caller's.

use std::collections::BTreeMap;

use crate::hold::Subject;
use crate::quantity::Bytes;

/// What somebody wants to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// For what.
    pub subject: Subject,
    /// Higher goes first.
    pub priority: i32,
    /// How much.
    pub bytes: Bytes,
}

/// Names a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The machine.
#[derive(Debug)]
pub struct Arbiter {
    streams_max: u32,
    next: u64,
    waiting: BTreeMap<Ticket, Claim>,
    granted: BTreeMap<Ticket, Subject>,
}

impl Arbiter {
    /// Lets at most `streams_max` claims run at a time, and at least one.
    #[must_use]
    pub fn new(streams_max: u32) -> Self {
        Self { streams_max: streams_max.max(1), next: 0, waiting: BTreeMap::new(), granted: BTreeMap::new() }
    }

    /// Somebody wants to move bytes.
    pub fn claim(&mut self, claim: Claim) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.insert(ticket, claim);
        ticket
    }

    /// A claim is done with, or not wanted any more.
    pub fn release(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        self.granted.remove(&ticket);
    }

    /// The claims that may go now and could not before.
    pub fn grant(&mut self) -> Vec<Ticket> {
        let mut granted = Vec::new();
        while self.granted.len() < self.streams_max as usize {
            let turns = |subject: &Subject| self.granted.values().filter(|granted| *granted == subject).count();
            let first = self.waiting.iter().min_by(|one, two| {
                let by_priority = two.1.priority.cmp(&one.1.priority);
                by_priority.then_with(|| turns(&one.1.subject).cmp(&turns(&two.1.subject))).then(one.0.cmp(two.0))
            });
            let Some(ticket) = first.map(|(ticket, _)| *ticket) else { break };
            let Some(claim) = self.waiting.remove(&ticket) else { break };
            self.granted.insert(ticket, claim.subject);
            granted.push(ticket);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_priority_whoever_has_fewest_turns_goes_first() {
        let subject = |name| Subject::Document(String::from(name));
        let mut arbiter = Arbiter::new(3);
        let mut claim = |name| arbiter.claim(Claim { subject: subject(name), priority: 0, bytes: Bytes(1) });
        let (greedy, greedy_more, greedy_most, late) = (claim("a"), claim("a"), claim("a"), claim("b"));
        assert_eq!(arbiter.grant(), [greedy, late, greedy_more]);
        arbiter.release(late);
        assert_eq!(arbiter.grant(), [greedy_most]);
    }

    #[test]
    fn higher_priority_goes_first_then_who_asked_first_and_never_too_many() {
        let mut arbiter = Arbiter::new(2);
        let mut claim = |priority| arbiter.claim(Claim { subject: Subject::Node, priority, bytes: Bytes(1) });
        let (low, low_later, high) = (claim(0), claim(0), claim(5));
        assert_eq!(arbiter.grant(), [high, low]);
        assert_eq!(arbiter.grant(), []);
        arbiter.release(high);
        assert_eq!(arbiter.grant(), [low_later]);
        arbiter.release(low);
        arbiter.release(low_later);
        assert_eq!(arbiter.grant(), []);
    }
}
