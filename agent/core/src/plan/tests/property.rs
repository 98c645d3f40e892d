//! What holds of every plan, whatever the world looks like.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use super::dice::{Dice, THROWS, world};
use super::*;

fn cases() -> ProptestConfig {
    // A world takes 0.4 ms unoptimised: the properties together stay within a few seconds.
    ProptestConfig { cases: 1_024, failure_persistence: None, ..ProptestConfig::default() }
}

fn throws() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), THROWS)
}

/// The cache that a step works on, where it works on one.
fn cache_of(step: &Step) -> Option<&CacheId> {
    match step {
        Step::CancelJob { key } => key.cache(),
        Step::Evict { cache, .. }
        | Step::Discard { cache, .. }
        | Step::Remove { cache }
        | Step::Create { cache, .. }
        | Step::WriteRecord { cache, .. }
        | Step::PointCurrent { cache, .. }
        | Step::Verify { cache, .. }
        | Step::List { cache }
        | Step::Stage { cache, .. } => Some(cache),
        Step::Sweep { .. } | Step::ShrinkPromises { .. } | Step::GrowPromises { .. } => None,
    }
}

/// The place of a step's kind in the order of execution.
fn place(step: &Step) -> u8 {
    match step {
        Step::CancelJob { .. } => 0,
        Step::Evict { .. } => 1,
        Step::Discard { .. } => 2,
        Step::Remove { .. } => 3,
        Step::Sweep { .. } => 4,
        Step::ShrinkPromises { .. } => 5,
        Step::Create { .. } => 6,
        Step::WriteRecord { .. } => 7,
        Step::GrowPromises { .. } => 8,
        Step::PointCurrent { .. } => 9,
        Step::Verify { .. } => 10,
        Step::List { .. } => 11,
        Step::Stage { .. } => 12,
    }
}

fn is_cleaning(step: &Step) -> bool {
    matches!(step, Step::Evict { .. } | Step::Discard { .. } | Step::Remove { .. } | Step::Verify { .. })
}

fn view<'w>(world: &'w World, cache: &CacheId) -> Option<&'w CacheView> {
    match world.observed.caches.get(cache)? {
        Seen::Present(view) => Some(view),
        Seen::Absent | Seen::Unknown(_) => None,
    }
}

/// What is promised to a cache and not on the disk yet. One that cannot be read counts with all of it.
fn outstanding(world: &World, promised: &BTreeMap<CacheId, Bytes>, cache: &CacheId) -> u128 {
    let used = view(world, cache).map_or(Bytes::ZERO, |view| view.used);
    promised.get(cache).copied().unwrap_or_default().less(used).0.into()
}

