//! Staging beside `cp` of the same bytes: durable rate, CPU seconds per gigabyte, peak memory; and what an idle agent takes.
//!
//! Rounds are interleaved and the figure is the median of their ratios, since machines drift. Raw lines are kept. Deliberately
//! absent: a verdict. Whoever reads the table judges.
#![expect(clippy::print_stdout, reason = "the table is the product")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context as _, Result, ensure};
use stokehold_tests::lab::agent::Agent;
use stokehold_tests::lab::bucket::{Bucket, Upload};
use stokehold_tests::lab::child::Child;
use stokehold_tests::lab::model::Model;
use stokehold_tests::lab::seaweed::Seaweed;
use stokehold_tests::lab::{http, port, until};

/// Bytes of all shards: enough that start-up does not count.
const BYTES: u64 = 2 << 30;
const SHARDS: u64 = 8;
const PART_BYTES: usize = 16 << 20;
const ROUNDS_DEFAULT: usize = 5;
/// How long the idle agent is watched.
const IDLE: Duration = Duration::from_secs(60);
/// How often a running process is asked for its peak.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What one run took.
#[derive(Debug, Clone, Copy)]
struct Run {
    wall: Duration,
    cpu: Duration,
    peak_rss: u64,
}

impl Run {
    fn rate(self) -> f64 {
        BYTES as f64 / 1e9 / self.wall.as_secs_f64()
    }

    fn cpu_a_gigabyte(self) -> f64 {
        self.cpu.as_secs_f64() / (BYTES as f64 / 1e9)
    }
}

/// One way of moving the bytes, and how it went round by round.
struct Way {
    name: &'static str,
    runs: Vec<Run>,
}

impl Way {
    const fn new(name: &'static str) -> Self {
        Self { name, runs: Vec::new() }
    }

    fn add(&mut self, round: usize, run: Run) {
        let Run { peak_rss, .. } = run;
        let (rate, cpu) = (run.rate(), run.cpu_a_gigabyte());
        println!("round {round} {:10} {rate:6.2} GB/s {cpu:6.2} CPU-s/GB {:5} MiB", self.name, peak_rss >> 20);
        self.runs.push(run);
    }

    fn summarise(&self) {
        let rate = median(self.runs.iter().map(|run| run.rate()));
        let cpu = median(self.runs.iter().map(|run| run.cpu_a_gigabyte()));
        let peak = self.runs.iter().map(|run| run.peak_rss >> 20).max().unwrap_or(0);
        println!("median  {:10} {rate:6.2} GB/s {cpu:6.2} CPU-s/GB {peak:5} MiB", self.name);
    }

    /// Median over the rounds of this way's time over the other's.
    fn times(&self, other: &Self) -> f64 {
        let pairs = self.runs.iter().zip(&other.runs);
        median(pairs.map(|(one, two)| one.wall.as_secs_f64() / two.wall.as_secs_f64()))
    }
}

fn main() -> Result<()> {
    let rounds = env::args().nth(1).map_or(Ok(ROUNDS_DEFAULT), |text| text.parse()).context("ROUNDS is a number")?;
    let folder = tempfile::tempdir().context("make a folder to work in")?;
    let model = Model { shards: SHARDS, total_bytes: BYTES, seed: 7 };
    let local = folder.path().join("model");
    model.write_to(&local)?;
    let server = Seaweed::start()?;
    tokio::runtime::Runtime::new()?.block_on(upload(&server, model))?;
    println!("2 GiB in {SHARDS} shards, {rounds} rounds, S3: SeaweedFS on loopback");
    let (mut s3, mut path, mut copy) = (Way::new("stage s3"), Way::new("stage path"), Way::new("cp + sync"));
    for round in 0..rounds {
        s3.add(round, stage(folder.path(), "s3://models/llama", Some(&server))?);
        copy.add(round, cp(&local, &folder.path().join("copy"))?);
        path.add(round, stage(folder.path(), &local.display().to_string(), None)?);
    }
    [&s3, &path, &copy].into_iter().for_each(Way::summarise);
    let (rss, share) = idle(folder.path())?;
    println!("idle    {} MiB, {:.2} % of a core over {} s", rss >> 20, share * 100.0, IDLE.as_secs());
    println!(
        "bench: staging takes {:.2} x the time of cp from S3 and {:.2} x from a folder (medians of {rounds} rounds)",
        s3.times(&copy),
        path.times(&copy)
    );
    Ok(())
}

