//! What others do to the disk: pods that begin and end, files of strangers, people who touch what they should not. And what the
//! start of an agent does before its loop runs.
//!
//! All of it is durable at once: it is the agent's carelessness that is on trial here.

use stokehold_core::layout::{condemned, deployments, marker};
use stokehold_core::quantity::Bytes;
use stokehold_core::record::{TreeRecord, encode};

use super::SimDisk;
use super::inode::{Body, FileBody, FolderBody, Ino, Store};
use super::pod::{PodId, Use};
use super::watch::caches;

/// Folders that an agent sweeps at its start, beside the root: those of each cache that it writes small files and links to.
const SWEPT: &[&str] = &["", "/empty", "/incoming", "/snapshots"];

impl SimDisk {
    /// What taking the root does at each start: the marker, the two folders, and the sweep of what was left aside.
    pub fn open_root(&self) {
        let mut state = self.state();
        let store = &mut state.store;
        for (folder, mode) in [(deployments(), 0o755), (condemned(), 0o700)] {
            if store.find(folder.as_str()).is_err() {
                put(store, folder.as_str(), Body::Folder(FolderBody::default()), mode);
            }
        }
        let mut swept: Vec<String> = vec![String::new()];
        for cache in caches(store) {
            swept.extend(SWEPT.iter().map(|name| format!("{cache}{name}")));
        }
        for folder in swept {
            sweep(store, &folder);
        }
        if store.find(marker().as_str()).is_err() {
            let bytes = encode(&TreeRecord::default());
            put(store, marker().as_str(), Body::File(FileBody { bytes, ..FileBody::default() }), 0o644);
        }
        store.sync_all();
    }

    /// Puts a file there that is not the agent's. Missing folders are made.
    pub fn plant_file(&self, path: &str, bytes: &[u8]) {
        let file = FileBody { bytes: bytes.to_vec(), ..FileBody::default() };
        self.plant(path, Body::File(file), 0o644);
    }

    /// Puts a symbolic link there that is not the agent's.
    pub fn plant_link(&self, path: &str, target: &str) {
        self.plant(path, Body::Link(target.to_owned()), 0o777);
    }

    fn plant(&self, path: &str, body: Body, mode: u32) {
        self.0.scene.say(format_args!("others put {path} there"));
        let mut state = self.state();
        make_folders(&mut state.store, path);
        put(&mut state.store, path, body, mode);
        state.store.sync_all();
        state.watch.add_foreign(path);
    }

    /// Makes a folder as a kubelet does that mounts what is not there; it is the agent's to adopt.
    pub fn make_folder(&self, path: &str) {
        self.0.scene.say(format_args!("others make the folder {path}"));
        let mut state = self.state();
        make_folders(&mut state.store, &format!("{path}/x"));
        state.store.sync_all();
    }

    /// Others on the filesystem take so many bytes now.
    pub fn others_take(&self, bytes: Bytes) {
        self.0.scene.say(format_args!("others take {bytes}"));
        self.state().store.others_blocks = bytes.0 / stokehold_core::listing::BLOCK;
    }

    /// A pod begins to use what is current in the folder of a cache (`deployments/ns/name`); nothing where that is not there.
    pub fn pod_begins(&self, cache: &str, how: Use) -> Option<PodId> {
        let mut state = self.state();
        let folder = state.store.find(cache).ok()?;
        let target = state.store.target(&format!("{cache}/current")).unwrap_or("empty").to_owned();
        let snapshot =
            if target.starts_with("snapshots/") { state.store.find(&format!("{cache}/{target}")).ok() } else { None };
        if snapshot.is_none() && how != Use::Mount {
            return None;
        }
        let state = &mut *state;
        let id = state.pods.begin(&state.store, how, folder, snapshot);
        self.0.scene.say(format_args!("{id:?} begins: {how:?} of {cache} ({target})"));
        Some(id)
    }

    /// Labels name these snapshots now, by folder of their cache.
    pub fn set_labelled(&self, named: std::collections::BTreeMap<String, String>) {
        let mut state = self.state();
        let state = &mut *state;
        if let Err(broken) = state.watch.set_labelled(&state.store, named) {
            self.0.scene.broke(&broken);
        }
    }