fn outstanding_of_all(world: &World, promised: &BTreeMap<CacheId, Bytes>) -> u128 {
    promised.keys().map(|cache| outstanding(world, promised, cache)).sum()
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn p07_whatever_is_desired_is_ready_or_has_a_step_a_job_or_a_hold(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let plan = world.plan();
        for cache in world.desired.caches.keys() {
            let before = match &world.observed.root {
                Seen::Present(root) => root.promised.get(cache).copied(),
                Seen::Absent | Seen::Unknown(_) => None,
            };
            let has_step = plan.steps.iter().any(|step| {
                let grows = matches!(step, Step::GrowPromises { promised } if promised.get(cache).copied() > before);
                grows || (cache_of(step) == Some(cache) && !matches!(step, Step::CancelJob { .. }))
            });
            let has_job = world.observed.jobs.keys().any(|key| key.cache() == Some(cache));
            let has_hold = plan.holds.iter().any(|hold| hold.subject.cache() == Some(cache));
            let is_ready = plan.verdicts[cache].phase == Phase::Ready;
            prop_assert!(is_ready || has_step || has_job || has_hold, "{cache} in {:#?}", lines(&plan));
        }
    }

    #[test]
    fn p07_every_desired_cache_has_a_verdict_and_is_held_only_with_a_hold(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let plan = world.plan();
        prop_assert!(plan.verdicts.keys().eq(world.desired.caches.keys()));
        for (cache, verdict) in &plan.verdicts {
            let has_hold = plan.holds.iter().any(|hold| hold.subject.cache() == Some(cache));
            prop_assert!(verdict.phase != Phase::Held || has_hold, "{cache} in {:#?}", lines(&plan));
            prop_assert_eq!(verdict.phase == Phase::Ready, verdict.served.is_some() && verdict.served == verdict.target);
        }
    }

    #[test]
    fn p04_no_promise_is_made_of_bytes_that_are_not_there(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let Seen::Present(root) = &world.observed.root else { return Ok(()) };
        let writable = u128::from(root.room.available.less(root.headroom).0);
        let before = outstanding_of_all(&world, &root.promised);
        let plan = world.plan();
        for step in &plan.steps {
            match step {
                Step::ShrinkPromises { promised } => {
                    let shrinks = |(cache, bytes): (&CacheId, &Bytes)| root.promised.get(cache) >= Some(bytes);
                    prop_assert!(promised.iter().all(shrinks));
                }
                Step::GrowPromises { promised } => {
                    let after = outstanding_of_all(&world, promised);
                    prop_assert!(after <= writable.max(before), "{after} of {writable} in {:#?}", lines(&plan));
                }
                Step::Stage { cache, snapshot, .. } => {
                    let view = view(&world, cache).expect("only what was seen is staged");
                    let allocated = view.incoming.get(snapshot).copied().unwrap_or_default();
                    let missing = world.observed.listings[cache].summary.blocks.less(allocated);
                    let of_others = before - outstanding(&world, &root.promised, cache);
                    let needed = of_others + u128::from(missing.0);
                    // What is allocated whole takes nothing from anybody.
                    prop_assert!(missing == Bytes::ZERO || needed <= writable, "{needed} of {writable} in {:#?}", lines(&plan));
                }
                Step::CancelJob { .. } | Step::Evict { .. } | Step::Discard { .. } | Step::Remove { .. }
                | Step::Sweep { .. } | Step::Create { .. } | Step::WriteRecord { .. } | Step::PointCurrent { .. }
                | Step::Verify { .. } | Step::List { .. } => {}
            }
        }
    }

    #[test]
    fn p04_what_cannot_be_read_or_is_worked_on_keeps_its_promise(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let Seen::Present(root) = &world.observed.root else { return Ok(()) };
        let keeps = |cache: &CacheId| {
            let is_unknown = matches!(world.observed.caches.get(cache), Some(Seen::Unknown(_)));
            is_unknown || world.observed.jobs.contains_key(&JobKey::Stage(cache.clone()))
        };
        for step in world.plan().steps {
            let (Step::ShrinkPromises { promised } | Step::GrowPromises { promised }) = step else { continue };
            for (cache, bytes) in root.promised.iter().filter(|(cache, _)| keeps(cache)) {
                prop_assert_eq!(promised.get(cache), Some(bytes), "{}", cache);
            }
        }
    }

    #[test]
    fn p04_nobody_is_promised_more_than_its_limit(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let Seen::Present(root) = &world.observed.root else { return Ok(()) };
        for step in world.plan().steps {
            let Step::GrowPromises { promised } = step else { continue };
            for (cache, bytes) in &promised {
                let limit = world.desired.caches.get(cache).and_then(|cache| cache.limit);
                let used = view(&world, cache).map(|view| view.used);
                let has_grown = root.promised.get(cache) < Some(bytes);
                prop_assert!(!has_grown || limit.is_none_or(|limit| *bytes <= limit) || used >= Some(*bytes));
            }
        }
    }

    #[test]
    fn p05_p06_nothing_goes_that_is_served_or_may_be_in_use(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let plan = world.plan();
        for step in &plan.steps {
            let Some((cache, going)) = step.withdraws() else { continue };
            let Some(verdict) = plan.verdicts.get(cache) else { continue };
            let going = going.expect("what is desired is never removed whole");
            prop_assert_ne!(verdict.served, Some(going), "{:#?}", lines(&plan));
            if let Some(SnapshotView::Published(found)) = view(&world, cache).and_then(|view| view.snapshots.get(&going)) {
                let is_unused = match &found.users {
                    Seen::Absent => true,
                    Seen::Present(users) => users.is_empty(),
                    Seen::Unknown(_) => false,
                };
                prop_assert!(is_unused && verdict.target != Some(going), "{:#?}", lines(&plan));
            }
        }
    }

    #[test]
    fn p06_what_is_served_was_seen_published_proven_and_staying(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        for (cache, verdict) in world.plan().verdicts {
            let Some(served) = verdict.served else { continue };
            let view = view(&world, &cache).expect("seen");
            prop_assert_eq!(&view.current, &Current::Snapshot(served));
            let published = matches!(view.snapshots.get(&served), Some(SnapshotView::Published(_)));
            prop_assert!(published && world.desired.caches[&cache].refused.is_none());
            let job = world.observed.jobs.get(&JobKey::Clean(cache.clone())).map(|job| job.kind);
            prop_assert!(job != Some(JobKind::Evict(served)) && job != Some(JobKind::Remove));
        }
    }

    #[test]
    fn what_is_unknown_or_foreign_is_not_touched(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let plan = world.plan();
        for step in &plan.steps {
            // Neither changes anything on the disk.
            if matches!(step, Step::List { .. } | Step::CancelJob { .. }) {
                continue;
            }
            let Some(cache) = cache_of(step) else { continue };
            let is_touchable = match world.observed.caches.get(cache) {
                None | Some(Seen::Absent) => true,
                Some(Seen::Unknown(_)) => false,
                Some(Seen::Present(view)) => {
                    !matches!(view.record, Seen::Unknown(_)) && !matches!(view.current, Current::Foreign(_))
                }
            };
            prop_assert!(is_touchable, "{cache} in {:#?}", lines(&plan));
        }
    }

    #[test]
    fn a_cache_is_staged_or_cleaned_never_both_and_never_beside_a_job(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let plan = world.plan();
        let works = |step: &&Step| is_cleaning(step) || matches!(step, Step::Stage { .. });
        let mut seen = BTreeSet::new();
        for cache in plan.steps.iter().filter(works).filter_map(cache_of) {
            prop_assert!(seen.insert(cache), "{cache} twice in {:#?}", lines(&plan));
            for key in [JobKey::Stage(cache.clone()), JobKey::Clean(cache.clone())] {
                prop_assert!(!world.observed.jobs.contains_key(&key), "{cache} in {:#?}", lines(&plan));
            }
        }
    }

    #[test]
    fn p11_jobs_stay_within_their_limits(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let plan = world.plan();
        let running = |is_one: fn(&JobKind) -> bool| world.observed.jobs.values().filter(|job| is_one(&job.kind)).count();
        let begun = |is_one: fn(&Step) -> bool| plan.steps.iter().filter(|step| is_one(step)).count();
        let stages = (running(|kind| matches!(kind, JobKind::Stage(_))), begun(|step| matches!(step, Step::Stage { .. })));
        let lists = (running(|kind| *kind == JobKind::List), begun(|step| matches!(step, Step::List { .. })));
        let is_clean =
            |kind: &JobKind| matches!(kind, JobKind::Evict(_) | JobKind::Discard(_) | JobKind::Verify(_) | JobKind::Remove);
        let cleans = |step: &Step| {
            matches!(step, Step::Evict { .. } | Step::Discard { .. } | Step::Verify { .. } | Step::Remove { .. })
        };
        let cleans = (running(is_clean), begun(cleans));
        let limits = &world.limits;
        for ((running, begun), most) in
            [(stages, limits.stages_max), (lists, limits.lists_max), (cleans, limits.cleans_max)]
        {
            prop_assert!(begun == 0 || running + begun <= most as usize);
        }
    }

    #[test]
    fn steps_stand_in_their_order_and_each_once(throws in throws()) {
        let world = world(&mut Dice::new(&throws, false));
        let steps = world.plan().steps;
        prop_assert!(steps.is_sorted_by_key(place));
        prop_assert!(steps.iter().all(|step| steps.iter().filter(|other| *other == step).count() == 1));
    }

    #[test]
    fn the_same_world_has_the_same_plan_and_no_world_makes_it_panic(throws in throws()) {
        let world = world(&mut Dice::new(&throws, true));
        let plan = world.plan();
        prop_assert_eq!(&plan, &world.clone().plan());
        let _texts = lines(&plan);
    }
}

#[test]
fn the_worlds_drawn_here_lead_to_every_kind_of_step_and_hold() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut places, mut reasons) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..2_000 {
        let throws = throws().new_tree(&mut runner).expect("bytes are not refused").current();
        let plan = world(&mut Dice::new(&throws, false)).plan();
        places.extend(plan.steps.iter().map(place));
        reasons.extend(plan.holds.iter().map(|hold| hold.reason.name()));
    }
    assert_eq!(places.into_iter().collect::<Vec<_>>(), (0..=12).collect::<Vec<_>>());
    let expected = [
        "CacheUnknown",
        "Corrupt",
        "CurrentIsForeign",
        "DiskError",
        "InUse",
        "NoChecksum",
        "NoInodes",
        "NoRoom",
        "NotInThisRelease",
        "OriginChanged",
        "OverLimit",
        "Quarantined",
        "RefusedByPolicy",
        "Rejected",
        "Retained",
        "RevisionNotOffered",
        "RootUnknown",
        "UpdateAvailable",
        "UsersUnknown",
        "WaitingForTurn",
    ];
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), expected);
}
