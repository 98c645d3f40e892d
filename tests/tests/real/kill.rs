//! P3 and its kin: what a kill, a stop or an upgrade costs, and what a reader sees meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use stokehold_tests::lab::fault_s3::{Fault, FaultS3, Log, On, Operation, Times};
use stokehold_tests::lab::{self, seed};
use stokehold_tests::real::{LIMIT, Site, allocated, look_through_current};

use crate::ground::{IN_FLIGHT, MIB, Model, shard};

/// Pause between two looks of a watcher: it shares two cores with what it watches.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Counter of the bytes that the agent has written.
const FETCHED: &str = "stokehold_fetched_bytes_total{origin=\"s3\"}";

/// Does something again and again beside the test, until told to end; the first error ends it.
struct Watcher {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Watcher {
    fn start(mut look: impl FnMut() -> Result<()> + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_over_there = is_over.clone();
        let thread = thread::spawn(move || {
            let mut looks = 0;
            while !is_over_there.load(Ordering::Relaxed) {
                look()?;
                looks += 1;
                thread::sleep(LOOK_AGAIN);
            }
            Ok(looks)
        });
        Self { is_over, thread }
    }

    /// How often it looked.
    fn end(self) -> Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a watcher does not panic")
    }
}

/// A reader that goes through `current` all the time, from the moment it is there.
fn reader(folder: PathBuf) -> Watcher {
    let mut was_there = false;
    Watcher::start(move || {
        was_there |= folder.join("current").is_symlink();
        if was_there {
            look_through_current(&folder)?;
        }
        Ok(())
    })
}

/// Bytes of objects that were sent more than once.
fn sent_again(log: &Log) -> u64 {
    let mut by_key: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for request in log.of(Operation::Get).filter(|request| request.status < 300) {
        let from = request.range.map_or(0, |(first, _last)| first);
        by_key.entry(&request.key).or_default().push((from, from + request.body_bytes));
    }
    let mut once = 0;
    for ranges in by_key.values_mut() {
        ranges.sort_unstable();
        let mut seen = 0;
        for (from, to) in ranges {
            once += to.saturating_sub(seen.max(*from));
            seen = seen.max(*to);
        }
    }
    log.object_bytes() - once
}

fn until_sent(server: &FaultS3, bytes: u64) -> Result<()> {
    lab::until(&format!("{bytes} bytes sent"), LIMIT, || (server.log().object_bytes() >= bytes).then_some(()))
}

#[test]
fn p03_ten_kills_cost_at_most_the_parts_in_flight_and_no_reader_sees_half_a_snapshot() -> Result<()> {
    const KILLS: u64 = 10;
    const SEED: u64 = 20_270_115;
    let server = FaultS3::start()?;
    let model = Model::new("big", 3, 3, 100 * MIB);
    model.put(&server);
    // 40 MiB/s in all, so that kills land on the way.
    server.fault(On::AnyGet, Fault::Slow { bytes_per_second: 10 * MIB }, Times::Always);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let reader = reader(stokehold_tests::real::folder(site.root(), &model.id()));
    eprintln!("kill  sent so far  sent again");
    for kill in 1..=KILLS {
        let node = site.start()?;
        // 18 to 30 MiB after the start: less than a tenth of the model, so that the last kill too finds it unfinished.
        let more = 18 * MIB + seed::mix(SEED ^ kill) % (12 * MIB);
        let before = server.log().object_bytes();
        // A staging that dies twice without a part of it having arrived is poison, and waits for an hour.
        lab::until("a part", LIMIT, || (node.metric(FETCHED).ok()? > 0.0).then_some(())).with_context(|| site.log())?;
        until_sent(&server, before + more).with_context(|| site.log())?;
        node.running().kill()?;
        let log = server.log();
        ensure!(!node.folder(&model.id()).join("current").join(shard(1)).exists(), "it is published only when whole");
        eprintln!("{kill:4} {:12} {:11}", log.object_bytes(), sent_again(&log));
    }
    server.clear_faults();
    let node = site.start()?;
    node.until_ready(&model.id())?;
    let looks = reader.end().context("what a reader saw")?;
    model.check_published(site.root())?;
    let log = server.log();
    eprintln!("end  {:12} {:11}; {looks} looks of a reader", log.object_bytes(), sent_again(&log));
    let bound = model.bytes() + KILLS * IN_FLIGHT;
    ensure!(log.object_bytes() <= bound, "{} bytes were sent, and {bound} may be", log.object_bytes());
    ensure!(sent_again(&log) > 0, "the kills hit something in flight");
    Ok(())
}