async fn upload(server: &Seaweed, model: Model) -> Result<()> {
    let bucket = Bucket::create(&server.access(), "models").await?;
    for (name, bytes) in model.files() {
        let parts = Upload::Multipart { part_bytes: PART_BYTES };
        let upload = if bytes.len() > PART_BYTES { parts } else { Upload::Crc64Nvme };
        bucket.put(&format!("llama/{name}"), bytes, upload).await?;
    }
    Ok(())
}

fn stage(folder: &Path, source: &str, server: Option<&Seaweed>) -> Result<Run> {
    let target = folder.join("staged");
    let args = ["stage", source, &target.display().to_string(), "--output", "json"].map(str::to_owned);
    let mut agent = Agent::new(&folder.join("client"), args)?;
    if let Some(server) = server {
        agent = agent.envs(server.access().environment());
    }
    let begun = Instant::now();
    let running = agent.start()?;
    let run = watch(running.process(), begun);
    let run = run.with_context(|| format!("stage: {}{}", running.stdout(), running.stderr()))?;
    ensure!(target.is_dir(), "nothing was staged: {}{}", running.stdout(), running.stderr());
    clear(&target)?;
    clear(&folder.join(".staged.stokehold"))?;
    Ok(run)
}

/// `cp` and a sync of what it wrote: as durable as what is staged.
fn cp(from: &Path, to: &Path) -> Result<Run> {
    let mut command = Command::new("sh");
    command.args(["-c", "cp -r \"$0\" \"$1\" && sync -f \"$1\""]).arg(from).arg(to);
    let begun = Instant::now();
    let run = watch(&Child::start(command).context("start cp")?, begun)?;
    clear(to)?;
    Ok(run)
}

fn watch(child: &Child, begun: Instant) -> Result<Run> {
    let mut peak_rss = 0;
    loop {
        peak_rss = child.peak_rss().unwrap_or(0).max(peak_rss);
        if let Some(exit) = child.exit() {
            ensure!(exit.status.success(), "it ended with {}", exit.status);
            return Ok(Run { wall: begun.elapsed(), cpu: exit.cpu, peak_rss });
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Removes a tree whose files may be immutable and whose folders may be read-only.
fn clear(tree: &Path) -> Result<()> {
    let script = "chattr -R -i \"$0\" 2>/dev/null; chmod -R u+w \"$0\" && rm -rf \"$0\"";
    let done = Command::new("sh").args(["-c", script]).arg(tree).status()?;
    ensure!(done.success(), "remove {}", tree.display());
    Ok(())
}

/// Memory and share of a core of an agent that has nothing to do.
fn idle(folder: &Path) -> Result<(u64, f64)> {
    let home = folder.join("idle");
    let path = |name: &str| home.join(name).display().to_string();
    fs::create_dir_all(home.join("desired"))?;
    fs::create_dir_all(home.join("root"))?;
    let [port] = port::free();
    let address = format!("127.0.0.1:{port}");
    let (root, desired, state) = (path("root"), path("desired"), path("state"));
    let args = ["run", "--root", &root, "--desired", &desired, "--state", &state, "--listen", &address];
    let running = Agent::new(&home, args)?.env("STOKEHOLD_ALLOW_NON_LOCAL", "true").start()?;
    let address = address.parse().context("an address")?;
    let is_ready = || http::get(address, "/readyz").is_ok_and(|answer| answer.status == 200).then_some(());
    until("the agent is ready", Duration::from_secs(20), is_ready)?;
    let before = running.process().cpu()?;
    thread::sleep(IDLE);
    let used = running.process().cpu()?.saturating_sub(before);
    let rss = running.process().peak_rss()?;
    running.terminate(Duration::from_secs(5))?;
    Ok((rss, used.as_secs_f64() / IDLE.as_secs_f64()))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
