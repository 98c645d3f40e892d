//! Models on the faulty server, what must become of them, and what this machine lets a test do.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use nix::unistd::Uid;
use stokehold_core::checksum::SnapshotId;
use stokehold_core::name::CacheId;
use stokehold_tests::lab::fault_s3::{Body, Checksums, FaultS3};
use stokehold_tests::real::{Wanted, folder, holds_bytes, look_through_current, paths};
use tokio::sync::RwLock;

pub(crate) const MIB: u64 = 1 << 20;
/// Connections and bytes of a part as [`stokehold_tests::real::Site`] sets them: what one kill may cost.
pub(crate) const IN_FLIGHT: u64 = 4 * 4 * MIB;
/// The bucket of all models here.
pub(crate) const BUCKET: &str = "weights";

/// Whoever starts an agent in a mount namespace of its own reads, whoever takes a filesystem away writes: a copy of the mount in
/// another namespace would keep it alive.
pub(crate) static MOUNTS: RwLock<()> = RwLock::const_new(());

/// Files of a model, by path below its prefix.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) files: Vec<(String, Body)>,
}

impl Model {
    /// Some shards of one size, a small file and one without bytes.
    pub(crate) fn new(name: &str, seed: u64, shards: u64, shard_bytes: u64) -> Self {
        let shard = |number| (shard(number), Body::Seeded { seed: seed * 1_000 + number, len: shard_bytes });
        let mut files: Vec<_> = (1..=shards).map(shard).collect();
        files.push(("config.json".to_owned(), Body::bytes(format!("{{\"seed\":{seed}}}"))));
        files.push(("tokenizer/added.txt".to_owned(), Body::bytes(Bytes::new())));
        Self { name: name.to_owned(), files }
    }

    /// Put it on the server with checksums.
    pub(crate) fn put(&self, server: &FaultS3) {
        for (path, body) in &self.files {
            server.put(BUCKET, &self.key(path), body.clone(), Checksums::Crc64Nvme);
        }
    }

    pub(crate) fn key(&self, path: &str) -> String {
        format!("{}/{path}", self.name)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, body)| body.len()).sum()
    }

    /// The document that asks for it.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted::s3(&self.name, BUCKET, &format!("{}/", self.name))
    }

    pub(crate) fn id(&self) -> CacheId {
        self.wanted().id()
    }

    /// What is published is this model: these files, no others, byte by byte.
    pub(crate) fn check_published(&self, root: &Path) -> Result<SnapshotId> {
        let folder = folder(root, &self.id());
        let id = look_through_current(&folder)?.with_context(|| format!("{} is published", self.name))?;
        let published = folder.join("current").canonicalize().context("current leads somewhere")?;
        let found: Vec<String> = paths(&published)?.into_iter().filter(|path| !published.join(path).is_dir()).collect();
        let mut expected: Vec<&str> = self.files.iter().map(|(path, _)| path.as_str()).collect();
        expected.sort_unstable();
        ensure!(found == expected, "published are {found:?}, not {expected:?}");
        for (path, body) in &self.files {
            let same = holds_bytes(&published.join(path), body.len(), |at, len| body.read(at, len))?;
            ensure!(same, "{path} of {} is not what the origin has", self.name);
        }
        Ok(id)
    }
}

/// The path of a shard.
pub(crate) fn shard(number: u64) -> String {
    format!("model-{number:05}.safetensors")
}

/// Whether we are root; says what is skipped where not.
pub(crate) fn is_root(what: &str) -> bool {
    let is_root = Uid::effective().is_root();
    if !is_root {
        eprintln!("skipped: {what} needs root");
    }
    is_root
}

/// Whether the agent can be given a PID namespace of its own, without which it cannot tell here who uses bytes.
pub(crate) fn can_start_alone() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    let can = *CAN.get_or_init(|| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "true"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    if !can {
        eprintln!("skipped: a PID namespace for the agent needs root and unshare");
    }
    can
}
