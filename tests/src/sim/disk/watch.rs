//! Promises that can be checked on the disk, checked after every step that could break them.
//!
//! P1 and P2: what `current` leads to, and what a manifest vouches for, is one version of the origin, byte by byte. P4: promises fit
//! the disk. P5: what a pod uses is not changed, removed, or moved from under it. P6: what a label names is there. P8: what others
//! put there stays. Deliberately absent: what only the whole story shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use stokehold_core::layout::marker;
use stokehold_core::record::{Manifest, TreeRecord, decode};
use stokehold_core::verification::first_difference;

use super::inode::{Body, Ino, Store};
use super::pod::Pods;
use crate::sim::truth::Truth;

/// What a step does, where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch<'a> {
    /// Changes content.
    Content(&'a str),
    /// Makes something, or finds it made.
    Made(&'a str),
    /// Changes mode or flags.
    Attributes(&'a str),
    /// Takes the name away.
    Gone(&'a str),
    /// Gives what stands at the first name the second, perhaps in exchange.
    Move(&'a str, &'a str),
    /// Makes something durable.
    Sync(&'a str),
}

impl fmt::Display for Touch<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(path) => write!(out, "writing {path}"),
            Self::Made(path) => write!(out, "making {path}"),
            Self::Attributes(path) => write!(out, "setting attributes of {path}"),
            Self::Gone(path) => write!(out, "removing {path}"),
            Self::Move(from, to) => write!(out, "moving {from} to {to}"),
            Self::Sync(path) => write!(out, "syncing {path}"),
        }
    }
}

/// Remembers what must stay as it is.
#[derive(Debug)]
pub(super) struct Watch {
    truth: Truth,
    /// Paths that others put there.
    foreign: BTreeSet<String>,
    /// Snapshot folders and manifests that were found true together.
    found_true: BTreeSet<(Ino, Ino)>,
    /// Snapshot folders that somebody else spoiled, or that were given up with what they vouched for.
    excused: BTreeSet<Ino>,
    /// Snapshots that labels name, by folder of their cache.
    labelled: BTreeMap<String, String>,
}

/// A path below the folder of a cache: that folder, and the rest.
fn of_cache(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("deployments/")?;
    let (namespace, rest) = rest.split_once('/')?;
    let name = rest.split('/').next()?;
    let length = "deployments/".len() + namespace.len() + 1 + name.len();
    Some((&path[..length], path.get(length + 1..).unwrap_or_default()))
}

/// Whether a path is within a published snapshot.
fn is_published(path: &str) -> bool {
    let within = of_cache(path).and_then(|(_, rest)| rest.strip_prefix("snapshots/"));
    within.is_some_and(|rest| rest.contains('/'))
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Watch {
    pub(super) const fn new(truth: Truth) -> Self {
        Self {
            truth,
            foreign: BTreeSet::new(),
            found_true: BTreeSet::new(),
            excused: BTreeSet::new(),
            labelled: BTreeMap::new(),
        }
    }

    pub(super) fn add_foreign(&mut self, path: &str) {
        self.foreign.insert(path.to_owned());
    }

    pub(super) fn excuse(&mut self, snapshot: Ino) {
        self.excused.insert(snapshot);
    }

    /// The promise that this step would break if it were done.
    pub(super) fn hazard(&self, store: &Store, pods: &Pods, touch: &Touch<'_>) -> Option<String> {
        let (path, moves) = match *touch {
            Touch::Content(path) | Touch::Made(path) | Touch::Attributes(path) => (path, false),
            Touch::Gone(path) | Touch::Move(path, _) => (path, true),
            Touch::Sync(_) => return None,
        };
        let to = if let Touch::Move(_, to) = *touch { to } else { path };
        let of_others = |foreign: &&String| {
            is_within(path, foreign) || is_within(to, foreign) || (moves && is_within(foreign, path))
        };
        if let Some(foreign) = self.foreign.iter().find(of_others) {
            return Some(format!("P8: {touch}, and {foreign} is not ours"));
        }
        let ino = store.find(path).ok()?;
        let is_file = matches!(store.inode(ino).body, Body::File(_));
        match touch {
            Touch::Content(_) | Touch::Gone(_) | Touch::Made(_) | Touch::Attributes(_)
                if is_published(path) && is_file =>
            {
                Some(format!("P1: {touch} under its published name"))
            }
            Touch::Content(_) | Touch::Gone(_) => pods.hold(ino).map(|pod| format!("P5: {touch}, which {pod:?} uses")),
            Touch::Move(..) => pods.needs_path(ino).map(|pod| format!("P5: {touch}, whose path {pod:?} uses")),
            Touch::Made(_) | Touch::Attributes(_) | Touch::Sync(_) => None,
        }
    }

    /// Checks what a step that was done may have broken.
    pub(super) fn after(&mut self, store: &Store, pods: &mut Pods, touch: &Touch<'_>) -> Result<(), String> {
        let paths = match *touch {
            Touch::Gone(path) => [path, path],
            Touch::Move(from, to) => [from, to],
            Touch::Content(_) | Touch::Made(_) | Touch::Attributes(_) | Touch::Sync(_) => return Ok(()),
        };
        if paths[1] == marker().as_str() {
            promises_fit(store)?;
        }
        let mut judged = "";
        for path in paths {
            let Some((cache, rest)) = of_cache(path) else { continue };
            let matters = rest.is_empty() || rest.starts_with("current") || rest.starts_with("snapshots");
            if matters && judged != cache {
                judged = cache;
                self.judge(store, pods, cache)?;
            }
        }
        Ok(())
    }

    /// Labels name these snapshots now.
    pub(super) fn set_labelled(&mut self, store: &Store, named: BTreeMap<String, String>) -> Result<(), String> {
        self.labelled = named;
        self.labelled.keys().try_for_each(|cache| self.label_is_true(store, cache))
    }

    /// What a label names is there.
    fn label_is_true(&self, store: &Store, cache: &str) -> Result<(), String> {
        let Some(id) = self.labelled.get(cache) else { return Ok(()) };
        let folder = store.find(&format!("{cache}/snapshots/{id}"));
        let manifest = store.find(&format!("{cache}/snapshots/{id}.json"));
        match (folder, manifest) {
            (Ok(_), Ok(_)) => Ok(()),
            // It was a lie from the moment that somebody else spoiled it, and the agent may find that no report gets through.
            (Ok(folder), Err(_)) if self.excused.contains(&folder) => Ok(()),
            (folder, _) => {
                let what = if folder.is_ok() { "manifest" } else { "folder" };
                Err(format!("P6: a label names {id} of {cache}, and its {what} is not there"))
            }
        }
    }

    /// Checks one cache.
    fn judge(&mut self, store: &Store, pods: &mut Pods, cache: &str) -> Result<(), String> {
        self.label_is_true(store, cache)?;
        let Ok(folder) = store.find(cache) else { return Ok(()) };
        let mut current = None;
        if let Ok(target) = store.target(&format!("{cache}/current")) {
            let led = store.find(&format!("{cache}/{target}"));
            let led = led.map_err(|_gone| format!("P1: {cache}/current dangles: {target} is not there"))?;
            if let Some(id) = target.strip_prefix("snapshots/") {
                current = Some(id.to_owned());
                pods.became_current(store, folder, led);
            }
        }
        for (id, (snapshot, manifest)) in published(store, cache) {
            let is_current = current.as_deref() == Some(&id);
            let Some(snapshot) = snapshot else { continue };
            if self.excused.contains(&snapshot) {
                continue;
            }
            let Some(manifest) = manifest else {
                if is_current {
                    return Err(format!("P1: {cache}/current leads to {id}, which has no manifest"));
                }
                continue;
            };
            if !self.found_true.contains(&(snapshot, manifest)) {
                let path = format!("{cache}/snapshots/{id}");
                let is_true = self.judge_snapshot(store, &path, manifest, is_current);
                if is_true.map_err(|wrong| format!("P1: {path}: {wrong}"))? {
                    self.found_true.insert((snapshot, manifest));
                }
            }
        }
        Ok(())
    }

    /// Whether a snapshot is vouched for; then it was found true.
    fn judge_snapshot(&self, store: &Store, path: &str, manifest: Ino, is_current: bool) -> Result<bool, String> {
        let text = store.file(manifest).map_err(|refused| refused.message)?;
        let manifest: Manifest = match decode(&text.bytes) {
            Ok(manifest) => manifest,
            Err(error) if is_current => return Err(format!("is current, and its manifest {error}")),
            Err(_unreadable) => return Ok(false),
        };
        let entries = store.walk(path).map_err(|refused| refused.message)?;
        if first_difference(&manifest, &entries).is_some() && !is_current {
            return Ok(false);
        }
        let files = entries.iter().filter(|entry| store.file(entry.stat.inode).is_ok()).count();
        if files != manifest.files.len() {
            return Err(format!("{files} files, and its manifest has {}", manifest.files.len()));
        }
        let bytes_of = |file: &str| {
            let ino = store.find(&format!("{path}/{file}")).ok()?;
            store.file(ino).ok().map(|file| file.bytes.as_slice())
        };
        self.truth.judge(&manifest, bytes_of).map(|()| true)
    }

    /// Checks every cache anew, as after a power loss: what was found true before may not be any more.
    pub(super) fn judge_all(&mut self, store: &Store, pods: &mut Pods) -> Result<(), String> {
        self.found_true.clear();
        self.labelled.keys().try_for_each(|cache| self.label_is_true(store, cache))?;
        for cache in caches(store) {
            self.judge(store, pods, &cache)?;
        }
        self.foreign_is_there(store)
    }

    fn foreign_is_there(&self, store: &Store) -> Result<(), String> {
        let gone = self.foreign.iter().find(|path| store.find(path).is_err());
        gone.map_or(Ok(()), |path| Err(format!("P8: {path} is not ours, and is gone")))
    }
}

/// Snapshot folders and manifests of a cache, by id.
fn published(store: &Store, cache: &str) -> BTreeMap<String, (Option<Ino>, Option<Ino>)> {
    let mut found: BTreeMap<String, (Option<Ino>, Option<Ino>)> = BTreeMap::new();
    let Ok(snapshots) = store.find(&format!("{cache}/snapshots")) else { return found };
    let Ok(folder) = store.folder(snapshots) else { return found };
    for (name, ino) in &folder.names {
        match (name.strip_suffix(".json"), &store.inode(*ino).body) {
            (Some(id), Body::File(_)) => found.entry(id.to_owned()).or_default().1 = Some(*ino),
            (None, Body::Folder(_)) => found.entry(name.clone()).or_default().0 = Some(*ino),
            (Some(_) | None, Body::File(_) | Body::Folder(_) | Body::Link(_)) => {}
        }
    }
    found
}

/// Folders of caches.
pub(super) fn caches(store: &Store) -> Vec<String> {
    let below = |path: &str| -> Vec<String> {
        let folder = store.find(path).ok().and_then(|ino| store.folder(ino).ok());
        folder.map(|folder| folder.names.keys().map(|name| format!("{path}/{name}")).collect()).unwrap_or_default()
    };
    below("deployments").iter().flat_map(|namespace| below(namespace)).collect()
}

fn promises_fit(store: &Store) -> Result<(), String> {
    let Ok(file) = store.find(marker().as_str()).and_then(|ino| store.file(ino)) else { return Ok(()) };
    let Ok(record) = TreeRecord::decode(&file.bytes) else { return Ok(()) };
    let promised: u64 = record.promised.values().map(|bytes| bytes.0).sum();
    let capacity = store.room().capacity.0;
    if promised > capacity {
        return Err(format!("P4: {promised} bytes are promised, and the disk has {capacity}"));
    }
    Ok(())
}
