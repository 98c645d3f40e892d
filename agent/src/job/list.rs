//! Listing an origin: what it offers now, and the id that names it.

use std::sync::Arc;
use std::time::Duration;

use stokehold_core::attempt::{Disposition, JobFailure};
use stokehold_core::desired::DesiredWeights;
use stokehold_core::hold::Reason;
use stokehold_core::listing::{Listing, ListingBuilder};
use stokehold_core::port::{Origin, OriginError};

use super::failure::of_origin;
use super::{JobContext, JobEnd};
use crate::world::World;

/// A listing of a million keys takes a minute; one that takes ten is not going to end.
const LIST_TIMEOUT: Duration = Duration::from_secs(600);

/// Lists the origin of some weights.
///
/// # Errors
/// What the origin says, or why its files cannot be staged.
pub async fn list<O: Origin>(origin: &O, weights: &DesiredWeights) -> Result<Listing, JobFailure> {
    let filter = weights.filter().map_err(|error| JobFailure {
        reason: Reason::BadListing { why: error.to_string() },
        disposition: Disposition::AwaitChange,
    })?;
    let mut builder = ListingBuilder::new(weights.source.identity(), filter);
    origin.list(&weights.source, &mut builder).await.map_err(|error| of_origin(&error))?;
    builder.build().map_err(|error| of_origin(&OriginError::Listing(error)))
}

/// Lists as a job.
pub(crate) async fn run<W: World>(world: W, weights: DesiredWeights, context: JobContext) -> JobEnd {
    let late = || JobFailure {
        reason: Reason::OriginUnreachable {
            why: format!("{} was not listed within {} s", weights.source, LIST_TIMEOUT.as_secs()),
        },
        disposition: Disposition::Retry,
    };
    // Each arm is safe to drop: a listing leaves nothing behind.
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => JobEnd::Cancelled,
        listed = list(world.origin(), &weights) => match listed {
            Ok(listing) => JobEnd::Listed(Arc::new(listing), weights.origin_fingerprint()),
            Err(failure) => JobEnd::Failed(failure),
        },
        () = tokio::time::sleep(LIST_TIMEOUT) => JobEnd::Failed(late()),
    }
}
