//! Giving up, dropping, removing, verifying and sweeping as jobs: thin skins over core's protocols.

use stokehold_core::checksum::SnapshotId;
use stokehold_core::eviction::{EvictError, delete_condemned, discard_incoming, evict, remove_cache};
use stokehold_core::layout::{CacheLayout, condemned};
use stokehold_core::port::Tree;
use stokehold_core::verification::verify;

use super::JobEnd;
use super::failure::{of_eviction, of_verification};
use crate::world::World;

fn end(outcome: Result<(), EvictError>) -> JobEnd {
    match outcome {
        Ok(()) => JobEnd::Done,
        Err(error) => JobEnd::Failed(of_eviction(&error)),
    }
}

/// Gives up a snapshot. Not cancelled on the way: half-way it would only have to be begun again.
pub(crate) async fn run_evict<W: World>(world: W, layout: CacheLayout, snapshot: SnapshotId) -> JobEnd {
    end(evict(Tree(world.disk()), &layout, snapshot, world.random()).await)
}

/// Drops what was left half-way.
pub(crate) async fn run_discard<W: World>(world: W, layout: CacheLayout, snapshot: SnapshotId) -> JobEnd {
    end(discard_incoming(Tree(world.disk()), &layout, snapshot, world.random()).await)
}

/// Removes a cache's folder.
pub(crate) async fn run_remove<W: World>(world: W, layout: CacheLayout) -> JobEnd {
    end(remove_cache(Tree(world.disk()), &layout, world.random()).await)
}

/// Reads a snapshot again.
pub(crate) async fn run_verify<W: World>(world: W, layout: CacheLayout, snapshot: SnapshotId) -> JobEnd {
    match verify(Tree(world.disk()), &layout.snapshot(snapshot)).await {
        Ok(_manifest) => JobEnd::Done,
        Err(error) => JobEnd::Failed(of_verification(&error)),
    }
}

/// Deletes condemned trees. One that is in use does not keep the others.
pub(crate) async fn run_sweep<W: World>(world: W, trees: Vec<String>) -> JobEnd {
    let mut outcome = Ok(());
    for tree in trees {
        let swept = delete_condemned(Tree(world.disk()), &condemned().entry(&tree)).await;
        outcome = outcome.and(swept);
    }
    end(outcome)
}
