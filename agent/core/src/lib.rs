//! What Stokehold decides, and how: pure functions, checked types, and the protocols of the cache tree.
//!
//! In goes what is desired and what was observed; out come plans, reports and file operations as data. Deliberately absent:
//! I/O, clocks, randomness, an async runtime, and every type whose iteration order is not stable. Protocols that must be
//! followed step by step on a disk are async functions over [`port::Disk`]; they need no runtime to be polled.

pub mod api;
pub mod arbiter;
pub mod attempt;
pub mod checksum;
pub mod creation;
pub mod desired;
pub mod eviction;
pub mod file_op;
pub mod hold;
pub mod journal;
pub mod layout;
pub mod listing;
pub mod metric;
pub mod name;
pub mod observed;
pub mod path;
pub mod plan;
pub mod policy;
pub mod port;
pub mod publishing;
pub mod quantity;
pub mod record;
pub mod report;
pub mod seen;
pub mod source;
pub mod staging;
pub mod survey;
pub mod time;
pub mod transfer;
pub mod verification;
