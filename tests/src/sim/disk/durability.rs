//! What is left when the power fails.
//!
//! Changes of names, sizes and attributes stand in one log; a sync makes those of one inode durable with all that came before them
//! in the same places. When the power fails some of the rest survive, in the order of each place; blocks of data that were not
//! synced are there, are not, or are torn. Weaker than any journal we know of, on purpose. Deliberately absent: bit rot.

use std::collections::BTreeSet;

use stokehold_core::listing::BLOCK;

use super::inode::{Attributes, Body, FolderBody, Ino, ROOT, Store};
use crate::sim::rng::Rng;

/// What a disk writes at once, whatever happens.
const SECTOR: usize = 512;

/// A place whose changes stay in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Names(Ino),
    Size(Ino),
    Attributes(Ino),
}

/// One change that is not durable yet.
#[derive(Debug)]
pub(super) enum Change {
    /// Names that lead elsewhere or nowhere now, all at once.
    Names {
        of: Vec<(Ino, String, Option<Ino>)>,
    },
    Size {
        ino: Ino,
        size: usize,
    },
    Attributes {
        ino: Ino,
        attributes: Attributes,
    },
}

impl Change {
    fn touches(&self, key: &impl Fn(Key) -> bool) -> bool {
        match self {
            Self::Names { of } => of.iter().any(|(folder, _, _)| key(Key::Names(*folder))),
            Self::Size { ino, .. } => key(Key::Size(*ino)),
            Self::Attributes { ino, .. } => key(Key::Attributes(*ino)),
        }
    }

    fn mark(&self, keys: &mut BTreeSet<Key>) {
        match self {
            Self::Names { of } => keys.extend(of.iter().map(|(folder, _, _)| Key::Names(*folder))),
            Self::Size { ino, .. } => drop(keys.insert(Key::Size(*ino))),
            Self::Attributes { ino, .. } => drop(keys.insert(Key::Attributes(*ino))),
        }
    }
}

/// How much of what was not synced survives.
#[derive(Debug, Clone, Copy)]
struct Luck {
    /// How often a change is lost, in a million.
    change_lost_ppm: u32,
    /// How often a block is lost, and how often torn.
    block_lost_ppm: u32,
    block_torn_ppm: u32,
}

