//! P2: an origin that changes, before, while and after its model is staged.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use stokehold_core::hold::Reason;
use stokehold_tests::lab::bucket::{Bucket, Upload};
use stokehold_tests::lab::child::Child;
use stokehold_tests::lab::fault_s3::{Body, Checksums, Fault, FaultS3, Times};
use stokehold_tests::lab::seaweed::Seaweed;
use stokehold_tests::lab::{self, seed};
use stokehold_tests::real::{LIMIT, Node, Site, Wanted, held, look_through_current};

use crate::ground::{BUCKET, MIB, MOUNTS, Model, can_start_alone, shard};

/// A model of which the first shard gets other bytes while it is read, and what it is then.
fn overwritten_on_the_way(server: &FaultS3, name: &str) -> (Model, Model) {
    let old = Model::new(name, 21, 2, 24 * MIB);
    let mut new = old.clone();
    new.files[0].1 = Body::Seeded { seed: 99, len: 24 * MIB };
    old.put(server);
    let with = new.files[0].1.clone();
    // The third part is asked for when the first two are already there.
    server.fault(old.key(&shard(1)).as_str(), Fault::Overwritten { with }, Times::Nth(3));
    (old, new)
}

/// Where a hold is told beside the report: the plan and the status of the local API.
fn ensure_told(node: &Node, words: &[&str]) -> Result<()> {
    for path in ["/v1/plan", "/v1/status"] {
        let said = node.ask(path)?.to_string();
        for word in words {
            ensure!(said.contains(word), "{path} does not tell {word}: {said}");
        }
    }
    Ok(())
}

#[test]
fn p02_an_object_overwritten_between_two_ranges_is_staged_anew_and_never_mixed() -> Result<()> {
    let server = FaultS3::start()?;
    let (_old, new) = overwritten_on_the_way(&server, "automatic");
    let site = Site::new(&server.access())?;
    site.want(&new.wanted().weights("update", "Automatic"))?;
    let node = site.start()?;
    node.until_ready(&new.id())?;
    new.check_published(site.root())?;
    ensure!(server.log().faults("Overwritten") == 1, "it was overwritten on the way");
    // The shard that did not change is another version's file now, and is fetched for it once more at most.
    let other = server.log().body_bytes(&new.key(&shard(2)));
    ensure!(other <= 2 * 24 * MIB, "{other} bytes of the other shard were sent");
    Ok(())
}

#[test]
fn p02_an_object_overwritten_on_the_way_is_held_with_both_ids_until_a_person_decides() -> Result<()> {
    let server = FaultS3::start()?;
    let (_old, new) = overwritten_on_the_way(&server, "manual");
    let site = Site::new(&server.access())?;
    site.want(&new.wanted())?;
    let node = site.start()?;
    let reason = node.until_held(&new.id(), "OriginChanged")?;
    let Reason::OriginChanged { target, offered } = reason else { anyhow::bail!("it is {reason}") };
    ensure!(target != offered);
    ensure_told(&node, &["OriginChanged", &target.to_string(), &offered.to_string()])?;
    ensure!(look_through_current(&node.folder(&new.id()))?.is_none(), "nothing is published");
    site.want(&new.wanted().weights("revision", offered.to_string()))?;
    ensure!(node.until_ready(&new.id())? == offered);
    ensure!(new.check_published(site.root())? == offered);
    Ok(())
}

/// A bucket of SeaweedFS with one small model in it.
async fn bucket(seaweed: &Seaweed) -> Result<Bucket> {
    let bucket = Bucket::create(&seaweed.access(), BUCKET).await?;
    put_version(&bucket, 1).await?;
    bucket.put("m/config.json", "{}", Upload::Plain).await?;
    Ok(bucket)
}

async fn put_version(bucket: &Bucket, version: u64) -> Result<()> {
    let etag = bucket.put("m/model.safetensors", seed::bytes(version, 9 << 20), Upload::Crc64Nvme).await;
    etag.map(drop)
}

