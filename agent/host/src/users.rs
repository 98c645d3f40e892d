//! Who uses bytes below a root, as far as `/proc` shows.
//!
//! In go a root and a path below it, out come mounts, open files, mappings, working and root directories of all processes, or that
//! it could not be told. Deliberately absent: what only a write lease shows, and what only the container runtime knows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nix::fcntl::OFlag;
use stokehold_core::file_op::{FileFault, FileKind, User, UserSource};
use stokehold_core::layout::TreePath;
use stokehold_core::seen::Seen;

use crate::disk;
use crate::fault::Refusal;
use crate::root::{CacheRoot, stat_of};
use mount::Mount;
use process::{Process, Vanished};

mod mount;
mod process;

/// Where the kernel shows processes.
const PROC: &str = "/proc";
/// Most users that are told: more of them say nothing new.
const USERS_MAX: usize = 1_000;

/// Device as the kernel numbers it: major, minor.
type Device = (u32, u32);

/// Users of a file, or of anything below a folder. Our own open files are not among them.
pub(crate) fn of(root: &CacheRoot, path: &TreePath) -> Result<Seen<Vec<User>>, Refusal> {
    shown_by(Path::new(PROC), root, path)
}

fn shown_by(proc: &Path, root: &CacheRoot, path: &TreePath) -> Result<Seen<Vec<User>>, Refusal> {
    let there = root.open_below(path, OFlag::O_PATH, 0)?;
    let stat = stat_of(&there)?;
    let mut inodes = BTreeMap::from([(stat.stx_ino, path.as_str().to_owned())]);
    match disk::kind_of(&stat) {
        FileKind::File => {}
        FileKind::Folder => {
            for entry in disk::walk(root, path)? {
                inodes.insert(entry.stat.inode, path.entry(&entry.path).as_str().to_owned());
            }
        }
        FileKind::Link | FileKind::Other => {
            return Err(Refusal::new(FileFault::Foreign, "it is neither a file nor a folder"));
        }
    }
    let mounts = match mount::read(&proc.join("self/mountinfo")) {
        Ok(mounts) => mounts,
        Err(error) => return Ok(Seen::Unknown(format!("our own mounts cannot be read: {error}"))),
    };
    let root_stat = stat_of(root.folder())?;
    let here = root.path().to_string_lossy().into_owned();
    let Some(ours) = mounts.iter().find(|mount| mount.id == root_stat.stx_mnt_id) else {
        return Ok(Seen::Unknown(format!("the mount of {here} is not among our own")));
    };
    let Some(within) = below(&here, &ours.point) else {
        return Ok(Seen::Unknown(format!("{here} is not below its own mount {}", ours.point)));
    };
    let subject = Subject {
        path: path.as_str(),
        inodes,
        file_device: (root_stat.stx_dev_major, root_stat.stx_dev_minor),
        mount_device: ours.device,
        root_on_device: join(&ours.root, within),
        root_here: here,
    };
    Ok(look(proc, &subject, std::process::id()))
}

/// What is looked for.
struct Subject<'a> {
    /// The path asked about, below the root.
    path: &'a str,
    /// Everything at and below it, by inode: paths of other mount namespaces say nothing here.
    inodes: BTreeMap<u64, String>,
    /// Device as `stat` shows it for files.
    file_device: Device,
    /// Device as mounts and mappings show it; on btrfs another number than for files.
    mount_device: Device,
    /// Path of the root within its filesystem.
    root_on_device: String,
    /// Path of the root in our mount namespace.
    root_here: String,
}

impl Subject<'_> {
    /// The path below the root if a mount of this place of our filesystem shows bytes of the subject. A mount of the root or of
    /// what it stands in is how the machine itself reaches the disk, and ours; what is above the subject, but below the root, is
    /// what pods mount.
    fn mounted(&self, place: &str, root: &str) -> Option<String> {
        let within = below(place, root).filter(|within| !within.is_empty())?;
        (below(within, self.path).is_some() || below(self.path, within).is_some()).then(|| within.to_owned())
    }

    /// The path below the root of an open file or folder, by inode, or by name where it was unlinked since.
    fn held(&self, device: Device, own: Device, inode: u64, text: &str) -> Option<String> {
        if device != own {
            return None;
        }
        let by_inode = self.inodes.get(&inode).cloned();
        by_inode.or_else(|| {
            let within = below(text.strip_suffix(" (deleted)").unwrap_or(text), &self.root_here)?;
            below(within, self.path).map(|_| within.to_owned())
        })
    }
}

/// What of `path` lies below `folder`: empty if they are the same, none if it is elsewhere.
fn below<'path>(path: &'path str, folder: &str) -> Option<&'path str> {
    let folder = folder.trim_end_matches('/');
    let rest = path.strip_prefix(folder)?;
    if folder.is_empty() || rest.is_empty() { Some(rest.trim_start_matches('/')) } else { rest.strip_prefix('/') }
}

