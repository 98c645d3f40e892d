//! What becomes of bytes that nobody asks for any more.

use anyhow::{Result, ensure};
use stokehold_tests::lab::{self, fault_s3::FaultS3};
use stokehold_tests::real::{LIMIT, Site, allocated, label};

use crate::ground::{MIB, MOUNTS, Model, can_start_alone};

#[test]
fn c057_what_nobody_asks_for_loses_its_label_first_and_then_all_its_bytes() -> Result<()> {
    if !can_start_alone() {
        return Ok(());
    }
    let _mounts = MOUNTS.blocking_read();
    let server = FaultS3::start()?;
    let model = Model::new("gone", 91, 2, 4 * MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    let wanted = model.wanted().spec("retainAfterDelete", "0s");
    site.want(&wanted)?;
    let node = site.start_alone()?;
    let id = node.until_ready(&model.id())?;
    let snapshot = node.folder(&model.id()).join(format!("snapshots/{id}"));
    ensure!(allocated(site.root()) >= model.bytes());
    site.unwant(&wanted)?;
    lab::until("the folder gone", LIMIT, || {
        // Looked at in this order: bytes that are gone with a label still said afterwards are a lie.
        let is_gone = !snapshot.exists();
        let is_labelled = node.report().is_some_and(|report| report.labels.contains_key(&label(&model.id())));
        assert!(!(is_gone && is_labelled), "the label outlived the bytes");
        let is_over = !node.folder(&model.id()).exists() && allocated(site.root()) < MIB;
        is_over.then_some(())
    })
    .map_err(|error| error.context(site.log()))?;
    Ok(())
}

#[test]
fn c060_what_nobody_asks_for_is_kept_without_a_label_until_its_retention_ends() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("retained", 92, 1, 2 * MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    let wanted = model.wanted().spec("retainAfterDelete", "1h");
    site.want(&wanted)?;
    let node = site.start()?;
    node.until_ready(&model.id())?;
    let sent = server.log().object_bytes();
    site.unwant(&wanted)?;
    let report = {
        node.until_held(&model.id(), "Retained")?;
        node.report().expect("just seen")
    };
    ensure!(!report.labels.contains_key(&label(&model.id())), "no label");
    model.check_published(site.root())?;
    // Asked for again, it is ready without a byte.
    site.want(&wanted)?;
    node.until_ready(&model.id())?;
    ensure!(server.log().object_bytes() == sent, "nothing was fetched again");
    Ok(())
}
