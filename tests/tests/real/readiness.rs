//! P6: readiness is never a lie: not when the origin is gone, not when bytes are.

use std::fs::{self, File, FileTimes};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result, ensure};
use stokehold_tests::lab::{self, fault_s3::FaultS3};
use stokehold_tests::real::{LIMIT, Site, is_ready, label};

use crate::ground::{MIB, MOUNTS, Model, can_start_alone, shard};

#[test]
fn p06_a_restart_without_the_origin_keeps_label_and_readiness() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("kept", 71, 1, 2 * MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let node = site.start()?;
    let id = node.until_ready(&model.id())?;
    node.running().kill()?;
    drop(server);
    let node = site.start()?;
    // Its very first word: labels do not flap.
    let first = node.until("a first word", |_| true)?;
    ensure!(first.labels.get(&label(&model.id())) == Some(&id.to_string()), "{first:#?}");
    ensure!(is_ready(&first, &model.id()), "{first:#?}");
    node.until_held(&model.id(), "OriginUnreachable")?;
    let report = node.report().context("just seen")?;
    ensure!(report.labels.get(&label(&model.id())) == Some(&id.to_string()), "{report:#?}");
    model.check_published(site.root())?;
    Ok(())
}

#[test]
fn p06_a_snapshot_removed_behind_the_agent_loses_its_label_and_is_staged_again() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("wiped", 72, 2, 2 * MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let node = site.start()?;
    let id = node.until_ready(&model.id())?;
    let sent = server.log().object_bytes();
    fs::remove_dir_all(node.folder(&model.id()).join(format!("snapshots/{id}"))).context("remove it")?;
    // Something changes, so that there is a pass.
    site.want(&model.wanted().spec("priority", 1))?;
    lab::until("bytes asked for again", LIMIT, || (server.log().object_bytes() > sent).then_some(()))?;
    let report = node.report().context("it has reported")?;
    let is_back = server.log().object_bytes() >= sent + model.bytes();
    ensure!(is_back || !report.labels.contains_key(&label(&model.id())), "no label while it is staged again");
    node.until_ready(&model.id())?;
    ensure!(node.metric("stokehold_passes_total")? > 0.0);
    model.check_published(site.root())?;
    ensure!(server.log().object_bytes() == sent + model.bytes(), "once");
    Ok(())
}

#[test]
fn c002_wrong_bytes_in_a_published_file_withdraw_its_label_and_it_is_staged_again() -> Result<()> {
    if !can_start_alone() {
        return Ok(());
    }
    let _mounts = MOUNTS.blocking_read();
    let server = FaultS3::start()?;
    let model = Model::new("rotten", 73, 2, 2 * MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let node = site.start_alone()?;
    let id = node.until_ready(&model.id())?;
    let path = node.folder(&model.id()).join(format!("snapshots/{id}/{}", shard(1)));
    overwrite_quietly(&path)?;
    site.want(&model.wanted().spec("priority", 1))?;
    node.until("the label gone", |report| !report.labels.contains_key(&label(&model.id())))?;
    node.until_held(&model.id(), "Corrupt")?;
    lab::until("it is counted", LIMIT, || (node.metric("stokehold_corrupt_total").ok()? == 1.0).then_some(()))?;
    node.until_ready(&model.id())?;
    model.check_published(site.root())?;
    Ok(())
}

/// 4 KiB of other bytes in a file that has its length, mode and times as before.
fn overwrite_quietly(path: &std::path::Path) -> Result<()> {
    let before = fs::metadata(path).context("look at the file")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).context("open it up")?;
    let mut file = File::options().write(true).open(path).context("open it")?;
    file.seek(SeekFrom::Start(MIB)).context("go to its middle")?;
    file.write_all(&[0; 4096]).context("overwrite it")?;
    file.set_times(FileTimes::new().set_modified(before.modified()?).set_accessed(before.accessed()?))
        .context("set its times back")?;
    fs::set_permissions(path, before.permissions()).context("close it")
}
