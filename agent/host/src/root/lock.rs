//! The lock of the one agent that has a root.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::{RootError, resolve, stat_of};

/// Name of the lock below its folder.
pub(super) const NAME: &str = "lock";
/// Longest content: a pid and a newline.
pub(super) const CONTENT_LENGTH_MAX: usize = 16;
/// How often a lock file that went away under us is made anew. A one-off stage that ends removes its own, once.
const ATTEMPTS_MAX: u32 = 8;

/// Takes the lock in an open folder, writes our pid in it, and keeps it as long as the descriptor is open.
pub(super) fn take(folder: &OwnedFd, path: &Path) -> Result<OwnedFd, RootError> {
    let system = |act, source: std::io::Error| RootError::System { act, path: path.join(NAME), source };
    for _attempt in 0..ATTEMPTS_MAX {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NONBLOCK;
        let file = resolve(folder.as_fd(), NAME, flags, 0o644).map_err(|errno| system("open", errno.into()))?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file())) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => {
                return Err(RootError::Held { path: path.to_owned(), pid: pid_in(&file.into()) });
            }
            Err(errno) => return Err(system("lock", errno.into())),
        }
        if !still_there(folder, &file).map_err(|errno| system("look at", errno.into()))? {
            continue;
        }
        let mut file = File::from(file);
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|source| system("write", source))?;
        return Ok(file.into());
    }
    Err(system("lock", Errno::ESTALE.into()))
}

/// An OFD lock belongs to the open file, so it outlives neither it nor a crash, and closing another descriptor does not drop it.
fn whole_file() -> libc::flock {
    let (write, start) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
    libc::flock { l_type: write, l_whence: start, l_start: 0, l_len: 0, l_pid: 0 }
}

fn still_there(folder: &OwnedFd, file: &OwnedFd) -> nix::Result<bool> {
    match resolve(folder.as_fd(), NAME, OFlag::O_PATH, 0) {
        Ok(named) => Ok(stat_of(&named)?.stx_ino == stat_of(file)?.stx_ino),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn pid_in(file: &File) -> Option<u32> {
    let mut content = [0; CONTENT_LENGTH_MAX];
    let length = file.read_at(&mut content, 0).ok()?;
    std::str::from_utf8(&content[..length]).ok()?.trim().parse().ok()
}
