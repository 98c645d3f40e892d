//! Pods that use what is published, as the kernel would show them, or would not.
//!
//! Deliberately absent: what pods do with the bytes.

use std::collections::{BTreeMap, BTreeSet};

use stokehold_core::file_op::{User, UserSource};
use stokehold_core::seen::Seen;

use super::State;
use super::inode::{Ino, Refused, Store};

/// Names a pod of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId(pub u64);

/// How a pod uses what it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It mounts the folder of the cache, and reads the snapshot that was current when it began and every later one.
    Mount,
    /// It has a bind of one snapshot.
    Bind,
    /// It has files of one snapshot open.
    Open,
    /// It has files of one snapshot mapped and their descriptors closed in another PID namespace: only a lease tells.
    Hidden,
}

/// One pod.
#[derive(Debug, Clone)]
struct Pod {
    how: Use,
    /// The folder it has mounted or bound.
    folder: Ino,
    /// Folders of the snapshots it uses.
    snapshots: BTreeSet<Ino>,
    /// Files it uses.
    files: BTreeSet<Ino>,
}

/// All pods.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pods: BTreeMap<PodId, Pod>,
    next: u64,
}

impl Pods {
    /// A pod that has this file, mounted, open or mapped.
    pub(super) fn hold(&self, ino: Ino) -> Option<PodId> {
        self.pods.iter().find(|(_, pod)| pod.files.contains(&ino)).map(|(id, _)| *id)
    }

    /// Whether a write lease on this file is refused.
    pub(super) fn has_open(&self, ino: Ino) -> bool {
        let open = |pod: &Pod| matches!(pod.how, Use::Open | Use::Hidden) && pod.files.contains(&ino);
        self.pods.values().any(open)
    }

    /// A pod that finds this snapshot only by its path.
    pub(super) fn needs_path(&self, snapshot: Ino) -> Option<PodId> {
        let needs = |pod: &Pod| pod.how == Use::Mount && pod.snapshots.contains(&snapshot);
        self.pods.iter().find(|(_, pod)| needs(pod)).map(|(id, _)| *id)
    }

    /// A snapshot became current: whoever mounts the folder may use it from now on.
    pub(super) fn became_current(&mut self, store: &Store, cache: Ino, snapshot: Ino) {
        for pod in self.pods.values_mut().filter(|pod| pod.how == Use::Mount && pod.folder == cache) {
            if pod.snapshots.insert(snapshot) {
                pod.files.extend(files(store, snapshot));
            }
        }
    }

    pub(super) fn power_loss(&mut self) {
        self.pods.clear();
    }

    pub(super) fn begin(&mut self, store: &Store, how: Use, cache: Ino, snapshot: Option<Ino>) -> PodId {
        let folder = if how == Use::Mount { cache } else { snapshot.unwrap_or(cache) };
        let pod = Pod {
            how,
            folder,
            snapshots: snapshot.into_iter().collect(),
            files: snapshot.map(|snapshot| files(store, snapshot)).unwrap_or_default(),
        };
        self.next += 1;
        let id = PodId(self.next);
        self.pods.insert(id, pod);
        id
    }

    pub(super) fn end(&mut self, id: PodId) {
        self.pods.remove(&id);
    }

    pub(super) fn ids(&self) -> Vec<PodId> {
        self.pods.keys().copied().collect()
    }
}

fn files(store: &Store, folder: Ino) -> BTreeSet<Ino> {
    store.below(folder).into_iter().map(|(_, ino)| ino).filter(|ino| store.file(*ino).is_ok()).collect()
}

impl State {
    /// What the kernel shows of the users of a path.
    pub(super) fn users(&mut self, path: &str) -> Result<Seen<Vec<User>>, Refused> {
        let subject = self.store.find(path)?;
        let unknown_ppm = self.faults.users_unknown_ppm;
        if self.rng.chance(unknown_ppm) {
            return Ok(Seen::Unknown("pid 7: could not be read (injected)".to_owned()));
        }
        let mut inside: BTreeSet<Ino> = self.store.below(subject).into_iter().map(|(_, ino)| ino).collect();
        inside.insert(subject);
        let above: BTreeSet<Ino> = ancestors(&self.store, path);
        let mut users = Vec::new();
        for (id, pod) in &self.pods.pods {
            let (source, is_user) = match pod.how {
                Use::Mount | Use::Bind => {
                    (UserSource::Mount, inside.contains(&pod.folder) || above.contains(&pod.folder))
                }
                Use::Open => (UserSource::Descriptor, pod.files.iter().any(|file| inside.contains(file))),
                Use::Hidden => (UserSource::Lease, false),
            };
            if is_user {
                let pid = u32::try_from(1_000 + id.0).ok();
                users.push(User { source, pid, path: path.to_owned() });
            }
        }
        Ok(Seen::Present(users))
    }
}

/// Folders that a path goes through, without the root.
fn ancestors(store: &Store, path: &str) -> BTreeSet<Ino> {
    path.match_indices('/').filter_map(|(at, _)| store.find(&path[..at]).ok()).collect()
}
