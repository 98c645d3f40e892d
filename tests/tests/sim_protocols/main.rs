//! The protocols of core on a disk that loses what was not synced, with the crash at every step in turn, and on one that fails at
//! every operation in turn.
//!
//! What is checked is what readers may see (after every step, by the disk itself), that a restart mends whatever was left, and how
//! much had to be fetched again.

mod eviction;
mod failing;
mod ground;
mod making;
mod staging;
