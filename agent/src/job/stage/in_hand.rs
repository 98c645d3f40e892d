//! The note that a staging is in hand: written before it starts, cleared when it ends in any orderly way.
//!
//! A staging that kills the agent before a byte arrives, again and again, is found by this note and waits.

use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_core::creation::write_record;
use stokehold_core::file_op::FileError;
use stokehold_core::layout::CacheLayout;
use stokehold_core::port::{Disk, Tree};
use stokehold_core::record::{DeploymentRecord, InHand, RECORD_BYTES_MAX, decode};

use super::{StageJob, Stopped, is_missing};
use crate::world::World;

/// The note of one staging. A one-off stage has nobody who would read it.
pub(super) struct InHandNote {
    cache: Option<CacheLayout>,
    got_further: AtomicBool,
}

impl InHandNote {
    /// Writes the note.
    pub(super) async fn begin<W: World>(world: &W, job: &StageJob) -> Result<Self, Stopped> {
        let note = Self { cache: job.cache.clone(), got_further: AtomicBool::new(false) };
        let begun_at = world.now().wall;
        note.change(Tree(world.disk()), |record| {
            let before = record.in_hand.as_ref().filter(|in_hand| in_hand.snapshot == job.listing.id);
            let starts = before.map_or(0, |in_hand| in_hand.starts).saturating_add(1);
            record.in_hand = Some(InHand { snapshot: job.listing.id, starts, begun_at });
        })
        .await?;
        Ok(note)
    }

    /// A byte arrived: this start was not fruitless. Written once.
    pub(super) async fn got_further<D: Disk>(&self, tree: Tree<'_, D>) -> Result<(), Stopped> {
        if self.got_further.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.change(tree, |record| {
            if let Some(in_hand) = &mut record.in_hand {
                in_hand.starts = 0;
            }
        })
        .await
    }

    /// It ended in an orderly way.
    pub(super) async fn end<D: Disk>(&self, tree: Tree<'_, D>) -> Result<(), Stopped> {
        self.change(tree, |record| record.in_hand = None).await
    }

    async fn change<D: Disk>(
        &self,
        tree: Tree<'_, D>,
        change: impl FnOnce(&mut DeploymentRecord),
    ) -> Result<(), Stopped> {
        let Some(cache) = &self.cache else { return Ok(()) };
        let bytes = match tree.read(cache.deployment(), RECORD_BYTES_MAX).await {
            Ok(bytes) => bytes,
            // Its folder is gone; so is whoever would read the note.
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut record: DeploymentRecord = decode(&bytes).map_err(|error| {
            let read = stokehold_core::file_op::FileOp::Read { path: cache.deployment(), size_max: RECORD_BYTES_MAX };
            FileError::new(&read, stokehold_core::file_op::FileFault::Foreign, error.to_string())
        })?;
        let before = record.clone();
        change(&mut record);
        if record != before {
            write_record(tree, cache, &record).await?;
        }
        Ok(())
    }
}
