//! The real world: this machine's disk, the origins, the data plane, the clocks, and a file that the report goes to.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stokehold_core::file_op::{Answer, FileError, FileFault, FileOp};
use stokehold_core::observed::{QuotaMechanism, Storage};
use stokehold_core::port::Disk;
use stokehold_core::report::Report;
use stokehold_core::seen::Seen;
use stokehold_core::time::{BootId, Now};
use stokehold_host::root::CacheRoot;
use stokehold_host::{disk, machine};
use stokehold_origin::origins::Origins;

use crate::data_plane::DataPlane;
use crate::world::{RootFacts, Unreported, World};

/// A disk whose operations run on threads that may wait.
#[derive(Debug, Clone)]
pub struct NodeDisk(CacheRoot);

impl NodeDisk {
    /// Below this root.
    #[must_use]
    pub const fn new(root: CacheRoot) -> Self {
        Self(root)
    }
}

impl Disk for NodeDisk {
    async fn perform(&self, op: FileOp) -> Result<Answer, FileError> {
        let root = self.0.clone();
        let (act, path) = op.act();
        let done = tokio::task::spawn_blocking(move || disk::perform(&root, &op)).await;
        done.unwrap_or_else(|ended| {
            let message = format!("the thread that did it ended: {ended}");
            Err(FileError { act, path: path.to_string(), fault: FileFault::Io, message })
        })
    }

    async fn pause(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }
}

/// What an operator sets about head-room, percent of the filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadroomPercent {
    /// Of bytes.
    pub bytes: u64,
    /// Of inodes.
    pub inodes: u64,
}

/// The real world. Clones share it.
#[derive(Debug, Clone)]
pub struct Node(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    root: CacheRoot,
    disk: NodeDisk,
    origins: Origins,
    data_plane: DataPlane,
    boot_id: BootId,
    headroom: HeadroomPercent,
    report_file: Option<PathBuf>,
}

impl Node {
    /// Of this root. `report_file` is where reports go; a one-off stage has none.
    #[must_use]
    pub fn new(
        root: CacheRoot,
        origins: Origins,
        data_plane: DataPlane,
        boot_id: BootId,
        headroom: HeadroomPercent,
        report_file: Option<PathBuf>,
    ) -> Self {
        let disk = NodeDisk::new(root.clone());
        Self(Arc::new(Parts { root, disk, origins, data_plane, boot_id, headroom, report_file }))
    }
}

impl World for Node {
    type Disk = NodeDisk;
    type Origin = Origins;
    type Fetch = DataPlane;

    fn disk(&self) -> &NodeDisk {
        &self.0.disk
    }

    fn origin(&self) -> &Origins {
        &self.0.origins
    }

    fn fetch(&self) -> &DataPlane {
        &self.0.data_plane
    }

    fn now(&self) -> Now {
        machine::now(&self.0.boot_id)
    }

    fn random(&self) -> u64 {
        machine::random()
    }

    fn root(&self) -> Seen<RootFacts> {
        match self.0.root.is_in_place() {
            Ok(true) => {}
            Ok(false) => {
                let path = self.0.root.path().display();
                return Seen::Unknown(format!(
                    "{path} leads to another folder than the one this agent has taken; restart it"
                ));
            }
            Err(error) => {
                let path = self.0.root.path().display();
                return Seen::Unknown(format!("{path} cannot be looked at: {error}"));
            }
        }
        let storage = match machine::storage(&self.0.root) {
            machine::Storage::Nvme => Seen::Present(Storage::Nvme),
            machine::Storage::Other(_) => Seen::Present(Storage::Other),
            machine::Storage::Unknown(why) => Seen::Unknown(why),
        };
        Seen::Present(RootFacts {
            path: self.0.root.path().display().to_string(),
            headroom_percent: self.0.headroom.bytes,
            headroom_inodes_percent: self.0.headroom.inodes,
            storage,
            quota: QuotaMechanism::Accounting,
        })
    }

    async fn say(&self, report: &Report) -> Result<(), Unreported> {
        let Some(path) = self.0.report_file.clone() else { return Ok(()) };
        let text = serde_json::to_vec_pretty(report).map_err(|error| unreported(&path, &error.to_string()))?;
        let written = tokio::task::spawn_blocking({
            let path = path.clone();
            move || stokehold_host::durable::replace_file(&path, &text)
        });
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unreported(&path, &error.to_string())),
            Err(ended) => Err(unreported(&path, &ended.to_string())),
        }
    }
}

fn unreported(path: &Path, message: &str) -> Unreported {
    Unreported { to: path.display().to_string(), message: message.to_owned() }
}
