//! `make demo`: a made model goes from a real S3 server to a verified snapshot on this machine's disk, with a kill on the way.
//!
//! In: nothing; SeaweedFS and the agent are started here. Out: what a person would see, and one line with the figure. All is kept
//! in `target/demo`, so that a second run finds the snapshot and fetches nothing. Deliberately absent: root, a cluster, any
//! change of the machine.
#![expect(clippy::print_stdout, reason = "it is what a person looks at")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use stokehold_tests::{
    lab::{
        self,
        agent::program,
        bucket::{Bucket, Upload},
        child::Child,
        model::Model,
        seaweed::Seaweed,
    },
    real::{LIMIT, Node, Site, Wanted, folder, held, is_ready, label, look_through_current, paths},
};

/// The model: large enough to be killed on the way, small enough for any desk.
const MODEL: Model = Model { shards: 3, total_bytes: 300 << 20, seed: 20_270_115 };
const BUCKET: &str = "models";
const PREFIX: &str = "llama-tiny/";
/// Bytes that are there when the agent is killed.
const KILL_AT: u64 = 120 << 20;
/// Counters of the agent's metrics.
const FETCHED: &str = "stokehold_fetched_bytes_total{origin=\"s3\"}";
const REUSED: &str = "stokehold_reused_bytes_total";
/// What is shown of the metrics.
const SHOWN: &[&str] =
    &["stokehold_ready{", "stokehold_used_bytes{", "stokehold_fetched_bytes_total{", "stokehold_reused_bytes_total "];
/// Longest time for the agent to end when it is told to.
const STOP_LIMIT: Duration = Duration::from_secs(5);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    runtime.block_on(demo())
}

async fn demo() -> Result<()> {
    let kept = lab::workspace().join("target/demo");
    say("origin", "SeaweedFS, a real S3 server, on loopback");
    let seaweed = Seaweed::start().context(
        "the demo needs an S3 server: SeaweedFS, which comes as a Python wheel. Are python3 and pip here, and can pip reach its index?",
    )?;
    let bytes = upload(&seaweed).await?;
    let site = Site::kept(&seaweed.access(), &kept)?;
    site.configure(&json!({}))?;
    let llama = Wanted::s3("llama", BUCKET, PREFIX);
    // The same model's small files, and an image, which is not for this release to bring: it says so.
    let engine = Wanted::images("engine").weights("source", json!({ "s3": { "bucket": BUCKET, "prefix": PREFIX } }));
    let engine = engine.weights("include", json!(["*.json"]));
    site.want(&llama)?;
    site.want(&engine)?;
    say(
        "asked for",
        &format!("{}/desired/: llama (weights), engine (small files of it, and an image)", kept.display()),
    );

    let was_there = look_through_current(&folder(site.root(), &llama.id())).is_ok_and(|found| found.is_some());
    // Built before the clock runs.
    program()?;
    let begun = Instant::now();
    let mut node = site.start()?;
    if !was_there && kill_on_the_way(&node, &llama)? {
        node = site.start()?;
    }
    let shown = watch(&node)?;
    let report = node.until("llama ready and engine's weights here", |report| {
        is_ready(report, &llama.id()) && report.labels.contains_key(&label(&engine.id()))
    })?;
    let took = begun.elapsed();
    shown.wait(LIMIT).context("stokehold status --watch goes on although all is settled")?;
    ensure!(held(&report, &engine.id(), "NotInThisRelease").is_some(), "an image that is not brought is told");

    show(&site, &node, &llama)?;
    println!("\nreadiness labels, from {}:", site.path("state/report.json").display());
    for (label, value) in &report.labels {
        println!("  {label}={value}");
    }
    let (fetched, reused) = (count(&node, FETCHED), count(&node, REUSED));
    node.running().terminate(STOP_LIMIT).context("stop the agent")?;
    println!("\nKept in {}; `make demo` again fetches nothing. Remove the folder to begin anew.", kept.display());
    println!("{}", figure(bytes, took, was_there, fetched, reused)?);
    Ok(())
}

