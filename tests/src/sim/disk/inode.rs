//! Inodes and names: what a filesystem holds, as it is in memory and as it would be after the power failed.
//!
//! Every change here is one atomic step; what keeps it is in [`durability`](super::durability). Deliberately absent: paths with
//! links followed, hard links, waiting.

use std::collections::{BTreeMap, BTreeSet};

use stokehold_core::file_op::{FileFault, FileKind, FileStat, Room};
use stokehold_core::listing::BLOCK;
use stokehold_core::quantity::Bytes;

use super::durability::{Change, Key};
use crate::sim::clock::Clock;

/// Inode number.
pub(super) type Ino = u64;
/// The root's.
pub(super) const ROOT: Ino = 2;
/// `u+w` of a mode.
const OWNER_WRITES: u32 = 0o200;

/// Why the kernel would not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) fault: FileFault,
    pub(super) message: String,
}

pub(super) fn refused<T>(fault: FileFault, message: &str) -> Result<T, Refused> {
    Err(Refused { fault, message: message.to_owned() })
}

/// What belongs to an inode beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) mtime_ns: i128,
    pub(super) ctime_ns: i128,
    pub(super) immutable: bool,
}

/// Content of a file.
#[derive(Debug, Default)]
pub(super) struct FileBody {
    pub(super) bytes: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// Blocks that were written and not synced.
    pub(super) dirty: BTreeSet<usize>,
}

/// Content of a folder.
#[derive(Debug, Default)]
pub(super) struct FolderBody {
    pub(super) names: BTreeMap<String, Ino>,
    pub(super) durable: BTreeMap<String, Ino>,
}

#[derive(Debug)]
pub(super) enum Body {
    File(FileBody),
    Folder(FolderBody),
    Link(String),
}

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) attributes: Attributes,
    pub(super) durable: Attributes,
    pub(super) body: Body,
}

impl Inode {
    pub(super) const fn kind(&self) -> FileKind {
        match self.body {
            Body::File(_) => FileKind::File,
            Body::Folder(_) => FileKind::Folder,
            Body::Link(_) => FileKind::Link,
        }
    }

    pub(super) fn size(&self) -> u64 {
        match &self.body {
            Body::File(file) => file.bytes.len() as u64,
            Body::Folder(_) => BLOCK,
            Body::Link(target) => target.len() as u64,
        }
    }

    fn blocks(&self) -> u64 {
        match &self.body {
            Body::File(_) | Body::Folder(_) => self.size().div_ceil(BLOCK),
            Body::Link(_) => 0,
        }
    }

    pub(super) fn stat(&self, ino: Ino) -> FileStat {
        FileStat {
            kind: self.kind(),
            size: Bytes(self.size()),
            allocated: Bytes(self.blocks() * BLOCK),
            mode: self.attributes.mode,
            inode: ino,
            mtime_ns: self.attributes.mtime_ns,
            ctime_ns: self.attributes.ctime_ns,
        }
    }
}

/// The filesystem.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) inodes: BTreeMap<Ino, Inode>,
    /// Changes of names, sizes and attributes that are not durable, in order.
    pub(super) log: Vec<Change>,
    /// Files with blocks or times that are not durable.
    pub(super) unsynced: BTreeSet<Ino>,
    /// Inodes without a name now; kept while the log may still need them.
    pub(super) nameless: BTreeSet<Ino>,
    next: Ino,
    used_blocks: u64,
    used_inodes: u64,
    capacity_blocks: u64,
    capacity_inodes: u64,
    /// Blocks that others than the agent take.
    pub(super) others_blocks: u64,
    /// Whether the agent may write whatever the mode, and set flags.
    privileged: bool,
    clock: Clock,
}

impl Store {
    pub(super) fn new(capacity: Bytes, inodes: u64, privileged: bool, clock: Clock) -> Self {
        let stamp = clock.stamp_ns();
        let attributes = Attributes { mode: 0o755, mtime_ns: stamp, ctime_ns: stamp, immutable: false };
        let root = Inode { attributes, durable: attributes, body: Body::Folder(FolderBody::default()) };
        Self {
            inodes: BTreeMap::from([(ROOT, root)]),
            log: Vec::new(),
            unsynced: BTreeSet::new(),
            nameless: BTreeSet::new(),
            next: ROOT + 1,
            used_blocks: 1,
            used_inodes: 1,
            capacity_blocks: capacity.0 / BLOCK,
            capacity_inodes: inodes,
            others_blocks: 0,
            privileged,
            clock,
        }
    }

