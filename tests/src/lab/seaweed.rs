//! SeaweedFS as a real S3 server, for one test or one demo.
//!
//! In: nothing (its program is installed on first use). Out: an endpoint with credentials on 127.0.0.1, ready for
//! requests; ended when dropped. Deliberately absent: anything kept between two starts.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::lab::{self, bucket::Access, child::Child, http, port};

mod install;

/// Longest start accepted; 3-5 s is usual on two idle cores.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// Starts tried before giving up: a port can be taken between looking and binding.
const STARTS_MAX: u32 = 3;
/// Size of one volume file in MiB: several big objects fit.
const VOLUME_MIB: u32 = 1024;
/// Volumes there may be: each bucket takes up to seven, and they are sparse.
const VOLUMES_MAX: u32 = 100;
/// Bytes of log shown when it does not start.
const LOG_TAIL_BYTES: usize = 2000;
/// Where SeaweedFS puts its internal sockets whatever it is told, and leaves them when it is killed.
const SOCKET_FOLDER: &str = "/tmp";

/// Its log's name in its folder.
const LOG: &str = "weed.log";
const ACCESS_KEY: &str = "lab-access-key";
const SECRET_KEY: &str = "lab-secret-key";
const REGION: &str = "us-east-1";

/// A running SeaweedFS.
#[derive(Debug)]
pub struct Seaweed {
    child: Child,
    ports: Ports,
    // Last: the folder goes after the process.
    folder: TempDir,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    s3: u16,
    master: u16,
    volume: u16,
    filer: u16,
    s3_grpc: u16,
    master_grpc: u16,
    volume_grpc: u16,
    filer_grpc: u16,
}

impl Seaweed {
    /// Install if needed, start, and wait until objects can be stored. Blocks for some 4 s.
    pub fn start() -> Result<Self> {
        let program = install::program()?;
        let mut tried = 1;
        loop {
            match Self::start_once(&program) {
                Ok(running) => return Ok(running),
                Err(error) if tried == STARTS_MAX => return Err(error),
                Err(_) => tried += 1,
            }
        }
    }

    /// [`start`](Self::start) for a test: where SeaweedFS cannot be had, `None` after saying why, or a panic if `CI=true`.
    pub fn start_or_skip() -> Option<Self> {
        match Self::start() {
            Ok(running) => Some(running),
            Err(error) => {
                assert!(!lab::must_have_parts(), "SeaweedFS is needed here: {error:#}");
                eprintln!("skipped: no SeaweedFS: {error:#}");
                None
            }
        }
    }

    /// How to reach it.
    pub fn access(&self) -> Access {
        Access {
            endpoint: format!("http://127.0.0.1:{}", self.ports.s3),
            region: REGION.to_owned(),
            access_key: ACCESS_KEY.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
            attempts: 3,
        }
    }

    /// The server's process, for its CPU time and memory.
    pub fn process(&self) -> &Child {
        &self.child
    }

    /// The end of what it logged, to show beside a failed assertion.
    pub fn log(&self) -> String {
        tail(&self.folder.path().join(LOG))
    }

    fn start_once(program: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for SeaweedFS")?;
        let [s3, master, volume, filer, s3_grpc, master_grpc, volume_grpc, filer_grpc] = port::free();
        let ports = Ports { s3, master, volume, filer, s3_grpc, master_grpc, volume_grpc, filer_grpc };
        let log = folder.path().join(LOG);
        let child = Child::start(command(program, folder.path(), &log, &ports)?).context("start SeaweedFS")?;
        let running = Self { child, ports, folder };
        let ready = lab::until("SeaweedFS", READY_LIMIT, || running.look());
        match ready {
            Ok(Look::Ready) => Ok(running),
            Ok(Look::Ended) => bail!("SeaweedFS ended at once: {}", tail(&log)),
            Err(error) => Err(error.context(tail(&log))),
        }
    }

    /// `None`: not yet. Ready means that S3 answers and that the master has a volume server to store on.
    fn look(&self) -> Option<Look> {
        if self.child.exit().is_some() {
            return Some(Look::Ended);
        }
        let ask = |port, path| http::get(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), path).ok();
        let stores = ask(self.ports.master, "/dir/status")?.body.contains(&format!("\"Max\":{VOLUMES_MAX}"));
        let serves = ask(self.ports.s3, "/healthz")?.status == 200;
        (stores && serves).then_some(Look::Ready)
    }
}

enum Look {
    Ready,
    Ended,
}

impl Drop for Seaweed {
    fn drop(&mut self) {
        self.child.kill();
        let ports = &self.ports;
        let parts = [
            ("s3", ports.s3_grpc),
            ("master", ports.master_grpc),
            ("volume", ports.volume_grpc),
            ("filer", ports.filer_grpc),
        ];
        for (part, port) in parts {
            // Best effort: one that was never made is as good as one removed.
            drop(fs::remove_file(Path::new(SOCKET_FOLDER).join(format!("seaweedfs-{part}-grpc-{port}.sock"))));
        }
    }
}

fn command(program: &Path, folder: &Path, log: &Path, ports: &Ports) -> Result<Command> {
    let data = folder.join("data");
    fs::create_dir(&data).context("make SeaweedFS's data folder")?;
    let credentials = folder.join("s3.json");
    fs::write(&credentials, identities()).context("write SeaweedFS's credentials")?;
    let mut command = Command::new(program);
    command
        .arg(format!("-logdir={}", folder.display()))
        .arg("server")
        .args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0"])
        // A test machine reports to nobody.
        .arg("-master.telemetry=false")
        .arg(format!("-dir={}", data.display()))
        .arg(format!("-s3.config={}", credentials.display()))
        .arg(format!("-s3.localSocket={}", folder.join("s3.sock").display()))
        .arg(format!("-filer.localSocket={}", folder.join("filer.sock").display()))
        .arg(format!("-master.volumeSizeLimitMB={VOLUME_MIB}"))
        .arg(format!("-volume.max={VOLUMES_MAX}"));
    let numbers = [
        ("s3.port", ports.s3),
        ("s3.port.grpc", ports.s3_grpc),
        ("master.port", ports.master),
        ("master.port.grpc", ports.master_grpc),
        ("volume.port", ports.volume),
        ("volume.port.grpc", ports.volume_grpc),
        ("filer.port", ports.filer),
        ("filer.port.grpc", ports.filer_grpc),
    ];
    command.args(numbers.map(|(flag, port)| format!("-{flag}={port}")));
    // Its own home: settings of the person who runs the test must not change the server.
    command.env_clear().env("HOME", folder).env("TMPDIR", folder).current_dir(folder);
    let output = File::create(log).context("make SeaweedFS's log")?;
    command.stderr(output.try_clone().context("share SeaweedFS's log")?).stdout(output);
    Ok(command)
}

fn identities() -> String {
    let actions = ["Admin", "Read", "Write", "List", "Tagging"];
    let credentials = serde_json::json!([{ "accessKey": ACCESS_KEY, "secretKey": SECRET_KEY }]);
    serde_json::json!({ "identities": [{ "name": "lab", "credentials": credentials, "actions": actions }] }).to_string()
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
}

#[cfg(test)]
mod tests;