fn say(what: &str, text: &str) {
    println!("{what:>10}  {text}");
}

/// Puts the model into the bucket; gives its bytes. The same bytes have the same ETags, so the snapshot of an earlier run is this one's.
async fn upload(seaweed: &Seaweed) -> Result<u64> {
    let bucket = Bucket::create(&seaweed.access(), BUCKET).await?;
    let (mut files, mut bytes) = (0, 0);
    for (name, body) in MODEL.files() {
        (files, bytes) = (files + 1, bytes + body.len() as u64);
        bucket.put(&format!("{PREFIX}{name}"), body, Upload::Crc64Nvme).await?;
    }
    say("model", &format!("s3://{BUCKET}/{PREFIX}, {files} files, {}, each with its CRC64NVME", mib(bytes)));
    Ok(bytes)
}

/// Ends the agent as hard as a machine can, when a part of the model is there. True unless it was done before that, as after a
/// demo that was broken off late.
fn kill_on_the_way(node: &Node, wanted: &Wanted) -> Result<bool> {
    let bytes = lab::until("a part of the model", LIMIT, || {
        let fetched = count(node, FETCHED);
        let is_done = node.report().is_some_and(|report| is_ready(&report, &wanted.id()));
        (fetched >= KILL_AT || is_done).then_some(fetched)
    })?;
    if bytes < KILL_AT {
        return Ok(false);
    }
    node.running().kill()?;
    say("kill -9", &format!("the agent is gone after {} of body; nothing is published; started again", mib(bytes)));
    Ok(true)
}

/// Shows progress as `stokehold status --watch` does, until all is ready or held, and the table after it.
fn watch(node: &Node) -> Result<Child> {
    println!();
    lab::until("an answer of the agent", LIMIT, || node.ask("/v1/status").ok())?;
    let mut command = Command::new(program()?);
    command.args(["status", "--watch", "--socket"]).arg(node.socket());
    Child::start(command).context("run stokehold status --watch")
}

/// The tree as a reader finds it, and some metrics.
fn show(site: &Site, node: &Node, wanted: &Wanted) -> Result<()> {
    let folder = folder(site.root(), &wanted.id());
    let target = fs::read_link(folder.join("current")).context("read current")?;
    println!("\npublished: {}", folder.display());
    println!("  current -> {}", target.display());
    let snapshot = folder.join(&target);
    for path in paths(&snapshot)? {
        println!("  {}", line(&snapshot, &path)?);
    }
    println!("\nmetrics:");
    let metrics = node.metrics()?;
    for shown in metrics.lines().filter(|line| SHOWN.iter().any(|name| line.starts_with(name))) {
        println!("  {shown}");
    }
    Ok(())
}

fn line(snapshot: &Path, path: &str) -> Result<String> {
    let found = fs::metadata(snapshot.join(path)).with_context(|| format!("look at {path}"))?;
    Ok(format!("{:04o} {:>11}  {path}", found.permissions().mode() & 0o7777, found.len()))
}

/// A counter that has counted nothing yet is not shown, and is nothing.
fn count(node: &Node, series: &str) -> u64 {
    node.metric(series).unwrap_or_default() as u64
}

fn figure(bytes: u64, took: Duration, was_there: bool, fetched: u64, reused: u64) -> Result<String> {
    let figure = format!("demo: {} ready in {:.1} s", mib(bytes), took.as_secs_f64());
    if was_there {
        ensure!(fetched == 0, "the snapshot was there, and {fetched} bytes were fetched");
        return Ok(format!("{figure}, 0 body bytes fetched (all reused)"));
    }
    ensure!(reused > 0, "a kill costs what was in flight, not what was written");
    Ok(format!("{figure} with a kill -9 on the way: {reused} bytes kept, {fetched} body bytes fetched after it"))
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