    /// A pod ends.
    pub fn pod_ends(&self, id: PodId) {
        self.0.scene.say(format_args!("{id:?} ends"));
        self.state().pods.end(id);
    }

    /// Pods there are.
    #[must_use]
    pub fn pods(&self) -> Vec<PodId> {
        self.state().pods.ids()
    }

    /// Paths below the root that a choice is made from: files that are published now.
    #[must_use]
    pub fn published_files(&self) -> Vec<String> {
        let state = self.state();
        let mut files = Vec::new();
        for cache in caches(&state.store) {
            let folder = format!("{cache}/snapshots");
            let Ok(ino) = state.store.find(&folder) else { continue };
            let below = state.store.below(ino).into_iter();
            let inside = below.filter(|(path, ino)| path.contains('/') && state.store.file(*ino).is_ok());
            files.extend(inside.map(|(path, _)| format!("{folder}/{path}")));
        }
        files
    }

    /// Somebody changes the times of a published file: nothing is lost, but the agent must look.
    pub fn touch(&self, path: &str) {
        self.0.scene.say(format_args!("others touch {path}"));
        let mut state = self.state();
        if let Ok(ino) = state.store.find(path) {
            let stamp = self.0.scene.clock.stamp_ns();
            state.store.inode_mut(ino).attributes.ctime_ns = stamp;
            state.store.unsynced.insert(ino);
            state.store.sync_all();
        }
    }

    /// Somebody with root's rights writes into a published file. What is wrong with it from now on is not the agent's doing.
    pub fn spoil(&self, path: &str) {
        self.0.scene.say(format_args!("others write into {path}"));
        let stamp = self.0.scene.clock.stamp_ns();
        let mut state = self.state();
        let folder = path.split('/').take(5).collect::<Vec<_>>().join("/");
        if let (Ok(ino), Ok(snapshot)) = (state.store.find(path), state.store.find(&folder)) {
            let inode = state.store.inode_mut(ino);
            (inode.attributes.mtime_ns, inode.attributes.ctime_ns) = (stamp, stamp);
            let file = state.store.file_mut(ino);
            if let Some(byte) = file.bytes.first_mut() {
                *byte ^= 0x5a;
                file.dirty.insert(0);
            }
            state.store.unsynced.insert(ino);
            state.store.sync_all();
            state.watch.excuse(snapshot);
        }
    }

    /// Content of a file as it is now.
    #[must_use]
    pub fn peek(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let ino = state.store.find(path).ok()?;
        state.store.file(ino).ok().map(|file| file.bytes.clone())
    }

    /// Target of a link as it is now.
    #[must_use]
    pub fn peek_link(&self, path: &str) -> Option<String> {
        self.state().store.target(path).ok().map(str::to_owned)
    }

    /// All paths there are, sorted.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let state = self.state();
        state.store.below(super::inode::ROOT).into_iter().map(|(path, _)| path).collect()
    }
}

fn put(store: &mut Store, path: &str, body: Body, mode: u32) -> Option<Ino> {
    let (folder, name) = store.place(path).ok()?;
    let ino = store.make(folder, name, body, mode).ok()?;
    if let Ok(file) = store.file(ino) {
        let blocks = file.bytes.len().div_ceil(stokehold_core::listing::BLOCK as usize);
        store.file_mut(ino).dirty.extend(0..blocks);
        store.unsynced.insert(ino);
    }
    Some(ino)
}

fn make_folders(store: &mut Store, path: &str) {
    for (at, _) in path.match_indices('/') {
        if store.find(&path[..at]).is_err() {
            put(store, &path[..at], Body::Folder(FolderBody::default()), 0o755);
        }
    }
}

fn sweep(store: &mut Store, folder: &str) {
    let Ok(ino) = store.find(folder) else { return };
    let names: Vec<String> = store.folder(ino).map(|folder| folder.names.keys().cloned().collect()).unwrap_or_default();
    for name in names.iter().filter(|name| name.starts_with('.') && name.ends_with(".aside")) {
        // What cannot be swept stays, as in the real one.
        let _stays = store.remove(ino, name);
    }
}