fn join(folder: &str, within: &str) -> String {
    if within.is_empty() { folder.to_owned() } else { format!("{}/{within}", folder.trim_end_matches('/')) }
}

fn look(proc: &Path, subject: &Subject<'_>, own: u32) -> Seen<Vec<User>> {
    let pids = match process::pids(proc) {
        Ok(pids) => pids,
        Err(error) => return Seen::Unknown(format!("processes cannot be listed: {error}")),
    };
    if !pids.contains(&1) {
        return Seen::Unknown("processes of others are hidden: there is no process 1".to_owned());
    }
    let mut found = Found { users: BTreeSet::new(), namespaces: BTreeSet::new() };
    let mut unreadable = Vec::new();
    for pid in pids {
        let process = Process::new(proc, pid);
        match found.add(&process, subject, pid == own) {
            Ok(()) | Err(Vanished::Gone) => {}
            Err(Vanished::Unreadable(why)) => unreadable.push(format!("pid {pid}: {why}")),
        }
        if found.users.len() >= USERS_MAX {
            break;
        }
    }
    match unreadable.first() {
        Some(first) if found.users.is_empty() => {
            Seen::Unknown(format!("{} processes could not be read, the first is {first}", unreadable.len()))
        }
        Some(_) | None => Seen::Present(found.users.into_iter().collect()),
    }
}

struct Found {
    users: BTreeSet<User>,
    /// Views of mounts that were looked at: namespace and root directory.
    namespaces: BTreeSet<String>,
}

impl Found {
    /// Looks at everything of a process even if one thing cannot be read; says so at the end.
    fn add(&mut self, process: &Process, subject: &Subject<'_>, is_own: bool) -> Result<(), Vanished> {
        let mounts = self.mounts(process, subject);
        let files = if is_own { Ok(()) } else { self.descriptors(process, subject) };
        let maps = self.maps(process, subject);
        let folders = self.folders(process, subject);
        // Gone in between is no trouble: what cannot be read is told first.
        let all = [mounts, files, maps, folders];
        let (mut gone, mut unreadable) = (None, None);
        for vanished in all.into_iter().filter_map(Result::err) {
            match vanished {
                Vanished::Gone => gone = Some(vanished),
                Vanished::Unreadable(_) => unreadable = unreadable.or(Some(vanished)),
            }
        }
        unreadable.or(gone).map_or(Ok(()), Err)
    }

    fn user(&mut self, source: UserSource, process: &Process, path: String) {
        self.users.insert(User { source, pid: Some(process.pid), path });
    }

    fn mounts(&mut self, process: &Process, subject: &Subject<'_>) -> Result<(), Vanished> {
        let view = process.mount_view();
        if view.as_ref().is_some_and(|view| self.namespaces.contains(view)) {
            return Ok(());
        }
        let mounts = process.mounts()?;
        // One that ended meanwhile shows no mounts: the next of its namespace is then the one to tell.
        if !mounts.is_empty() {
            self.namespaces.extend(view);
        }
        for mount in mounts {
            for path in shown(&mount, subject) {
                self.user(UserSource::Mount, process, path);
            }
        }
        Ok(())
    }

    fn descriptors(&mut self, process: &Process, subject: &Subject<'_>) -> Result<(), Vanished> {
        for held in process.descriptors()? {
            if let Some(path) = subject.held(held.device, subject.file_device, held.inode, &held.text) {
                self.user(UserSource::Descriptor, process, path);
            }
        }
        Ok(())
    }

    fn maps(&mut self, process: &Process, subject: &Subject<'_>) -> Result<(), Vanished> {
        process.each_map(|held| {
            if let Some(path) = subject.held(held.device, subject.mount_device, held.inode, &held.text) {
                self.user(UserSource::Map, process, path);
            }
        })
    }

    fn folders(&mut self, process: &Process, subject: &Subject<'_>) -> Result<(), Vanished> {
        for (name, source) in [("cwd", UserSource::WorkingDirectory), ("root", UserSource::RootDirectory)] {
            let Some(held) = process.link(name)? else { continue };
            if let Some(path) = subject.held(held.device, subject.file_device, held.inode, &held.text) {
                self.user(source, process, path);
            }
        }
        Ok(())
    }
}

/// The paths of the subject's tree that a mount shows: as a bind of our filesystem, or as a layer of an overlay, which only tells
/// the paths it was mounted from.
fn shown(mount: &Mount, subject: &Subject<'_>) -> Vec<String> {
    let mut shown = Vec::new();
    if mount.device == subject.mount_device {
        shown.extend(subject.mounted(&mount.root, &subject.root_on_device));
    }
    let layers = mount.layers.iter().filter_map(|layer| subject.mounted(layer, &subject.root_here));
    shown.extend(layers);
    shown
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests plant files as others would")]
mod tests;
