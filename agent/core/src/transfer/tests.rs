//! The machine by hand: one event after another, and at random against a model that only counts bytes.

use proptest::prelude::*;

use super::*;

const PART: u64 = 100;

fn limits() -> TransferLimits {
    TransferLimits { part_bytes: PART, connections_start: 2, connections_max: 4, ..TransferLimits::default() }
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

fn fetches(asks: &[Ask]) -> Vec<(u64, u32, ByteRange)> {
    let of = |ask: &Ask| match ask {
        Ask::Fetch { attempt, file, range, .. } => Some((attempt.0, *file, *range)),
        Ask::Cancel(_) | Ask::WaitUntil(_) | Ask::Finished | Ask::GiveUp => None,
    };
    asks.iter().filter_map(of).collect()
}

fn ended(attempt: u64, written: u64, end: End) -> Event {
    Event::Ended { attempt: AttemptId(attempt), written, end }
}

#[test]
fn parts_fall_on_multiples_and_go_out_in_order() {
    let mut transfer = Transfer::new(limits(), &[(0, range(30, 210)), (1, range(0, 10))], 0, Millis(0));
    assert_eq!(fetches(&transfer.next(Millis(0))), [(0, 0, range(30, 100)), (1, 0, range(100, 200))]);
    transfer.handle(ended(0, 70, End::Whole), Millis(5));
    assert_eq!(fetches(&transfer.next(Millis(5))), [(2, 0, range(200, 210))]);
    transfer.handle(ended(1, 100, End::Whole), Millis(6));
    transfer.handle(ended(2, 10, End::Whole), Millis(6));
    assert_eq!(fetches(&transfer.next(Millis(6))), [(3, 1, range(0, 10))]);
    transfer.handle(ended(3, 10, End::Whole), Millis(7));
    assert_eq!(transfer.next(Millis(7)), [Ask::Finished]);
}

#[test]
fn a_broken_attempt_leaves_only_its_remaining_bytes_to_the_next() {
    let mut transfer = Transfer::new(limits(), &[(0, range(0, 100))], 0, Millis(0));
    let _first = transfer.next(Millis(0));
    transfer.handle(ended(0, 60, End::Broken), Millis(10));
    let asks = transfer.next(Millis(10));
    assert_eq!(fetches(&asks), [], "not before its wait is over");
    let [Ask::WaitUntil(at)] = asks[..] else { panic!("{asks:?}") };
    assert!(at >= Millis(10 + 250) && at <= Millis(10 + 500), "{at:?}");
    assert_eq!(fetches(&transfer.next(at)), [(1, 0, range(60, 100))]);
}

#[test]
fn c024_an_attempt_without_a_byte_is_cancelled_and_its_rest_asked_for_again() {
    let mut transfer = Transfer::new(limits(), &[(0, range(0, 100))], 0, Millis(0));
    let _first = transfer.next(Millis(0));
    transfer.handle(Event::Bytes { attempt: AttemptId(0), count: 10 }, Millis(15_000));
    assert_eq!(transfer.next(Millis(20_000)), [Ask::WaitUntil(Millis(35_000))]);
    assert_eq!(transfer.next(Millis(35_000)), [Ask::Cancel(AttemptId(0))]);
    assert_eq!(transfer.next(Millis(35_001)), [], "cancelled once");
    transfer.handle(ended(0, 10, End::Cancelled), Millis(35_002));
    assert_eq!(fetches(&transfer.next(Millis(36_000))), [(1, 0, range(10, 100))]);
}

#[test]
fn an_attempt_that_waits_for_its_turn_does_not_stall() {
    let mut transfer = Transfer::new(limits(), &[(0, range(0, 100))], 0, Millis(0));
    let _first = transfer.next(Millis(0));
    transfer.handle(Event::Waits { attempt: AttemptId(0) }, Millis(19_000));
    assert_eq!(transfer.next(Millis(25_000)), [Ask::WaitUntil(Millis(39_000))]);
}

#[test]
fn c035_many_throttles_at_once_halve_once_and_the_wait_asked_for_is_kept() {
    let mut limits = limits();
    limits.connections_start = 4;
    let mut transfer = Transfer::new(limits, &[(0, range(0, 1_000))], 0, Millis(0));
    assert_eq!(fetches(&transfer.next(Millis(0))).len(), 4);
    for attempt in 0..4 {
        transfer.handle(ended(attempt, 0, End::Throttled(Some(Duration::from_secs(5)))), Millis(10));
    }
    assert_eq!(transfer.connections(), 2);
    let asks = transfer.next(Millis(10));
    assert_eq!(asks, [Ask::WaitUntil(Millis(5_010))]);
    assert_eq!(fetches(&transfer.next(Millis(5_010))).len(), 2);
}

#[test]
fn a_final_end_cancels_the_others_and_gives_up_when_they_have_ended() {
    let mut transfer = Transfer::new(limits(), &[(0, range(0, 300))], 0, Millis(0));
    let _first = transfer.next(Millis(0));
    transfer.handle(ended(0, 0, End::Final), Millis(1));
    assert_eq!(transfer.next(Millis(1)), [Ask::Cancel(AttemptId(1))]);
    transfer.handle(ended(1, 50, End::Cancelled), Millis(2));
    assert_eq!(transfer.next(Millis(2)), [Ask::GiveUp]);
}

#[test]
fn a_range_that_fails_again_and_again_without_a_byte_ends_the_transfer() {
    let mut transfer = Transfer::new(limits(), &[(0, range(0, 10))], 7, Millis(0));
    let mut now = Millis(0);
    for failure in 0..=TransferLimits::default().failures_max {
        let asks = transfer.next(now);
        assert_eq!(fetches(&asks).len(), 1, "failure {failure}: {asks:?}");
        transfer.handle(ended(u64::from(failure), 0, End::Broken), now);
        now = now.after(RETRY_MAX);
    }
    assert_eq!(transfer.next(now), [Ask::GiveUp]);
}

#[test]
fn connections_grow_while_goodput_grows_and_stop_when_it_does_not() {
    let mut transfer = Transfer::new(limits(), &[(0, range(0, 1_000_000))], 0, Millis(0));
    let mut running: VecDeque<u64> = fetches(&transfer.next(Millis(0))).into_iter().map(|fetch| fetch.0).collect();
    for turn in 1..40 {
        let now = Millis(turn * 100);
        // Each connection gives the same: more of them give more.
        for _ in 0..running.len() {
            let attempt = running.pop_front().expect("one is running");
            transfer.handle(ended(attempt, PART, End::Whole), now);
        }
        running.extend(fetches(&transfer.next(now)).into_iter().map(|fetch| fetch.0));
    }
    assert_eq!(transfer.connections(), 4);
}

proptest! {
    /// Whatever happens to attempts, every byte is asked for until it is written, none is asked for twice at a time, the number in
    /// flight stays bounded, and the machine always says how it goes on.
    #[test]
    fn p03_no_byte_is_fetched_twice_or_forgotten(
        sizes in proptest::collection::vec(0_u64..500, 1..6),
        script in proptest::collection::vec((0_usize..8, 0_u64..120, 0_u8..10), 0..400),
        seed in any::<u64>(),
    ) {
        let gaps: Vec<_> = sizes.iter().enumerate().map(|(file, size)| (file as u32, range(0, *size))).collect();
        let mut missing: BTreeMap<(u32, u64), ()> =
            gaps.iter().flat_map(|(file, gap)| (gap.start..gap.end).map(|at| ((*file, at), ()))).collect();
        let mut limits = limits();
        limits.failures_max = u32::MAX;
        let mut transfer = Transfer::new(limits, &gaps, seed, Millis(0));
        let mut flights: BTreeMap<AttemptId, (u32, ByteRange)> = BTreeMap::new();
        let mut now = Millis(0);
        let mut script = script.into_iter();
        let mut is_finished = false;
        while !is_finished {
            let mut wait = None;
            for ask in transfer.next(now) {
                match ask {
                    Ask::Fetch { attempt, file, range, .. } => {
                        prop_assert!(range.length() > 0 && range.length() <= PART);
                        for at in range.start..range.end {
                            prop_assert!(missing.contains_key(&(file, at)), "asked for a byte that is there");
                        }
                        let overlaps = |other: &&(u32, ByteRange)| {
                            other.0 == file && other.1.start < range.end && range.start < other.1.end
                        };
                        prop_assert!(flights.values().find(overlaps).is_none(), "a byte twice in flight");
                        flights.insert(attempt, (file, range));
                    }
                    Ask::WaitUntil(at) => wait = Some(at),
                    Ask::Cancel(attempt) => prop_assert!(flights.contains_key(&attempt)),
                    Ask::Finished => {
                        prop_assert!(missing.is_empty() && flights.is_empty());
                        is_finished = true;
                    }
                    Ask::GiveUp => prop_assert!(false, "gave up"),
                }
            }
            prop_assert!(flights.len() <= 4);
            let Some((&attempt, &(file, range))) = flights.iter().next() else {
                now = wait.unwrap_or(now);
                prop_assert!(wait.is_some() || is_finished, "idle without a time to wake");
                continue;
            };
            let (which, written, end) = script.next().unwrap_or((0, u64::MAX, 0));
            let (attempt, file, range) = flights
                .iter()
                .nth(which % flights.len())
                .map_or((attempt, file, range), |(attempt, (file, range))| (*attempt, *file, *range));
            let (written, end) = match end {
                0..=3 => (range.length(), End::Whole),
                4 => (written.min(range.length()), End::Throttled(None)),
                5 => (written.min(range.length()), End::Throttled(Some(Duration::from_secs(3)))),
                6 => (written.min(range.length()), End::Cancelled),
                _ => (written.min(range.length()), End::Broken),
            };
            flights.remove(&attempt);
            for at in range.start..range.start + written {
                missing.remove(&(file, at));
            }
            now = Millis(now.0 + 7);
            transfer.handle(Event::Ended { attempt, written, end }, now);
        }
    }
}