#[test]
fn c003_a_kill_between_the_last_byte_and_publication_leaves_nothing_half_done() -> Result<()> {
    const KILLS: u32 = 8;
    let server = FaultS3::start()?;
    let model = Model::new("ending", 4, 2, 3 * MIB);
    model.put(&server);
    for kill in 0..KILLS {
        let site = Site::new(&server.access())?;
        site.want(&model.wanted())?;
        let reader = reader(stokehold_tests::real::folder(site.root(), &model.id()));
        let before = server.log().object_bytes();
        let node = site.start()?;
        until_sent(&server, before + model.bytes()).with_context(|| site.log())?;
        // A little later each time: into proof, freezing, manifest, rename and link.
        let later = Instant::now() + Duration::from_millis(2) * kill;
        while Instant::now() < later {
            std::hint::spin_loop();
        }
        node.running().kill()?;
        site.start()?.until_ready(&model.id())?;
        reader.end().with_context(|| format!("what a reader saw beside kill {kill}"))?;
        model.check_published(site.root())?;
        let sent = server.log().object_bytes() - before;
        ensure!(sent <= 2 * model.bytes(), "{sent} bytes were sent for {}", model.bytes());
    }
    Ok(())
}

#[test]
fn c020_a_stop_ends_within_five_seconds_and_what_was_written_is_not_fetched_again() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("stopped", 5, 2, 32 * MIB);
    model.put(&server);
    server.fault(On::AnyGet, Fault::Slow { bytes_per_second: 4 * MIB }, Times::Always);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let node = site.start()?;
    until_sent(&server, model.bytes() * 6 / 10).with_context(|| site.log())?;
    let begun = Instant::now();
    let exit = node.running().terminate(Duration::from_secs(10))?;
    ensure!(exit.status.code() == Some(0), "it ended with {:?}", exit.status);
    ensure!(begun.elapsed() < Duration::from_secs(5), "it took {:?} to stop", begun.elapsed());
    let sent = server.log().object_bytes();
    server.clear_faults();
    let node = site.start()?;
    node.until_ready(&model.id())?;
    model.check_published(site.root())?;
    let (again, reused) = (sent_again(&server.log()), node.metric("stokehold_reused_bytes_total")? as u64);
    let fetched = node.metric(FETCHED)? as u64;
    eprintln!("{sent} sent before the stop, {reused} reused, {fetched} fetched, {again} sent again");
    ensure!(reused + fetched == model.bytes(), "{reused} reused and {fetched} fetched are not {}", model.bytes());
    // What the server had sent and the agent had not read yet when it stopped, in the buffers of four sockets.
    ensure!(again <= 4 * MIB, "{again} bytes were sent again");
    Ok(())
}

#[test]
fn c018_staging_needs_the_size_of_the_model_on_disk_and_no_second_copy() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("peak", 6, 3, 16 * MIB);
    model.put(&server);
    server.fault(On::AnyGet, Fault::Slow { bytes_per_second: 8 * MIB }, Times::Always);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let peak = Arc::new(AtomicU64::new(0));
    let watcher = Watcher::start({
        let (root, peak) = (site.root().to_owned(), peak.clone());
        move || {
            peak.fetch_max(allocated(Path::new(&root)), Ordering::Relaxed);
            Ok(())
        }
    });
    let node = site.start()?;
    node.until_ready(&model.id())?;
    watcher.end()?;
    let peak = peak.load(Ordering::Relaxed);
    ensure!(peak <= model.bytes() + MIB, "{peak} bytes were on disk for {}", model.bytes());
    ensure!(peak >= model.bytes(), "the peak was seen");
    model.check_published(site.root())?;
    Ok(())
}