    pub(super) fn inode(&self, ino: Ino) -> &Inode {
        self.inodes.get(&ino).expect("names lead to inodes that are there")
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("names lead to inodes that are there")
    }

    pub(super) fn folder(&self, ino: Ino) -> Result<&FolderBody, Refused> {
        match &self.inode(ino).body {
            Body::Folder(folder) => Ok(folder),
            Body::File(_) | Body::Link(_) => refused(FileFault::Foreign, "it is not a folder"),
        }
    }

    pub(super) fn folder_mut(&mut self, ino: Ino) -> &mut FolderBody {
        match &mut self.inode_mut(ino).body {
            Body::Folder(folder) => folder,
            Body::File(_) | Body::Link(_) => unreachable!("only folders are changed as folders"),
        }
    }

    pub(super) fn file(&self, ino: Ino) -> Result<&FileBody, Refused> {
        match &self.inode(ino).body {
            Body::File(file) => Ok(file),
            Body::Folder(_) | Body::Link(_) => refused(FileFault::Foreign, "it is not a regular file"),
        }
    }

    pub(super) fn file_mut(&mut self, ino: Ino) -> &mut FileBody {
        match &mut self.inode_mut(ino).body {
            Body::File(file) => file,
            Body::Folder(_) | Body::Link(_) => unreachable!("only files are changed as files"),
        }
    }

