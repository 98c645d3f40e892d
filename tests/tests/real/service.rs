//! What scripts and people rely on around a running agent.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use stokehold_tests::lab::fault_s3::FaultS3;
use stokehold_tests::real::Site;

use crate::ground::{MIB, Model};

#[test]
fn a_second_agent_on_one_root_ends_and_names_the_first() -> Result<()> {
    let server = FaultS3::start()?;
    let site = Site::new(&server.access())?;
    let first = site.start()?;
    first.until("a first word", |_| true)?;
    let second = site.start()?;
    let exit = second.running().wait(Duration::from_secs(30))?;
    ensure!(exit.status.code() == Some(1), "it ended with {:?}", exit.status);
    let pid = first.running().process().pid().to_string();
    ensure!(site.log().contains(&pid), "it names {pid}: {}", site.log());
    Ok(())
}

#[test]
fn the_report_in_the_state_folder_has_the_parts_that_scripts_read() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("read", 111, 1, MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let node = site.start()?;
    let id = node.until_ready(&model.id())?.to_string();
    let text = std::fs::read_to_string(site.path("state/report.json")).context("read the report")?;
    let report: Value = serde_json::from_str(&text)?;
    for slug in ["weights.stokehold.dev/models.read", "warm.stokehold.dev/models.read"] {
        ensure!(report["labels"][slug] == id, "{slug}: {report:#}");
    }
    ensure!(report["annotations"]["stokehold.dev/state"].is_string());
    ensure!(report["conditions"].is_array() && report["holds"].is_array());
    let status = std::fs::read_to_string(node.folder(&model.id()).join("status.json")).context("read the status")?;
    let status: Value = serde_json::from_str(&status)?;
    ensure!(status["phase"] == "Ready" && status["snapshot"] == id, "{status:#}");
    Ok(())
}
