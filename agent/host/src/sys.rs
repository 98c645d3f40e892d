//! System calls that no safe wrapper offers: leases, inode flags, `statx`, writeback, the boot clock.
//!
//! In go borrowed descriptors, out come plain values or the error number. The only module with unsafe code.
#![expect(unsafe_code, reason = "these calls have no safe wrapper in nix; each block says why it is sound")]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use nix::errno::Errno;

/// `FS_IMMUTABLE_FL` of `linux/fs.h`: nobody changes, renames or unlinks the file.
pub(crate) const FLAG_IMMUTABLE: libc::c_int = 0x10;

/// `F_SETSIG` of `asm-generic/fcntl.h`, which libc does not name: which signal tells of events on the descriptor.
const F_SETSIG: libc::c_int = 10;

/// Takes a write lease on an open file; `EAGAIN` where anybody else has it open. Given back when the descriptor is closed.
pub(crate) fn take_write_lease(file: impl AsFd) -> nix::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // Somebody who opens the file while we hold the lease makes the kernel signal us; SIGIO, the default, would end the process.
    // SAFETY: the descriptor is borrowed for the call and F_SETSIG takes an integer.
    Errno::result(unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) })?;
    // SAFETY: the descriptor is borrowed for the call and F_SETLEASE takes an integer.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) }).map(drop)
}

/// The inode flags of an open file.
pub(crate) fn inode_flags(file: impl AsFd) -> nix::Result<libc::c_int> {
    let mut flags: libc::c_int = 0;
    // SAFETY: the kernel writes one int for this request, despite the `long` in its name, and `flags` outlives the call.
    Errno::result(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) })?;
    Ok(flags)
}

/// Sets the inode flags of an open file.
pub(crate) fn set_inode_flags(file: impl AsFd, flags: libc::c_int) -> nix::Result<()> {
    // SAFETY: the kernel reads one int for this request, and `flags` outlives the call.
    Errno::result(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) }).map(drop)
}

/// Asks the kernel to start writing dirty pages of a range, without waiting for it.
pub(crate) fn start_writeback(file: impl AsFd, offset: u64, length: u64) -> nix::Result<()> {
    let far = |_beyond| Errno::EFBIG;
    let (offset, length) = (i64::try_from(offset).map_err(far)?, i64::try_from(length).map_err(far)?);
    // SAFETY: the descriptor is borrowed for the call; the others are integers.
    let done = unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
    Errno::result(done).map(drop)
}

/// `statx` of `name` in `folder`, never through a link; the folder's own descriptor where the name is empty. Cached attributes
/// will do: a file server that does not answer must not hold us up.
pub(crate) fn stat_at(folder: impl AsFd, name: &CStr) -> nix::Result<libc::statx> {
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT;
    statx(folder.as_fd().as_raw_fd(), name, flags)
}

/// `statx` of what a magic link below `/proc` leads to, without asking a file server.
pub(crate) fn stat_through(path: &CStr) -> nix::Result<libc::statx> {
    statx(libc::AT_FDCWD, path, libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC)
}

fn statx(folder: libc::c_int, name: &CStr, flags: libc::c_int) -> nix::Result<libc::statx> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let wanted = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;
    // SAFETY: `name` ends with NUL, `found` has the size the kernel writes at most, and both outlive the call.
    Errno::result(unsafe { libc::statx(folder, name.as_ptr(), flags, wanted, found.as_mut_ptr()) })?;
    // SAFETY: all-zero is a valid `statx`, and the kernel wrote over it.
    Ok(unsafe { found.assume_init() })
}

/// Time since boot, sleep included.
pub(crate) fn since_boot() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec that outlives the call. It cannot fail: the clock exists since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Tells glibc to look names up in files and DNS alone, whatever `nsswitch.conf` says.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub(crate) fn resolve_names_without_plugins() {
    unsafe extern "C" {
        fn __nss_configure_lookup(database: *const libc::c_char, services: *const libc::c_char) -> libc::c_int;
    }
    // SAFETY: both are NUL-terminated and live for ever; glibc documents the call for the start of a program, before threads.
    let _configured = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
}

/// A dynamically linked C library loads the plug-ins that belong to it.
#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
pub(crate) fn resolve_names_without_plugins() {}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn p05_somebody_who_opens_a_leased_file_waits_and_does_not_end_us() {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        let leased = std::fs::File::open(file.path()).expect("open");
        let path = file.into_temp_path();
        take_write_lease(&leased).expect("nobody has it open");
        let mut reader = Command::new("cat").arg(&path).stdout(Stdio::null()).spawn().expect("cat");
        // SAFETY: the descriptor is open for the call.
        let lease = || unsafe { libc::fcntl(leased.as_raw_fd(), libc::F_GETLEASE) };
        while lease() == libc::F_WRLCK {
            std::thread::yield_now();
        }
        assert_eq!(reader.try_wait().expect("look"), None, "it waits for the lease");
        drop(leased);
        assert!(reader.wait().expect("wait").success());
    }
}