    /// What stands at a path, no link followed.
    pub(super) fn find(&self, path: &str) -> Result<Ino, Refused> {
        let mut at = ROOT;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let below = self.folder(at)?.names.get(part);
            at = *below.ok_or_else(|| Refused { fault: FileFault::NotFound, message: "ENOENT".to_owned() })?;
        }
        Ok(at)
    }

    /// The folder a path stands in, and its name there.
    pub(super) fn place<'path>(&self, path: &'path str) -> Result<(Ino, &'path str), Refused> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name.is_empty() {
            return refused(FileFault::Denied, "the root itself has no name here");
        }
        let ino = self.find(folder)?;
        self.folder(ino).map(|_folder| (ino, name))
    }

    /// Everything below a folder, parents first.
    pub(super) fn below(&self, ino: Ino) -> Vec<(String, Ino)> {
        let mut found = Vec::new();
        let mut ahead = vec![(String::new(), ino)];
        while let Some((path, ino)) = ahead.pop() {
            let Body::Folder(folder) = &self.inode(ino).body else { continue };
            for (name, child) in &folder.names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                ahead.push((path.clone(), *child));
                found.push((path, *child));
            }
        }
        found.sort();
        found
    }

    pub(super) fn room(&self) -> Room {
        let free = self.capacity_blocks.saturating_sub(self.used_blocks + self.others_blocks);
        Room {
            capacity: Bytes(self.capacity_blocks * BLOCK),
            available: Bytes(free * BLOCK),
            inodes: self.capacity_inodes,
            inodes_available: self.capacity_inodes - self.used_inodes,
        }
    }

    fn take_blocks(&mut self, before: u64, after: u64) -> Result<(), Refused> {
        let free = self.room().available.0 / BLOCK;
        if after > before && after - before > free {
            return refused(FileFault::NoSpace, "ENOSPC: No space left on device");
        }
        self.used_blocks = self.used_blocks - before + after;
        Ok(())
    }

    /// Whether names in this folder may be changed.
    fn may_change_names(&self, folder: Ino) -> Result<(), Refused> {
        let is_open = self.privileged || self.inode(folder).attributes.mode & OWNER_WRITES != 0;
        if is_open { Ok(()) } else { refused(FileFault::Denied, "EACCES: the folder is not writable") }
    }

    /// Whether this inode's name may be changed.
    fn may_move(&self, ino: Ino, between_folders: bool) -> Result<(), Refused> {
        let inode = self.inode(ino);
        if inode.attributes.immutable {
            return refused(FileFault::Denied, "EPERM: it is immutable");
        }
        let is_frozen = inode.kind() == FileKind::Folder && inode.attributes.mode & OWNER_WRITES == 0;
        if between_folders && is_frozen && !self.privileged {
            return refused(FileFault::Denied, "EACCES: a folder that may not be written cannot change its parent");
        }
        Ok(())
    }

    /// Whether the content of this file may be changed.
    pub(super) fn may_write(&self, ino: Ino) -> Result<(), Refused> {
        let attributes = self.inode(ino).attributes;
        if attributes.immutable || (!self.privileged && attributes.mode & OWNER_WRITES == 0) {
            return refused(FileFault::Denied, "EACCES: the file is not writable");
        }
        Ok(())
    }

    fn touch(&mut self, ino: Ino, content: bool) {
        let stamp = self.clock.stamp_ns();
        let attributes = &mut self.inode_mut(ino).attributes;
        attributes.ctime_ns = stamp;
        if content {
            attributes.mtime_ns = stamp;
        }
    }

    /// Makes an inode and its name.
    pub(super) fn make(&mut self, folder: Ino, name: &str, body: Body, mode: u32) -> Result<Ino, Refused> {
        if self.folder(folder)?.names.contains_key(name) {
            return refused(FileFault::Exists, "EEXIST");
        }
        self.may_change_names(folder)?;
        if self.used_inodes >= self.capacity_inodes {
            return refused(FileFault::NoSpace, "ENOSPC: no inode left");
        }
        let stamp = self.clock.stamp_ns();
        let attributes = Attributes { mode, mtime_ns: stamp, ctime_ns: stamp, immutable: false };
        let inode = Inode { attributes, durable: attributes, body };
        self.take_blocks(0, inode.blocks())?;
        let ino = self.next;
        self.next += 1;
        self.used_inodes += 1;
        self.inodes.insert(ino, inode);
        self.folder_mut(folder).names.insert(name.to_owned(), ino);
        self.touch(folder, true);
        self.log.push(Change::Names { of: vec![(folder, name.to_owned(), Some(ino))] });
        Ok(ino)
    }

    /// Takes a name away.
    pub(super) fn remove(&mut self, folder: Ino, name: &str) -> Result<(), Refused> {
        let Some(&ino) = self.folder(folder)?.names.get(name) else { return refused(FileFault::NotFound, "ENOENT") };
        self.may_change_names(folder)?;
        self.may_move(ino, false)?;
        if let Body::Folder(inside) = &self.inode(ino).body
            && !inside.names.is_empty()
        {
            return refused(FileFault::NotEmpty, "ENOTEMPTY");
        }
        self.folder_mut(folder).names.remove(name);
        self.lose_name(ino);
        self.touch(folder, true);
        self.log.push(Change::Names { of: vec![(folder, name.to_owned(), None)] });
        Ok(())
    }

    fn lose_name(&mut self, ino: Ino) {
        self.used_blocks -= self.inode(ino).blocks();
        self.used_inodes -= 1;
        self.nameless.insert(ino);
    }

    /// Moves a name. `over` says whether a file or link may be replaced; a folder never is.
    pub(super) fn rename(&mut self, from: (Ino, &str), to: (Ino, &str), over: bool) -> Result<(), Refused> {
        let Some(&ino) = self.folder(from.0)?.names.get(from.1) else { return refused(FileFault::NotFound, "ENOENT") };
        let replaced = self.folder(to.0)?.names.get(to.1).copied();
        match replaced {
            Some(_) if !over => return refused(FileFault::Exists, "EEXIST"),
            Some(there) if self.inode(there).kind() == FileKind::Folder => {
                return refused(FileFault::Exists, "a folder is in its place");
            }
            Some(there) => self.may_move(there, false)?,
            None => {}
        }
        self.may_change_names(from.0)?;
        self.may_change_names(to.0)?;
        self.may_move(ino, from.0 != to.0)?;
        self.folder_mut(from.0).names.remove(from.1);
        self.folder_mut(to.0).names.insert(to.1.to_owned(), ino);
        if let Some(replaced) = replaced {
            self.lose_name(replaced);
        }
        self.touch(ino, false);
        self.touch(from.0, true);
        self.touch(to.0, true);
        let gone = (from.0, from.1.to_owned(), None);
        self.log.push(Change::Names { of: vec![gone, (to.0, to.1.to_owned(), Some(ino))] });
        self.log_attributes(ino);
        Ok(())
    }

    /// Exchanges two names.
    pub(super) fn exchange(&mut self, one: (Ino, &str), two: (Ino, &str)) -> Result<(), Refused> {
        let first = self.folder(one.0)?.names.get(one.1).copied();
        let second = self.folder(two.0)?.names.get(two.1).copied();
        let (Some(first), Some(second)) = (first, second) else { return refused(FileFault::NotFound, "ENOENT") };
        for (folder, ino) in [(one.0, first), (two.0, second)] {
            self.may_change_names(folder)?;
            self.may_move(ino, one.0 != two.0)?;
        }
        self.folder_mut(one.0).names.insert(one.1.to_owned(), second);
        self.folder_mut(two.0).names.insert(two.1.to_owned(), first);
        for ino in [first, second] {
            self.touch(ino, false);
        }
        let names = vec![(one.0, one.1.to_owned(), Some(second)), (two.0, two.1.to_owned(), Some(first))];
        self.log.push(Change::Names { of: names });
        self.log_attributes(first);
        self.log_attributes(second);
        Ok(())
    }

    fn log_attributes(&mut self, ino: Ino) {
        let attributes = self.inode(ino).attributes;
        self.log.push(Change::Attributes { ino, attributes });
    }

    pub(super) fn set_mode(&mut self, ino: Ino, mode: u32) -> Result<(), Refused> {
        match self.inode(ino).kind() {
            FileKind::File | FileKind::Folder => {}
            FileKind::Link | FileKind::Other => return refused(FileFault::Foreign, "neither a file nor a folder"),
        }
        if self.inode(ino).attributes.immutable {
            return refused(FileFault::Denied, "EPERM: it is immutable");
        }
        self.touch(ino, false);
        self.inode_mut(ino).attributes.mode = mode;
        self.log_attributes(ino);
        Ok(())
    }

    /// Without the capability nothing happens.
    pub(super) fn set_immutable(&mut self, ino: Ino, immutable: bool) -> Result<(), Refused> {
        self.file(ino)?;
        if self.privileged && self.inode(ino).attributes.immutable != immutable {
            self.touch(ino, false);
            self.inode_mut(ino).attributes.immutable = immutable;
            self.log_attributes(ino);
        }
        Ok(())
    }

    /// Cuts a file, or lengthens it with promised blocks of zeros.
    pub(super) fn resize(&mut self, ino: Ino, size: usize) -> Result<(), Refused> {
        let before = self.file(ino)?.bytes.len();
        self.may_write(ino)?;
        if before == size {
            return Ok(());
        }
        self.take_blocks((before as u64).div_ceil(BLOCK), (size as u64).div_ceil(BLOCK))?;
        let file = self.file_mut(ino);
        file.bytes.resize(size, 0);
        // What is beyond the end was never written.
        let _beyond = file.dirty.split_off(&size.div_ceil(BLOCK as usize));
        self.touch(ino, true);
        self.unsynced.insert(ino);
        self.log.push(Change::Size { ino, size });
        Ok(())
    }

    /// Writes within the file's length, or lengthens it.
    pub(super) fn write(&mut self, ino: Ino, offset: usize, bytes: &[u8]) -> Result<(), Refused> {
        self.may_write(ino)?;
        let end = offset + bytes.len();
        if end > self.file(ino)?.bytes.len() {
            self.resize(ino, end)?;
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let file = self.file_mut(ino);
        file.bytes[offset..end].copy_from_slice(bytes);
        file.dirty.extend(offset / BLOCK as usize..end.div_ceil(BLOCK as usize));
        self.touch(ino, true);
        self.unsynced.insert(ino);
        Ok(())
    }

    /// Counts everything anew, after the power failed.
    pub(super) fn recount(&mut self) {
        self.used_blocks = self.inodes.values().map(Inode::blocks).sum();
        self.used_inodes = self.inodes.len() as u64;
    }

    /// Makes an inode's own changes of this kind durable, and all that they depend on.
    pub(super) fn keep(&mut self, key: Key) {
        self.flush(std::iter::once(key).collect());
    }
}
