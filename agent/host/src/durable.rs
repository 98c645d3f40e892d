//! Small files and links that must be found after a crash: write aside, sync, rename, sync the folder.
//!
//! In go an open folder, a name and what shall stand there; the name never shows anything between the old and the new. The only
//! module that creates, writes and renames files of ours under their final names. Deliberately absent: content of weights.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, fsync, symlinkat, unlinkat};
use stokehold_core::file_op::FileFault;

use crate::fault::{Refusal, uninterrupted};

/// Mode of a file that anybody may read.
const REPORT_MODE: u32 = 0o644;
/// How the name of a file that is not there yet ends.
const ASIDE_SUFFIX: &str = ".aside";

/// Makes or replaces a file at once and durably. A link at `name` is replaced, not followed; a folder there is `Exists`.
pub(crate) fn replace(folder: impl AsFd, name: &str, bytes: &[u8], mode: u32) -> Result<(), Refusal> {
    let aside = aside_name(name);
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let written = anew(&folder, &aside, || openat(&folder, aside.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR))
        .map_err(Refusal::from)
        .and_then(|fd| {
            let mut file = File::from(fd);
            file.write_all(bytes)?;
            fchmod(&file, Mode::from_bits_truncate(mode))?;
            Ok(file.sync_all()?)
        });
    settle(&folder, &aside, name, written)
}

/// Makes or replaces a file of the agent's own outside the cache root, such as a report, at once and durably. Its folder must exist.
///
/// # Errors
/// What the system said.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name =
        path.file_name().and_then(OsStr::to_str).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let folder = File::open(parent)?;
    replace(&folder, name, bytes, REPORT_MODE).map_err(|refusal| io::Error::other(refusal.message))
}

/// Makes or replaces a symbolic link at once and durably. A folder at `name` is `Exists`.
pub(crate) fn link(folder: impl AsFd, name: &str, target: &str) -> Result<(), Refusal> {
    let aside = aside_name(name);
    let made = anew(&folder, &aside, || symlinkat(target, &folder, aside.as_str())).map_err(Refusal::from);
    settle(&folder, &aside, name, made)
}

/// Removes what a crash left aside in a folder, and says how many. Only for folders that nobody else writes to.
pub(crate) fn sweep(folder: impl AsFd) -> nix::Result<usize> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listing = Dir::openat(&folder, ".", flags, Mode::empty())?;
    let mut swept = 0;
    for entry in listing.iter() {
        let entry = entry?;
        if is_aside(entry.file_name().to_bytes()) {
            match unlinkat(&folder, entry.file_name(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) => swept += 1,
                Err(Errno::ENOENT | Errno::EISDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(swept)
}

/// Whether a name is one of those that [`replace`] and [`link`] write aside: `.<name>.<pid>-<count>.aside`.
pub(crate) fn is_aside(name: &[u8]) -> bool {
    aside_of(name).is_some()
}

/// What the file written aside would have become.
pub(crate) fn aside_of(name: &[u8]) -> Option<&OsStr> {
    use std::os::unix::ffi::OsStrExt as _;
    let inner = name.strip_prefix(b".")?.strip_suffix(ASIDE_SUFFIX.as_bytes())?;
    let dot = inner.iter().rposition(|&byte| byte == b'.')?;
    let (pid, count) = std::str::from_utf8(&inner[dot + 1..]).ok()?.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (dot > 0 && digits(pid) && digits(count)).then(|| OsStr::from_bytes(&inner[..dot]))
}

/// Unique within the process; the lock on the root makes every other one stale.
fn aside_name(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!(".{name}.{}-{}{ASIDE_SUFFIX}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Makes the aside; one that is there was left by an earlier process of our pid.
fn anew<T>(folder: impl AsFd, aside: &str, make: impl Fn() -> nix::Result<T>) -> nix::Result<T> {
    match uninterrupted(&make) {
        Err(Errno::EEXIST) => {
            unlinkat(&folder, aside, UnlinkatFlags::NoRemoveDir)?;
            uninterrupted(&make)
        }
        made => made,
    }
}

/// Renames the aside over the name and syncs the folder, or removes the aside.
fn settle(folder: impl AsFd, aside: &str, name: &str, written: Result<(), Refusal>) -> Result<(), Refusal> {
    let renamed = written.and_then(|()| match renameat(&folder, aside, &folder, name) {
        Err(Errno::EISDIR) => Err(Refusal::new(FileFault::Exists, "a folder is in its place")),
        done => Ok(done?),
    });
    if let Err(refusal) = renamed {
        // Best effort: what stays is swept at the next start.
        let _stays = unlinkat(&folder, aside, UnlinkatFlags::NoRemoveDir);
        return Err(refusal);
    }
    Ok(uninterrupted(|| fsync(&folder))?)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests plant files as others would")]
mod tests {
    use super::*;

    #[test]
    fn a_write_leaves_only_the_file_and_no_aside() {
        let place = tempfile::tempdir().expect("temporary folder");
        let folder = File::open(place.path()).expect("open folder");
        replace(&folder, "status.json", b"one", 0o644).expect("write");
        replace(&folder, "status.json", b"two", 0o600).expect("write again");
        link(&folder, "current", "snapshots/one").expect("link");
        link(&folder, "current", "empty").expect("link again");
        assert_eq!(std::fs::read(place.path().join("status.json")).expect("read"), b"two");
        assert_eq!(std::fs::read_link(place.path().join("current")).expect("target"), std::path::Path::new("empty"));
        assert_eq!(std::fs::read_dir(place.path()).expect("list").count(), 2);
    }

    #[test]
    fn a_link_in_the_place_is_replaced_and_what_it_leads_to_untouched() {
        let place = tempfile::tempdir().expect("temporary folder");
        std::fs::write(place.path().join("theirs"), b"theirs").expect("write");
        std::os::unix::fs::symlink("theirs", place.path().join("status.json")).expect("plant link");
        let folder = File::open(place.path()).expect("open folder");
        replace(&folder, "status.json", b"ours", 0o644).expect("write");
        assert_eq!(std::fs::read(place.path().join("theirs")).expect("read"), b"theirs");
        assert!(place.path().join("status.json").symlink_metadata().expect("stat").is_file());
    }

    #[test]
    fn a_failed_rename_leaves_no_aside() {
        let place = tempfile::tempdir().expect("temporary folder");
        std::fs::create_dir(place.path().join("current")).expect("make folder");
        let folder = File::open(place.path()).expect("open folder");
        assert_eq!(link(&folder, "current", "empty").expect_err("folder").fault, FileFault::Exists);
        assert_eq!(std::fs::read_dir(place.path()).expect("list").count(), 1);
    }

    #[test]
    fn only_what_we_wrote_aside_is_swept() {
        let place = tempfile::tempdir().expect("temporary folder");
        for name in [".a.json.12-0.aside", ".aside", "a.aside", ".a.x-1.aside", ".a.1-2.asidex", "a.json"] {
            std::fs::write(place.path().join(name), b"").expect("write");
        }
        let folder = File::open(place.path()).expect("open folder");
        assert_eq!(sweep(&folder), Ok(1));
        assert!(!place.path().join(".a.json.12-0.aside").exists());
        assert_eq!(std::fs::read_dir(place.path()).expect("list").count(), 5);
    }
}
