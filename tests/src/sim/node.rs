//! The world as the real loop is given it: a simulated disk, origins, fetcher, clock, and labels that others read.
//!
//! P6 is checked here and on the disk: what a label names is there whenever the label is. Deliberately absent: what happens when,
//! which is the [`story`](super::story)'s.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stokehold::world::{RootFacts, Unreported, World};
use stokehold_core::observed::{QuotaMechanism, Storage};
use stokehold_core::report::{Report, WEIGHTS_LABEL_PREFIX};
use stokehold_core::seen::Seen;
use stokehold_core::time::Now;

use super::disk::SimDisk;
use super::fetch::SimFetch;
use super::origin::SimOrigin;
use super::rng::Rng;
use super::scene::Scene;

/// The node. Clones share it.
#[derive(Debug, Clone)]
pub struct SimNode(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    scene: Scene,
    disk: SimDisk,
    origin: SimOrigin,
    fetch: SimFetch,
    headroom_percent: u64,
    told: Mutex<Told>,
}

#[derive(Debug)]
struct Told {
    rng: Rng,
    report: Report,
    /// How often a report cannot be brought out, in a million.
    fails_ppm: u32,
}

impl SimNode {
    /// Of these parts.
    #[must_use]
    pub fn new(scene: &Scene, disk: SimDisk, origin: SimOrigin, headroom_percent: u64) -> Self {
        let fetch = SimFetch::new(disk.clone(), origin.clone());
        let told = Mutex::new(Told { rng: scene.rng("agent"), report: Report::default(), fails_ppm: 0 });
        Self(Arc::new(Parts { scene: scene.clone(), disk, origin, fetch, headroom_percent, told }))
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a report cannot be brought out, in a million.
    pub fn set_report_faults(&self, fails_ppm: u32) {
        self.told().fails_ppm = fails_ppm;
    }

    /// What others read now.
    #[must_use]
    pub fn report(&self) -> Report {
        self.told().report.clone()
    }
}

/// The snapshots that labels name, by folder of their cache.
fn labelled(report: &Report) -> BTreeMap<String, String> {
    let weights = report.labels.iter().filter_map(|(key, id)| Some((key.strip_prefix(WEIGHTS_LABEL_PREFIX)?, id)));
    let folder = |slug: &str| format!("deployments/{}", slug.replacen('.', "/", 1));
    weights.map(|(slug, id)| (folder(slug), id.clone())).collect()
}

impl World for SimNode {
    type Disk = SimDisk;
    type Origin = SimOrigin;
    type Fetch = SimFetch;

    fn disk(&self) -> &SimDisk {
        &self.0.disk
    }

    fn origin(&self) -> &SimOrigin {
        &self.0.origin
    }

    fn fetch(&self) -> &SimFetch {
        &self.0.fetch
    }

    fn now(&self) -> Now {
        self.0.scene.clock.now()
    }

    fn random(&self) -> u64 {
        self.told().rng.draw()
    }

    fn root(&self) -> Seen<RootFacts> {
        Seen::Present(RootFacts {
            path: "/sim".to_owned(),
            headroom_percent: self.0.headroom_percent,
            headroom_inodes_percent: self.0.headroom_percent,
            storage: Seen::Present(Storage::Nvme),
            quota: QuotaMechanism::Accounting,
        })
    }

    async fn say(&self, report: &Report) -> Result<(), Unreported> {
        let (before, after, fails) = {
            let told = &mut *self.told();
            let fails_ppm = told.fails_ppm;
            (told.rng.between(0, 3), told.rng.between(0, 3), told.rng.chance(fails_ppm))
        };
        tokio::time::sleep(Duration::from_millis(before)).await;
        self.0.disk.answers().await;
        if fails {
            self.0.scene.say(format_args!("the report is lost"));
            return Err(Unreported { to: "the node".to_owned(), message: "injected".to_owned() });
        }
        let named = labelled(report);
        let holds: Vec<String> = report.holds.iter().map(ToString::to_string).collect();
        self.0.scene.say(format_args!("report: labels {named:?}, holds {holds:?}"));
        self.told().report = report.clone();
        self.0.disk.set_labelled(named);
        tokio::time::sleep(Duration::from_millis(after)).await;
        self.0.disk.answers().await;
        Ok(())
    }
}
