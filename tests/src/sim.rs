//! A modelled world for the real loop: one seed gives a disk that loses what was not synced, origins that lie, pods that come and
//! go, and a clock on which a minute costs milliseconds.
//!
//! In: a seed. Out: a log that is the same for the same seed, and the first broken promise, if one was broken. Deliberately absent:
//! threads, real time, real files.

pub mod clock;
pub mod disk;
pub mod event_log;
pub mod fetch;
pub mod node;
pub mod origin;
pub mod rng;
pub mod scene;
pub mod script;
pub mod story;
pub mod temper;
pub mod truth;
pub mod warning;
