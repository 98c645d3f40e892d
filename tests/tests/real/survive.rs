//! P9: the agent is not on the read path. Pods read on while it is killed, gone, started again and stopped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use stokehold_tests::lab::fault_s3::FaultS3;
use stokehold_tests::real::{LIMIT, Site, folder};

use crate::ground::{MIB, Model, shard};

const SHARD_BYTES: u64 = 6 * MIB;

/// The bytes of a reader that has the file open since before, from where it stands to the end.
fn rest(file: &mut File) -> Result<Vec<u8>> {
    let mut read = Vec::new();
    file.read_to_end(&mut read).context("read on")?;
    Ok(read)
}

/// What a process that knows nothing of us reads through `current`.
fn read_by_another_process(current: &Path) -> Result<Vec<u8>> {
    let mut cat = Command::new("cat");
    let output = cat.arg(current.join(shard(1))).stderr(Stdio::inherit()).output().context("start cat")?;
    ensure!(output.status.success(), "cat ended with {}", output.status);
    Ok(output.stdout)
}

#[test]
fn p09_readers_keep_reading_while_the_agent_is_killed() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("lasting", 91, 2, SHARD_BYTES);
    model.put(&server);
    let bodies: BTreeMap<_, _> = model.files.iter().map(|(path, body)| (path.as_str(), body)).collect();
    let expected = bodies[shard(1).as_str()].read(0, SHARD_BYTES);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let current = folder(site.root(), &model.id()).join("current");

    let node = site.start()?;
    let id = node.until_ready(&model.id())?;
    let mut early = File::open(current.join(shard(1))).context("open while the agent runs")?;
    let mut begun = vec![0; SHARD_BYTES as usize / 2];
    early.read_exact(&mut begun).context("read one half")?;

    node.running().kill()?;
    begun.extend(rest(&mut early)?);
    ensure!(begun == expected, "a file opened before the kill gives the same bytes after it");
    ensure!(read_by_another_process(&current)? == expected, "a file opened after the kill gives the same bytes");
    ensure!(model.check_published(site.root())? == id, "with no agent the whole model is there");

    let mut between = File::open(current.join(shard(1))).context("open while there is no agent")?;
    let node = site.start()?;
    ensure!(node.until_ready(&model.id())? == id, "the same snapshot is served");
    let exit = node.running().terminate(LIMIT)?;
    ensure!(exit.status.code() == Some(0), "it stops in order: {exit:?}");
    ensure!(rest(&mut between)? == expected, "a start and a stop change nothing for whoever reads");
    ensure!(read_by_another_process(&current)? == expected, "nor for whoever comes later");
    ensure!(model.check_published(site.root())? == id, "nor for any file");
    Ok(())
}
