//! P8: folders that others made where the agent makes its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use stokehold_core::hold::Reason;
use stokehold_tests::lab::fault_s3::FaultS3;
use stokehold_tests::real::{Site, files, folder};

use crate::ground::{MIB, Model};

#[test]
fn p08_what_a_kubelet_made_is_adopted_and_what_a_person_made_is_held_untouched() -> Result<()> {
    let server = FaultS3::start()?;
    let names = ["bare", "hollow", "full", "elsewhere"];
    let models: Vec<Model> = (51..).zip(names).map(|(seed, name)| Model::new(name, seed, 1, MIB)).collect();
    let site = Site::new(&server.access())?;
    // The tree is made ours first; a kubelet's folders come later, when pods do.
    let node = site.start()?;
    node.until("a first word", |_| true)?;
    node.running().terminate(Duration::from_secs(10))?;
    let outside = site.path("outside");
    fs::create_dir(&outside).context("make a folder outside")?;
    fs::write(outside.join("precious.txt"), "precious").context("write outside")?;
    let [bare, hollow, full, elsewhere] =
        ["bare", "hollow", "full", "elsewhere"].map(|name| folder(site.root(), &stokehold_tests::real::id(name)));
    for folder in [&bare, &hollow, &full, &elsewhere] {
        fs::create_dir_all(folder).context("make a folder as a kubelet does")?;
    }
    fs::create_dir(hollow.join("current")).context("make an empty current")?;
    fs::create_dir(full.join("current")).context("make a current with content")?;
    fs::write(full.join("current/precious.txt"), "precious").context("write into it")?;
    symlink(&outside, elsewhere.join("current")).context("make a current that leads elsewhere")?;
    for model in &models {
        model.put(&server);
        site.want(&model.wanted())?;
    }
    let node = site.start()?;
    for model in &models[..2] {
        node.until_ready(&model.id())?;
        model.check_published(site.root())?;
    }
    for model in &models[2..] {
        let reason = node.until_held(&model.id(), "CurrentIsForeign")?;
        ensure!(matches!(&reason, Reason::CurrentIsForeign { found } if !found.is_empty()), "{reason}");
    }
    ensure!(files(&full)?.into_iter().eq([("current/precious.txt".to_owned(), b"precious".to_vec())]));
    ensure!(fs::read_link(elsewhere.join("current"))? == outside);
    ensure!(fs::read(outside.join("precious.txt"))? == b"precious");
    // Moved away by a person, as the hold says, it goes on.
    fs::rename(full.join("current"), site.path("moved")).context("move it away")?;
    site.want(&models[2].wanted().spec("priority", 1))?;
    node.until_ready(&models[2].id())?;
    models[2].check_published(site.root())?;
    Ok(())
}

#[test]
fn p08_a_skeleton_from_before_the_first_start_is_adopted() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("early", 55, 1, MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    fs::create_dir_all(folder(site.root(), &model.id()).join("current")).context("make it as a kubelet does")?;
    site.want(&model.wanted())?;
    let node = site.start()?;
    node.until_ready(&model.id())?;
    model.check_published(site.root())?;
    Ok(())
}

#[test]
fn p08_a_root_with_somebody_elses_files_is_refused_and_left_as_it_was() -> Result<()> {
    let server = FaultS3::start()?;
    let site = Site::new(&server.access())?;
    fs::write(site.root().join("database.db"), "precious").context("write into the root")?;
    let node = site.start()?;
    let exit = node.running().wait(Duration::from_secs(30))?;
    ensure!(exit.status.code() == Some(1), "it ended with {:?}", exit.status);
    ensure!(site.log().contains("database.db"), "it names what it found: {}", site.log());
    ensure!(files(site.root())?.into_iter().eq([("database.db".to_owned(), b"precious".to_vec())]));
    Ok(())
}
