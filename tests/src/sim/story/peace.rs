//! The last life: nothing goes wrong any more, nobody does anything, and all that is asked for must be there or say why it is not.

use std::time::Duration;

use stokehold::run_loop::PassView;
use stokehold_core::hold::Reason;
use stokehold_core::name::CacheId;
use stokehold_core::plan::Phase;
use stokehold_core::quantity::Bytes;
use stokehold_core::report::WEIGHTS_LABEL_PREFIX;
use stokehold_core::seen::Seen;

use super::{Agent, Story};
use crate::sim::temper::{PEACE, Temper};

/// How long it may take: quarantine lasts an hour, and retention may begin with it.
const SETTLES_WITHIN: Duration = Duration::from_secs(3 * 3_600);

impl Story {
    pub(super) fn end_in_peace(&mut self) {
        self.scene.say(format_args!("peace"));
        self.disk.set_faults(Temper::no_disk_faults());
        self.disk.others_take(Bytes(0));
        self.origin.set_faults(PEACE);
        self.node.set_report_faults(0);
        self.scene.clock.step_wall(0);
        for source in self.asked.sources() {
            if !self.rng.chance(100_000) {
                self.origin.set_bad_key(&source, None);
            }
        }
        for pod in self.disk.pods() {
            self.disk.pod_ends(pod);
        }
        self.within_runtime(async |story, agent| story.settle(agent).await);
    }

    async fn settle(&mut self, mut agent: Agent) {
        let (scene, mut views) = (self.scene.clone(), agent.views.clone());
        let mut unsettled = String::new();
        let settled = async {
            loop {
                // The loop is alive as long as its task is.
                if views.changed().await.is_err() {
                    return std::future::pending().await;
                }
                let view = views.borrow_and_update().clone();
                match view.map(|view| self.is_settled(&view)) {
                    Some(Ok(())) => return,
                    Some(Err(why)) => unsettled = why,
                    None => {}
                }
            }
        };
        tokio::select! {
            biased;
            () = scene.halted() => {}
            ended = &mut agent.task => scene.broke(&format!("the loop ended by itself: {ended:?}")),
            () = settled => scene.say(format_args!("settled")),
            () = tokio::time::sleep(SETTLES_WITHIN) => {
                scene.broke(&format!("not settled after {} s of peace: {unsettled}", SETTLES_WITHIN.as_secs()));
            }
        }
    }

    /// Whether all that is asked for is there or says why it is not, and nothing else is left.
    fn is_settled(&self, view: &PassView) -> Result<(), String> {
        if !view.plan.steps.is_empty() || !view.observed.jobs.is_empty() {
            return Err(format!("steps {:?}, jobs {:?}", view.plan.steps, view.observed.jobs.keys()));
        }
        if view.observed.condemned != Seen::Present(Vec::new()) {
            return Err(format!("condemned: {:?}", view.observed.condemned));
        }
        for asked in &self.asked.caches {
            let id = &asked.cache.id;
            if asked.is_wanted {
                self.is_met(view, id)?;
            } else if let Some(Seen::Present(found)) = view.observed.caches.get(id)
                && !matches!(found.record, Seen::Absent)
            {
                return Err(format!("{id} is unwanted and still there"));
            }
        }
        Ok(())
    }

    fn is_met(&self, view: &PassView, id: &CacheId) -> Result<(), String> {
        let verdict = view.plan.verdicts.get(id).ok_or_else(|| format!("nothing is said about {id}"))?;
        let label = view.report.labels.get(&format!("{WEIGHTS_LABEL_PREFIX}{}", id.slug()));
        if verdict.phase == Phase::Ready {
            let named = verdict.served.map(|served| served.to_string());
            return if label == named.as_ref() { Ok(()) } else { Err(format!("{id} is ready, labelled {label:?}")) };
        }
        let mut holds = view.plan.holds.iter().filter(|hold| hold.subject.cache() == Some(id));
        if holds.any(|hold| needs_a_person(&hold.reason)) {
            return Ok(());
        }
        let holds: Vec<_> = view.plan.holds.iter().map(ToString::to_string).collect();
        Err(format!("{id} is {:?}, holds {holds:?}", verdict.phase))
    }
}

/// Reasons that only a person can take away, even where everything works.
fn needs_a_person(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::OriginChanged { .. }
            | Reason::RevisionNotOffered { .. }
            | Reason::OverLimit { .. }
            | Reason::NoRoom { .. }
            | Reason::NoInodes { .. }
            | Reason::CurrentIsForeign { .. }
            | Reason::BadListing { .. }
    )
}
