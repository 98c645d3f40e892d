//! People and pods: they change what is offered and what is asked, read, go away, and touch what they should not.

use std::time::Duration;

use stokehold_core::quantity::Bytes;

use super::Story;
use super::ask::{path, put};
use crate::sim::disk::{PodId, SimDisk, Use};
use crate::sim::rng::Rng;
use crate::sim::temper::Temper;

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Overwrite,
    RemoveFile,
    BadKey,
    Unask,
    SetRevision,
    Change,
    PodBegins,
    Touch,
    Spoil,
    Squeeze,
    GiveRoom,
    StepClock,
}

/// Who does it.
pub(super) struct Meddler {
    rng: Rng,
    deeds: Vec<Deed>,
    pods: Vec<(PodId, u64)>,
}

impl Meddler {
    pub(super) fn new(mut rng: Rng, temper: &Temper, disk: &SimDisk) -> Self {
        let mut deeds = Vec::new();
        if temper.meddles {
            deeds.extend([Deed::Overwrite, Deed::Overwrite, Deed::Unask, Deed::Unask, Deed::Change, Deed::SetRevision]);
            deeds.extend([Deed::PodBegins, Deed::PodBegins, Deed::PodBegins, Deed::RemoveFile, Deed::BadKey]);
            plant(&mut rng, disk);
        }
        if temper.is_scarce {
            deeds.extend([Deed::Squeeze, Deed::GiveRoom]);
        }
        if temper.steps_clock {
            deeds.push(Deed::StepClock);
        }
        if temper.spoils {
            deeds.extend([Deed::Touch, Deed::Spoil]);
        }
        Self { rng, deeds, pods: Vec::new() }
    }
}

/// What others put there before we came.
fn plant(rng: &mut Rng, disk: &SimDisk) {
    let places: [fn(&SimDisk); 4] = [
        |disk| disk.plant_file("others/notes.txt", b"not ours"),
        |disk| disk.plant_link("deployments/ns/link-out", "../../others"),
        |disk| disk.plant_file("deployments/ns/foreign/current/model.bin", b"not ours either"),
        |disk| disk.make_folder("deployments/ns/cache-0/current"),
    ];
    for place in places {
        if rng.chance(300_000) {
            place(disk);
        }
    }
}

impl Story {
    /// Does one thing after the other, for ever.
    pub(super) async fn meddle(&mut self) {
        loop {
            let wait = Duration::from_millis(self.meddler.rng.between(100, 12_000));
            tokio::time::sleep(wait).await;
            self.end_pods();
            if !self.meddler.deeds.is_empty() {
                let deeds = self.meddler.deeds.clone();
                let deed = *self.meddler.rng.pick(&deeds);
                self.scene.say(format_args!("deed: {deed:?}"));
                self.do_one(deed);
            }
        }
    }

    fn end_pods(&mut self) {
        let now_ns = self.scene.clock.now_ns();
        let there = self.disk.pods();
        for (pod, until) in std::mem::take(&mut self.meddler.pods) {
            if now_ns >= until {
                self.disk.pod_ends(pod);
            } else if there.contains(&pod) {
                self.meddler.pods.push((pod, until));
            }
        }
    }

    fn do_one(&mut self, deed: Deed) {
        let rng = &mut self.meddler.rng;
        let sources = self.asked.sources();
        let source = rng.pick(&sources).clone();
        let number = usize::try_from(rng.below(self.asked.caches.len() as u64)).unwrap_or_default();
        match deed {
            Deed::Overwrite => {
                let path = path(rng);
                put(rng, &self.origin, &source, path);
            }
            Deed::RemoveFile => {
                let paths = self.origin.paths(&source);
                if paths.len() > 1 {
                    let path = rng.pick(&paths).clone();
                    self.origin.remove(&source, &path);
                }
            }
            Deed::BadKey => {
                let bad = *rng.pick(&[None, None, Some("../../etc/x"), Some("a//b")]);
                self.origin.set_bad_key(&source, bad);
            }
            Deed::Unask => {
                self.asked.caches[number].is_wanted ^= true;
                self.ask();
            }
            Deed::SetRevision | Deed::Change => {
                self.change(deed, number);
                self.ask();
            }
            Deed::PodBegins => {
                let how = *rng.pick(&[Use::Mount, Use::Mount, Use::Bind, Use::Open, Use::Hidden]);
                let length = rng.between(1_000_000_000, 200_000_000_000);
                let id = &self.asked.caches[number].cache.id;
                let folder = format!("deployments/{}/{}", id.namespace, id.name);
                if let Some(pod) = self.disk.pod_begins(&folder, how) {
                    self.meddler.pods.push((pod, self.scene.clock.now_ns() + length));
                }
            }
            Deed::Touch | Deed::Spoil => {
                let files = self.disk.published_files();
                if !files.is_empty() {
                    let file = rng.pick(&files).clone();
                    if matches!(deed, Deed::Touch) { self.disk.touch(&file) } else { self.disk.spoil(&file) }
                }
            }
            Deed::Squeeze => {
                let left = rng.between(0, 40) << 20;
                self.disk.others_take(Bytes(self.temper.disk.capacity.0.saturating_sub(left)));
            }
            Deed::GiveRoom => self.disk.others_take(Bytes(0)),
            Deed::StepClock => {
                let off_s = *rng.pick(&[0, 0, 300, 7_200, -300, -7_200, 400 * 86_400]);
                self.scene.say(format_args!("wall clocks are off by {off_s} s"));
                self.scene.clock.step_wall(off_s);
            }
        }
    }

    /// A person edits a document.
    fn change(&mut self, deed: Deed, number: usize) {
        let report = self.node.report();
        let cache = &mut self.asked.caches[number].cache;
        cache.priority = i32::try_from(self.meddler.rng.below(3)).unwrap_or(0);
        let offered = report.caches.get(&cache.id).and_then(|verdict| verdict.offered);
        if let (Deed::SetRevision, Some(weights)) = (deed, &mut cache.weights) {
            weights.revision = if weights.revision.is_some() { None } else { offered };
        }
    }

    pub(super) fn ask(&self) {
        self.desired.send_replace(self.asked.desired());
    }
}
