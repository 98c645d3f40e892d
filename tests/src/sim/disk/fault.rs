//! What goes wrong: errors, full and read-only disks, and where the crash comes.

use stokehold_core::file_op::{FileFault, FileOp};

use super::State;
use super::inode::Refused;

/// How the agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrashKind {
    /// kill -9: what was done stays done, and pods go on.
    ProcessDeath,
    /// The power fails: what was not synced may be lost, and pods are gone.
    PowerLoss,
}

/// Where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPlan {
    /// When so many steps were done.
    pub at: u64,
    /// How.
    pub kind: CrashKind,
}

/// Which operation fails, by plan and not by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailurePlan {
    /// The operation after so many since the beginning.
    pub at: u64,
    /// How.
    pub fault: FileFault,
    /// Whether all that follow fail too.
    pub lasts: bool,
}

/// How often things go wrong, in a million operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// The device fails at one operation.
    pub io_error_ppm: u32,
    /// The disk is full for one operation.
    pub no_space_ppm: u32,
    /// The filesystem is read-only for a while.
    pub read_only_ppm: u32,
    /// An operation takes seconds.
    pub slow_ppm: u32,
    /// It cannot be told who uses something.
    pub users_unknown_ppm: u32,
    /// The kernel writes everything back by itself.
    pub writeback_ppm: u32,
}

/// How long it is read-only then, nanoseconds.
const READ_ONLY_NS: u64 = 20_000_000_000;

pub(super) enum Fate {
    Succeeds,
    /// Nothing is done.
    Fails(Refused),
    /// It is done, and an error is told all the same.
    FailsDone(Refused),
}

fn refused(fault: FileFault, message: &str) -> Refused {
    Refused { fault, message: format!("{message} (injected)") }
}

impl State {
    /// Whether the plan lets this operation fail.
    fn planned(&mut self) -> Option<Refused> {
        let now = self.asked;
        self.asked += 1;
        let plan = self.failure.filter(|plan| now == plan.at || (plan.lasts && now > plan.at))?;
        Some(refused(plan.fault, "planned"))
    }

    pub(super) fn fate_of_write(&mut self, now_ns: u64) -> Fate {
        if let Some(refused) = self.planned() {
            return Fate::Fails(refused);
        }
        if now_ns < self.read_only_until_ns {
            return Fate::Fails(refused(FileFault::ReadOnly, "EROFS"));
        }
        if self.rng.chance(self.faults.io_error_ppm) {
            return Fate::Fails(refused(FileFault::Io, "EIO"));
        }
        Fate::Succeeds
    }

    pub(super) fn fate_of(&mut self, op: &FileOp, now_ns: u64) -> Fate {
        if let Some(refused) = self.planned() {
            self.forget_unsynced(op);
            return Fate::Fails(refused);
        }
        let faults = self.faults;
        if self.rng.chance(faults.writeback_ppm) {
            self.store.sync_all();
        }
        if super::look::is_look(op) {
            let fails = self.rng.chance(faults.io_error_ppm);
            return if fails { Fate::Fails(refused(FileFault::Io, "EIO")) } else { Fate::Succeeds };
        }
        if self.rng.chance(faults.read_only_ppm) {
            self.read_only_until_ns = now_ns + READ_ONLY_NS;
        }
        if now_ns < self.read_only_until_ns {
            return Fate::Fails(refused(FileFault::ReadOnly, "EROFS"));
        }
        let takes_space = matches!(
            op,
            FileOp::Allocate { .. }
                | FileOp::Append { .. }
                | FileOp::Replace { .. }
                | FileOp::MakeDir { .. }
                | FileOp::Link { .. }
        );
        if takes_space && self.rng.chance(faults.no_space_ppm) {
            return Fate::Fails(refused(FileFault::NoSpace, "ENOSPC"));
        }
        if !self.rng.chance(faults.io_error_ppm) {
            return Fate::Succeeds;
        }
        let error = refused(FileFault::Io, "EIO");
        self.forget_unsynced(op);
        // The last thing these do is to sync a folder, which may fail when the rest is done.
        let ends_with_sync = matches!(op, FileOp::Replace { .. } | FileOp::Link { .. });
        if ends_with_sync && self.rng.chance(500_000) { Fate::FailsDone(error) } else { Fate::Fails(error) }
    }

    /// Where a sync of data fails, what could not be written may be gone.
    fn forget_unsynced(&mut self, op: &FileOp) {
        if let FileOp::SyncData { path } = op
            && let Ok(ino) = self.store.find(path.as_str())
        {
            self.store.fail_sync(ino, &mut self.rng);
        }
    }
}
