//! The lab: real parts and one faulty one, for tests on the real machine and for the demo.
//!
//! In: nothing but free ports, a folder and, for SeaweedFS, `python3` with `pip`. Out: running servers, a made model, a
//! running agent, each stopped when its value is dropped or when the test process dies.
//! Deliberately absent: the modelled world (`sim`), and any assertion: tests assert.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

pub mod agent;
pub mod bucket;
pub mod child;
pub mod fault_s3;
pub mod http;
pub mod model;
pub mod port;
pub mod seaweed;
pub mod seed;

/// Pause between two looks at another process: short against its start-up time (about 3 s), long against a look.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Look at another process until `look` answers, at most for `limit`; `what` names the awaited thing in the error.
///
/// For things outside this process only, which cannot wake us; inside, wait on the condition itself
/// ([`fault_s3::FaultS3::wait_for`]).
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Ok(seen);
        }
        if started.elapsed() >= limit {
            bail!("{what} did not come within {limit:?}");
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Whether a missing real part must fail the test: true where `CI=true`, so that a skipped test cannot look green there.
pub fn must_have_parts() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// The workspace folder, for caches and for finding what was built.
pub fn workspace() -> std::path::PathBuf {
    let room = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    room.parent().unwrap_or(room).to_path_buf()
}