fn current_is(node: &Node, wanted: &Wanted, version: u64) -> Result<()> {
    let path = node.folder(&wanted.id()).join("current/model.safetensors");
    let found = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    ensure!(found == seed::bytes(version, 9 << 20), "current is version {version}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn p02_another_version_at_the_origin_is_offered_and_taken_when_a_person_says_so() -> Result<()> {
    let Some(seaweed) = Seaweed::start_or_skip() else { return Ok(()) };
    let bucket = bucket(&seaweed).await?;
    let site = Site::new(&seaweed.access())?;
    let wanted = Wanted::s3("manual", BUCKET, "m/").weights("checkInterval", "10s");
    site.want(&wanted)?;
    let node = site.start()?;
    let first = node.until_ready(&wanted.id())?;
    put_version(&bucket, 2).await?;
    let reason = node.until_held(&wanted.id(), "UpdateAvailable")?;
    let Reason::UpdateAvailable { current, offered } = reason else { anyhow::bail!("it is {reason}") };
    ensure!(current == first && offered != first);
    ensure_told(&node, &["UpdateAvailable", &current.to_string(), &offered.to_string()])?;
    ensure!(node.until_ready(&wanted.id())? == first, "it stays ready with what it has");
    current_is(&node, &wanted, 1)?;
    site.want(&wanted.clone().weights("revision", offered.to_string()))?;
    node.until("the offered snapshot is served", |report| report.caches[&wanted.id()].served == Some(offered))?;
    current_is(&node, &wanted, 2)?;
    let report =
        node.until("no update is offered", |report| held(report, &wanted.id(), "UpdateAvailable").is_none())?;
    ensure!(report.labels[&stokehold_tests::real::label(&wanted.id())] == offered.to_string());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn p05_an_update_takes_the_old_version_away_only_when_nobody_has_it_open() -> Result<()> {
    if !can_start_alone() {
        return Ok(());
    }
    let _mounts = MOUNTS.read().await;
    let Some(seaweed) = Seaweed::start_or_skip() else { return Ok(()) };
    let bucket = bucket(&seaweed).await?;
    let site = Site::new(&seaweed.access())?;
    let wanted = Wanted::s3("automatic", BUCKET, "m/").weights("checkInterval", "10s").weights("update", "Automatic");
    site.want(&wanted)?;
    let node = site.start_alone()?;
    let first = node.until_ready(&wanted.id())?;
    let old = node.folder(&wanted.id()).join(format!("snapshots/{first}"));
    // One that the agent sees among its processes, and one that only a write lease shows.
    let seen = holder(&node, &old.join("model.safetensors"))?;
    let hidden = std::fs::File::open(old.join("config.json")).context("open a published file")?;
    put_version(&bucket, 2).await?;
    node.until("the new snapshot is served", |report| {
        report.caches[&wanted.id()].served.is_some_and(|served| served != first)
    })?;
    current_is(&node, &wanted, 2)?;
    let reason = node.until_held(&wanted.id(), "InUse")?;
    ensure!(matches!(&reason, Reason::InUse { users: 1.., .. }), "{reason}");
    ensure!(old.join("model.safetensors").exists(), "what is open stays in its place");
    drop(seen);
    // Nothing tells the agent that a file was closed; it looks again when something else changes, or after a minute.
    site.want(&wanted.clone().spec("priority", 1))?;
    let evicted = || (!old.exists()).then_some(());
    lab::until("the old snapshot leaves its place", LIMIT, evicted).with_context(|| site.log())?;
    // Renamed aside with the file still open by a process that cannot be seen: its bytes stay.
    lab::until("the lease refuses", LIMIT, || {
        let report = node.report()?;
        report.holds.iter().find(|hold| hold.reason.name() == "InUse").map(drop)
    })?;
    ensure!(hidden.metadata()?.len() == 2, "an open file is whole");
    ensure!(std::os::unix::fs::MetadataExt::nlink(&hidden.metadata()?) == 1, "an open file is not unlinked");
    drop(hidden);
    let condemned = site.root().join("condemned");
    let gone = || std::fs::read_dir(&condemned).ok()?.next().is_none().then_some(());
    lab::until("nothing is left of the old snapshot", LIMIT, gone).with_context(|| site.log())?;
    current_is(&node, &wanted, 2)
}

/// A process beside the agent, in its PID namespace, that has a file open.
fn holder(node: &Node, path: &std::path::Path) -> Result<Child> {
    let agent = lab::until("the agent in its namespace", LIMIT, || {
        let pid = node.running().process().pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    })?;
    let mut command = Command::new("nsenter");
    // The file is the standard input of a process that does nothing, and that ends with the one that it is started by.
    command.args(["--pid", "--target", &agent, "setpriv", "--pdeathsig", "KILL", "sleep", "600"]);
    command.stdin(std::fs::File::open(path).with_context(|| format!("open {}", path.display()))?);
    Child::start(command).context("start a process that holds a file open")
}

#[test]
fn p02_bytes_of_a_snapshot_never_depend_on_when_a_neighbouring_object_appears() -> Result<()> {
    // A file that is added on the way belongs to the next version, not to the one being staged.
    let server = FaultS3::start()?;
    let model = Model::new("grows", 23, 2, 8 * MIB);
    model.put(&server);
    server.fault(model.key(&shard(1)).as_str(), Fault::StallAfter { bytes: MIB }, Times::Once);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let node = site.start()?;
    lab::until("a part on its way", LIMIT, || (server.log().stalled() == 1).then_some(()))?;
    server.put(BUCKET, &model.key("late.json"), Body::bytes("{}"), Checksums::Crc64Nvme);
    server.release();
    node.until_ready(&model.id())?;
    model.check_published(site.root())?;
    ensure!(node.ask("/v1/plan")?["holds"] == json!([]), "nothing is held");
    Ok(())
}
