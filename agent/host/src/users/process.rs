//! What `/proc` shows of one process.

use std::ffi::CString;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::Device;
use super::mount::{self, Mount};
use crate::sys;

/// Why something of a process could not be told.
#[derive(Debug)]
pub(super) enum Vanished {
    /// The process ended meanwhile.
    Gone,
    /// It is there and may not be looked at.
    Unreadable(String),
}

/// Something that a process holds.
pub(super) struct Held {
    pub(super) device: Device,
    pub(super) inode: u64,
    /// Its path as the kernel tells it, in the mount namespace of whoever opened it.
    pub(super) text: String,
}

pub(super) struct Process {
    pub(super) pid: u32,
    folder: PathBuf,
}

/// All processes there are.
pub(super) fn pids(proc: &Path) -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir(proc)? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(pids)
}

fn failed(what: &str) -> impl Fn(io::Error) -> Vanished {
    move |error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => Vanished::Gone,
        Some(_) | None => Vanished::Unreadable(format!("{what}: {error}")),
    }
}

/// Nothing where it went, and whatever else happened.
fn unless_gone<T>(asked: Result<T, Vanished>) -> Result<Option<T>, Vanished> {
    match asked {
        Ok(told) => Ok(Some(told)),
        Err(Vanished::Gone) => Ok(None),
        Err(unreadable @ Vanished::Unreadable(_)) => Err(unreadable),
    }
}

impl Process {
    pub(super) fn new(proc: &Path, pid: u32) -> Self {
        Self { pid, folder: proc.join(pid.to_string()) }
    }

    /// What tells apart views of mounts: the namespace, and the root directory, outside of which `mountinfo` shows nothing. None
    /// where that cannot be told, so that its mounts are read anew.
    pub(super) fn mount_view(&self) -> Option<String> {
        let namespace = fs::read_link(self.folder.join("ns/mnt")).ok()?;
        let root = self.stat("root").ok()?;
        Some(format!("{} {} {}", namespace.display(), root.stx_mnt_id, root.stx_ino))
    }

    pub(super) fn mounts(&self) -> Result<Vec<Mount>, Vanished> {
        mount::read(&self.folder.join("mountinfo")).or_else(|error| match error.raw_os_error() {
            // What a process that has ended and was not waited for answers: it has no mounts any more.
            Some(libc::EINVAL) => Ok(Vec::new()),
            Some(_) | None => Err(failed("mountinfo")(error)),
        })
    }

    /// Open files that stand in a filesystem; sockets, pipes and the like are left out.
    pub(super) fn descriptors(&self) -> Result<Vec<Held>, Vanished> {
        let mut held = Vec::new();
        for entry in fs::read_dir(self.folder.join("fd")).map_err(failed("fd"))? {
            let name = entry.map_err(failed("fd"))?.file_name();
            held.extend(self.link(&format!("fd/{}", name.to_string_lossy()))?);
        }
        Ok(held)
    }

    /// Where a link of the process leads; none if it is closed or leads to no filesystem.
    pub(super) fn link(&self, name: &str) -> Result<Option<Held>, Vanished> {
        let path = self.folder.join(name);
        let Some(target) = unless_gone(fs::read_link(&path).map_err(failed(name)))? else { return Ok(None) };
        let text = target.to_string_lossy().into_owned();
        if !text.starts_with('/') && !text.starts_with('(') {
            return Ok(None);
        }
        let held = |stat: libc::statx| {
            let device = (stat.stx_dev_major, stat.stx_dev_minor);
            Held { device, inode: stat.stx_ino, text }
        };
        Ok(unless_gone(self.stat(name))?.map(held))
    }

    fn stat(&self, name: &str) -> Result<libc::statx, Vanished> {
        let path = self.folder.join(name);
        let path = CString::new(path.as_os_str().as_bytes()).expect("paths below /proc hold no NUL");
        sys::stat_through(&path).map_err(io::Error::from).map_err(failed(name))
    }

    /// Every mapped file, line by line: there may be a hundred thousand.
    pub(super) fn each_map(&self, mut tell: impl FnMut(Held)) -> Result<(), Vanished> {
        let file = fs::File::open(self.folder.join("maps")).map_err(failed("maps"))?;
        for line in BufReader::new(file).split(b'\n') {
            let line = line.map_err(failed("maps"))?;
            if let Some(held) = parse_map(&String::from_utf8_lossy(&line)) {
                tell(held);
            }
        }
        Ok(())
    }
}

/// `7f00-7f01 r--s 00000000 103:01 1234   /path (deleted)`; none for memory without a file.
fn parse_map(line: &str) -> Option<Held> {
    let mut fields = line.splitn(6, ' ');
    let (major, minor) = fields.nth(3)?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = fields.next()?.parse().ok().filter(|inode| *inode != 0)?;
    let text = fields.next().unwrap_or_default().trim_start().replace("\\012", "\n");
    Some(Held { device, inode, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_tells_device_inode_and_path() {
        let held =
            parse_map("7f53-7f54 r--s 00000000 103:0a 1234                       /a b/c (deleted)").expect("map");
        assert_eq!((held.device, held.inode, held.text.as_str()), ((259, 10), 1234, "/a b/c (deleted)"));
        assert!(parse_map("7f53-7f54 rw-p 00000000 00:00 0                          [heap]").is_none());
        assert!(parse_map("7f53-7f54 rw-p 00000000 00:00 0 ").is_none());
    }
}