impl Store {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Names { of } => {
                for (folder, name, to) in of {
                    let durable = &mut self.folder_mut(*folder).durable;
                    match to {
                        Some(ino) => drop(durable.insert(name.clone(), *ino)),
                        None => drop(durable.remove(name)),
                    }
                }
            }
            Change::Size { ino, size } => self.file_mut(*ino).durable.resize(*size, 0),
            Change::Attributes { ino, attributes } => self.inode_mut(*ino).durable = *attributes,
        }
    }

    /// Makes durable what these places hold, and what must have come before.
    pub(super) fn flush(&mut self, mut keys: BTreeSet<Key>) {
        let mut kept = vec![false; self.log.len()];
        for (at, change) in self.log.iter().enumerate().rev() {
            if change.touches(&|key| keys.contains(&key)) {
                change.mark(&mut keys);
                kept[at] = true;
            }
        }
        let log = std::mem::take(&mut self.log);
        for (change, kept) in log.into_iter().zip(kept) {
            if kept { self.apply(&change) } else { self.log.push(change) }
        }
        self.forget_nameless();
    }

    /// Without a log nothing leads back to an inode that lost its name.
    fn forget_nameless(&mut self) {
        if self.log.is_empty() {
            for ino in std::mem::take(&mut self.nameless) {
                self.inodes.remove(&ino);
                self.unsynced.remove(&ino);
            }
        }
    }

    /// `fdatasync`: blocks and length.
    pub(super) fn sync_blocks(&mut self, ino: Ino) {
        self.keep(Key::Size(ino));
        let file = self.file_mut(ino);
        if file.durable.len() != file.bytes.len() {
            file.durable.resize(file.bytes.len(), 0);
        }
        for block in std::mem::take(&mut file.dirty) {
            copy(&mut file.durable, &file.bytes, block * BLOCK as usize, BLOCK as usize);
        }
    }

    /// `fsync` of a file: blocks, length and attributes.
    pub(super) fn sync_file(&mut self, ino: Ino) {
        self.sync_blocks(ino);
        self.keep(Key::Attributes(ino));
        let inode = self.inode_mut(ino);
        inode.durable = inode.attributes;
        self.unsynced.remove(&ino);
    }

    /// `fsync` of a folder: its names and attributes.
    pub(super) fn sync_folder(&mut self, ino: Ino) {
        self.keep(Key::Names(ino));
        self.keep(Key::Attributes(ino));
    }

    /// `syncfs`: everything.
    pub(super) fn sync_all(&mut self) {
        for change in std::mem::take(&mut self.log) {
            self.apply(&change);
        }
        self.forget_nameless();
        for ino in std::mem::take(&mut self.unsynced) {
            self.sync_file(ino);
        }
    }

    /// A sync that failed: the kernel may take what it could not write for clean and forget it.
    pub(super) fn fail_sync(&mut self, ino: Ino, rng: &mut Rng) {
        let Body::File(file) = &mut self.inode_mut(ino).body else { return };
        let dirty: Vec<usize> = file.dirty.iter().copied().collect();
        for block in dirty {
            if rng.chance(500_000) {
                file.dirty.remove(&block);
                let end = file.bytes.len().min((block + 1) * BLOCK as usize);
                for at in block * BLOCK as usize..end {
                    file.bytes[at] = file.durable.get(at).copied().unwrap_or(0);
                }
            }
        }
    }

    /// The power fails: what was not durable is lost, but for what chance kept.
    pub(super) fn power_loss(&mut self, rng: &mut Rng) {
        let luck = Luck {
            change_lost_ppm: *rng.pick(&[0, 100_000, 300_000, 700_000, 1_000_000]),
            block_lost_ppm: *rng.pick(&[0, 300_000, 700_000, 1_000_000]),
            block_torn_ppm: *rng.pick(&[0, 200_000]),
        };
        let mut lost = BTreeSet::new();
        for change in std::mem::take(&mut self.log) {
            if change.touches(&|key| lost.contains(&key)) || rng.chance(luck.change_lost_ppm) {
                change.mark(&mut lost);
            } else {
                self.apply(&change);
            }
        }
        for ino in std::mem::take(&mut self.unsynced) {
            self.lose_blocks(ino, luck, rng);
        }
        self.nameless.clear();
        self.come_back();
    }

    fn lose_blocks(&mut self, ino: Ino, luck: Luck, rng: &mut Rng) {
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        if !rng.chance(luck.change_lost_ppm) {
            let live = inode.attributes;
            (inode.durable.mtime_ns, inode.durable.ctime_ns) = (live.mtime_ns, live.ctime_ns);
        }
        let Body::File(file) = &mut inode.body else { return };
        for block in std::mem::take(&mut file.dirty) {
            let start = block * BLOCK as usize;
            if rng.chance(luck.block_torn_ppm) {
                for sector in 0..BLOCK as usize / SECTOR {
                    if rng.chance(500_000) {
                        copy(&mut file.durable, &file.bytes, start + sector * SECTOR, SECTOR);
                    }
                }
            } else if !rng.chance(luck.block_lost_ppm) {
                copy(&mut file.durable, &file.bytes, start, BLOCK as usize);
            }
        }
    }

    /// What is durable is what there is.
    fn come_back(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut ahead = vec![ROOT];
        while let Some(ino) = ahead.pop() {
            if let Body::Folder(folder) = &self.inode(ino).body {
                let below: Vec<Ino> = folder.durable.values().copied().collect();
                ahead.extend(below.iter().filter(|ino| reached.insert(**ino)));
            }
        }
        self.inodes.retain(|ino, _| reached.contains(ino));
        for inode in self.inodes.values_mut() {
            inode.attributes = inode.durable;
            match &mut inode.body {
                Body::File(file) => file.bytes.clone_from(&file.durable),
                Body::Folder(FolderBody { names, durable }) => names.clone_from(durable),
                Body::Link(_) => {}
            }
        }
        self.recount();
    }
}

/// Copies bytes of a block where both have them.
fn copy(to: &mut [u8], from: &[u8], start: usize, length: usize) {
    let end = (start + length).min(to.len()).min(from.len());
    if start < end {
        to[start..end].copy_from_slice(&from[start..end]);
    }
}
