//! Facts of the machine: its boot, its clocks, its name, and what kind of storage a root stands on.
//!
//! In go `/proc` and `/sys`, out come plain values; where something cannot be told, it says so. Deliberately absent: devices
//! without a filesystem of ours, and anything that changes the machine.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use stokehold_core::time::{BootId, Millis, Now, WallTime};

use crate::root::{CacheRoot, stat_of};
use crate::sys;

mod storage;

pub use storage::Storage;

/// A fact that the kernel should tell and did not.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} from {path}")]
pub struct Untold {
    what: &'static str,
    path: &'static str,
    source: io::Error,
}

fn told(what: &'static str, path: &'static str) -> Result<String, Untold> {
    let text = fs::read_to_string(path).map_err(|source| Untold { what, path, source })?;
    Ok(text.trim().to_owned())
}

/// Identity of this boot.
///
/// # Errors
/// [`Untold`]
pub fn boot_id() -> Result<BootId, Untold> {
    told("the boot id", "/proc/sys/kernel/random/boot_id").map(BootId)
}

/// Name of the machine as the kernel has it.
///
/// # Errors
/// [`Untold`]
pub fn hostname() -> Result<String, Untold> {
    told("the host name", "/proc/sys/kernel/hostname")
}

/// Milliseconds since boot, sleep included: never steps, and goes on through suspend as time-outs of others do.
#[must_use]
pub fn monotonic() -> Millis {
    Millis(u64::try_from(sys::since_boot().as_millis()).unwrap_or(u64::MAX))
}

/// Seconds since 1970; a clock set before that says zero.
#[must_use]
pub fn wall() -> WallTime {
    WallTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()))
}

/// This moment in the boot with this identity.
#[must_use]
pub fn now(boot_id: &BootId) -> Now {
    Now { wall: wall(), monotonic: monotonic(), boot_id: boot_id.clone() }
}

/// A number that nobody can foresee: for names that must not clash and waits that must not fall together. Not for secrets.
#[must_use]
pub fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    // Keyed by the kernel once a thread and counted on from there, which is all that these uses need.
    RandomState::new().hash_one(sys::since_boot().as_nanos())
}

/// Keeps a statically linked C library from loading name-service plug-ins made for another version of it: with one of those the
/// process ends by a signal at its first name look-up. To be called before any thread is started.
pub fn resolve_names_without_plugins() {
    sys::resolve_names_without_plugins();
}

/// Whether we are in the machine's own PID namespace: in another one `/proc` does not show all users of bytes. The kernel gives
/// the first namespace a fixed number (`PROC_PID_INIT_INO`).
///
/// # Errors
/// What the system said.
pub fn sees_all_processes() -> io::Result<bool> {
    Ok(fs::read_link("/proc/self/ns/pid")?.as_os_str() == "pid:[4026531836]")
}

/// What the root stands on.
#[must_use]
pub fn storage(root: &CacheRoot) -> Storage {
    match stat_of(root.folder()) {
        Ok(stat) => storage::of(Path::new("/sys"), (stat.stx_dev_major, stat.stx_dev_minor)),
        Err(errno) => Storage::Unknown(format!("the root cannot be looked at: {errno}")),
    }
}

/// What the filesystem of some folder stands on; the folder need not be ours.
#[must_use]
pub fn storage_at(folder: &Path) -> Storage {
    use std::os::unix::fs::MetadataExt as _;
    match fs::metadata(folder) {
        Ok(found) => storage::of(Path::new("/sys"), (libc::major(found.dev()), libc::minor(found.dev()))),
        Err(error) => Storage::Unknown(format!("{} cannot be looked at: {error}", folder.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_on_and_the_boot_has_a_name() {
        let boot = boot_id().expect("boot id");
        assert_eq!(boot.0.len(), "01234567-89ab-cdef-0123-456789abcdef".len());
        let (one, two) = (now(&boot), now(&boot));
        assert!(one.monotonic <= two.monotonic && one.monotonic > Millis(0));
        assert!(one.wall > WallTime(1_700_000_000), "not before this was written");
        assert!(!hostname().expect("name").is_empty());
    }
}
