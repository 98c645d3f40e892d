//! P10: one bad thing stops only itself.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use stokehold_core::hold::{Reason, Subject};
use stokehold_tests::lab::fault_s3::{Fault, FaultS3, On, Times};
use stokehold_tests::real::{Site, Wanted};

use crate::ground::{BUCKET, MIB, Model};

/// A model on its own takes about a second here. Six neighbours that fall silent are let in two at a time, each pair found silent
/// within a few seconds: some ten seconds, where one that kept its place would cost minutes.
const UNDELAYED: Duration = Duration::from_secs(25);
/// An attempt without a byte is cancelled after 20 s and its connection is free; before that, places among the stagings are.
const AFTER_A_STALL: Duration = Duration::from_secs(45);

#[test]
fn p10_a_broken_document_is_told_with_its_place_and_the_others_go_on() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("good", 61, 1, MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    site.write("a-broken", "apiVersion: stokehold.dev/v1alpha1\nkind: InferenceCache\nmetadata: { name: \"x\n")?;
    site.write(
        "b-wrong",
        "apiVersion: stokehold.dev/v1alpha1\nkind: InferenceCache\nmetadata: { name: wrong }\nspec:\n  limitPerNode: many\n",
    )?;
    site.want(&model.wanted())?;
    let node = site.start()?;
    node.until_ready(&model.id())?;
    model.check_published(site.root())?;
    let report = node.report().context("just seen")?;
    for file in ["a-broken.yaml", "b-wrong.yaml"] {
        let places = report.holds.iter().filter_map(|hold| match (&hold.subject, &hold.reason) {
            (Subject::Document(place), Reason::Rejected { why }) => Some((place.clone(), why.clone())),
            (_, _) => None,
        });
        let (place, why) = places.into_iter().find(|(place, _)| place.starts_with(file)).context(file)?;
        let numbers: Vec<&str> = place[file.len()..].split(':').skip(1).collect();
        let is_place = numbers.len() == 2 && numbers.iter().all(|number| number.parse::<u32>().is_ok());
        ensure!(is_place, "{place} is file, line and column: {why}");
    }
    Ok(())
}

/// Many caches of an origin that misbehaves, and one of an origin that does not.
fn beside(bad_name: &str, bad: impl Fn(Wanted) -> Wanted, held: Option<&str>, limit: Duration) -> Result<()> {
    const BAD: usize = 6;
    let server = FaultS3::start()?;
    // Its name sorts behind the others.
    let model = Model::new("zz-good", 62, 1, MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    let names: Vec<Wanted> = (1..=BAD).map(|n| bad(Wanted::s3(&format!("{bad_name}-{n}"), BUCKET, "bad/"))).collect();
    for wanted in &names {
        site.want(wanted)?;
    }
    site.want(&model.wanted())?;
    let begun = Instant::now();
    let node = site.start()?;
    node.until_ready(&model.id())?;
    let took = begun.elapsed();
    eprintln!("ready beside {BAD} of {bad_name} after {took:?}");
    ensure!(took < limit, "it was ready after {took:?}");
    model.check_published(site.root())?;
    for wanted in names.iter().filter(|_| held.is_some()) {
        node.until_held(&wanted.id(), held.unwrap_or_default())?;
    }
    Ok(())
}

fn at(endpoint: &str) -> impl Fn(Wanted) -> Wanted {
    let source = json!({ "s3": { "bucket": BUCKET, "prefix": "bad/", "endpoint": endpoint } });
    move |wanted| wanted.weights("source", source.clone())
}

#[test]
fn p10_an_origin_that_cannot_be_reached_does_not_delay_another() -> Result<()> {
    // Nothing listens on port 1.
    beside("unreachable", at("http://127.0.0.1:1"), Some("OriginUnreachable"), UNDELAYED)
}

#[test]
fn p10_an_origin_that_accepts_and_never_answers_does_not_delay_another() -> Result<()> {
    let mute = FaultS3::start()?;
    mute.fault(On::List, Fault::StallAfter { bytes: 0 }, Times::Always);
    Model::new("bad", 63, 1, MIB).put(&mute);
    beside("mute", at(&mute.endpoint()), None, UNDELAYED)
}

#[test]
fn p10_an_origin_that_stalls_in_the_middle_does_not_delay_another() -> Result<()> {
    let stalling = FaultS3::start()?;
    stalling.fault(On::AnyGet, Fault::StallAfter { bytes: 1_000 }, Times::Always);
    Model::new("bad", 64, 1, 9 * MIB).put(&stalling);
    beside("stalling", at(&stalling.endpoint()), None, AFTER_A_STALL)
}
