//! What Stokehold decides, and how: pure functions, checked types, and the protocols of the cache tree.
//!
//! In goes what is desired and what was observed; out come plans, reports and file operations as data. Deliberately absent:
//! I/O, clocks, randomness, an async runtime, and every type whose iteration order is not stable. Protocols that must be
//! followed step by step on a disk are async functions over [`port::Disk`]; they need no runtime to be polled.

pub mod checksum;
pub mod desired;
pub mod file_op;
pub mod layout;
pub mod listing;
pub mod name;
pub mod path;
pub mod port;
pub mod quantity;
pub mod seen;
pub mod source;
pub mod time;
