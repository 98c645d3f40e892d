//! Telling the service manager that the agent is ready, and then that it lives: as long as passes are made or bytes arrive.

use std::collections::BTreeMap;
use std::sync::Arc;

use stokehold_core::observed::JobKey;
use stokehold_core::quantity::Bytes;
use tokio_util::sync::CancellationToken;

use crate::server::{PASS_AGE_MAX, Shown};
use crate::service::ServiceManager;

/// Says ready after the first pass, then alive while that is true, until `stop`.
pub(super) async fn tell(shown: Shown, service: Arc<ServiceManager>, stop: CancellationToken) {
    let mut views = shown.views.clone();
    // Each arm is safe to drop: a token and a watched value keep their state.
    tokio::select! {
        biased;
        () = stop.cancelled() => return,
        seen = views.wait_for(Option::is_some) => if seen.is_err() { return },
    }
    service.ready();
    let Some(period) = service.alive_period() else { return };
    let mut before = moved(&shown);
    loop {
        let now = moved(&shown);
        if shown.pass_age() < PASS_AGE_MAX || now != before {
            service.alive();
        }
        before = now;
        // Each arm is safe to drop: a token keeps its state, and a sleep has none.
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(period) => {}
        }
    }
}

/// Which jobs run, and how far they are.
fn moved(shown: &Shown) -> BTreeMap<JobKey, Bytes> {
    shown.board.view().into_iter().map(|(key, job)| (key, job.done)).collect()
}
