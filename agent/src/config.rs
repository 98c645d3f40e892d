//! How the agent is set up: one checked value out of flags, environment and a file.
//!
//! In go flags (clap reads their environment twins) and the text of the file; out comes a [`Config`] whose every value is in its
//! range, and the keys of the file that this release does not know. Flag over environment over file over default. A bad value
//! stops the start with key, value and range; an unknown key does not, since a file and an agent roll out and back apart.
//! Deliberately absent: what is desired; and every setting that would do nothing.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::BoolishValueParser;
use stokehold_core::quantity::Bytes;

mod check;
mod file;

pub use check::{LogFormat, LogLevel};
use check::{absolute, choice, host_name, in_range};
use file::File;
pub use file::known_keys;

/// The file that is read where none is named; it may be missing.
pub const CONFIG_DEFAULT: &str = "/etc/stokehold/agent.yaml";
/// Where state is kept where nothing is said.
pub const STATE_DEFAULT: &str = "/var/lib/stokehold";
/// Where the local API listens where neither it nor a state folder is said; the command line looks here.
pub const SOCKET_DEFAULT: &str = "/run/stokehold/agent.sock";
/// The name of the socket in a state folder.
pub const SOCKET_NAME: &str = "stokehold.sock";
/// Where metrics and health are served where nothing is said: this machine only.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:9478";
/// Where containerd listens on every common distribution.
pub const CONTAINERD_DEFAULT: &str = "/run/containerd/containerd.sock";

/// Largest file of configuration; ours has fifty lines.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest path of a Unix socket: `sun_path` without its NUL.
const SOCKET_PATH_MAX: usize = 107;

/// Share of the disk to keep free, percent: the kubelet's image collection starts at 85 % used.
const AVAILABLE_PERCENT: (u64, u64, u64) = (0, 15, 90);
/// Share of the inodes to keep free, percent: the kubelet evicts below 5 % free.
const INODES_PERCENT: (u64, u64, u64) = (0, 5, 90);
/// Connections of all transfers together: above 64 an origin answers with 503 before it answers faster.
const CONNECTIONS: (u64, u64, u64) = (1, 8, 64);
/// Bytes of one part: smaller ones cost a request each, larger ones are lost whole when a connection drops.
const PART_BYTES: (u64, u64, u64) = (1 << 20, 8 << 20, 64 << 20);
/// Caches that are staged at once.
const STAGES: (u64, u64, u64) = (1, 2, 16);

/// Flags of `run`; each has a twin in the environment.
#[derive(Debug, Clone, Default, Args)]
pub struct RunFlags {
    /// File of configuration; /etc/stokehold/agent.yaml is read if it is there
    #[arg(long, env = "STOKEHOLD_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder on local disk below which everything is kept
    #[arg(long, env = "STOKEHOLD_ROOT", value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Folder of InferenceCache and CachePolicy files; with it no cluster is looked for
    #[arg(long, env = "STOKEHOLD_DESIRED", value_name = "DIR")]
    pub desired: Option<PathBuf>,
    /// Folder of the agent's own state and report
    #[arg(long, env = "STOKEHOLD_STATE", value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Address for metrics and health
    #[arg(long, env = "STOKEHOLD_LISTEN", value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Unix socket of the local API
    #[arg(long, env = "STOKEHOLD_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Name of this node; else the machine's host name
    #[arg(long, env = "STOKEHOLD_NODE_NAME", value_name = "NAME")]
    pub node_name: Option<String>,
    /// Socket of containerd
    #[arg(long, env = "STOKEHOLD_CONTAINERD", value_name = "PATH")]
    pub containerd: Option<PathBuf>,
    /// Folder of secrets, as NAMESPACE/NAME/KEY
    #[arg(long, env = "STOKEHOLD_SECRETS", value_name = "DIR")]
    pub secrets: Option<PathBuf>,
    /// Use a root that is not on local NVMe
    #[arg(long, env = "STOKEHOLD_ALLOW_NON_LOCAL", value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub allow_non_local: Option<bool>,
}

/// How the agent is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Folder on local disk below which everything is kept.
    pub root: PathBuf,
    /// Folder of desired files, where the agent is standalone.
    pub desired: Option<PathBuf>,
    /// Folder of the agent's own state and report.
    pub state: PathBuf,
    /// Address for metrics and health.
    pub listen: SocketAddr,
    /// Unix socket of the local API.
    pub socket: PathBuf,
    /// Name of this node.
    pub node_name: String,
    /// Socket of containerd.
    pub containerd: PathBuf,
    /// Folder of secrets.
    pub secrets: Option<PathBuf>,
    /// Whether the root may lie on a disk that is not local.
    pub allow_non_local: bool,
    /// Whether published files are made immutable where the filesystem can.
    pub immutable: bool,
    /// What is kept free.
    pub headroom: Headroom,
    /// How bytes are fetched.
    pub transfer: Transfer,
    /// Caches that are staged at once.
    pub stages_max: usize,
    /// What holds for all S3 sources.
    pub s3: S3,
    /// How the agent logs.
    pub log: Log,
}

/// What is kept free of the filesystem of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headroom {
    /// Percent of its bytes.
    pub available_percent: u8,
    /// Percent of its inodes.
    pub inodes_percent: u8,
}

/// How bytes are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Connections of all transfers together.
    pub connections_max: usize,
    /// Bytes of one part.
    pub part_size: Bytes,
}

/// What holds for S3 sources that do not say it themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3 {
    /// Whether requests are not signed.
    pub anonymous: bool,
    /// URL of another S3-compatible service.
    pub endpoint: Option<String>,
    /// Region.
    pub region: Option<String>,
}

/// How the agent logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// In which form.
    pub format: LogFormat,
    /// What is logged.
    pub level: LogLevel,
}

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be had.
    #[error("could not read the configuration {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not YAML of the right shape.
    #[error("{place}: {reason}")]
    Parse {
        /// File, line and column.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// A value that is not allowed.
    #[error("{key}: {value:?} is not allowed; allowed: {allowed}")]
    Value {
        /// Which setting, as the file spells it.
        key: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        allowed: String,
    },
    /// A value that must be said.
    #[error("{key} is not set; set it by --{key}, {variable} or the file; allowed: {allowed}")]
    Missing {
        /// Which setting.
        key: &'static str,
        /// Its twin in the environment.
        variable: &'static str,
        /// What it may say.
        allowed: &'static str,
    },
}

/// A configuration, and the keys of its file that this release does not know: they are logged and counted.
pub type Loaded = (Config, Vec<String>);

impl Config {
    /// Reads the file that the flags name, and this machine's host name.
    ///
    /// # Errors
    /// [`ConfigError`] says which value is wrong and what is allowed.
    pub fn load(flags: &RunFlags) -> Result<Loaded, ConfigError> {
        let (path, may_be_missing) = match &flags.config {
            Some(path) => (path.as_path(), false),
            None => (Path::new(CONFIG_DEFAULT), true),
        };
        let text = match read(path) {
            Err(error) if may_be_missing && error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.map_err(|source| ConfigError::Read { file: path.to_owned(), source })?,
        };
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self::resolve(flags, &path.display().to_string(), &text, &machine)
    }

    /// Flags over the file's text over defaults. `machine` is the host name of this machine.
    ///
    /// # Errors
    /// [`ConfigError`] says which value is wrong and what is allowed.
    pub fn resolve(flags: &RunFlags, place: &str, text: &str, machine: &str) -> Result<Loaded, ConfigError> {
        let (file, unknown) = File::parse(place, text)?;
        let path = |key, flag: &Option<PathBuf>, file: &Option<PathBuf>| {
            flag.as_ref().or(file.as_ref()).map(|path| absolute(key, path)).transpose()
        };
        let state = path("state", &flags.state, &file.state)?;
        let socket = match (path("socket", &flags.socket, &file.socket)?, &state) {
            (Some(socket), _) => socket,
            (None, Some(state)) => state.join(SOCKET_NAME),
            (None, None) => PathBuf::from(SOCKET_DEFAULT),
        };
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(bad("socket", &socket.display().to_string(), "a path of at most 107 bytes"));
        }
        let listen = flags.listen.as_deref().or(file.listen.as_deref()).unwrap_or(LISTEN_DEFAULT);
        let node_name = flags.node_name.as_deref().or(file.node_name.as_deref());
        let config = Self {
            root: path("root", &flags.root, &file.root)?.ok_or(ConfigError::Missing {
                key: "root",
                variable: "STOKEHOLD_ROOT",
                allowed: "an absolute path on local disk",
            })?,
            desired: path("desired", &flags.desired, &file.desired)?,
            state: state.unwrap_or_else(|| PathBuf::from(STATE_DEFAULT)),
            listen: listen.parse().map_err(|_not_one| {
                bad("listen", listen, "an address and a port, such as 127.0.0.1:9478 or [::]:9478")
            })?,
            socket,
            node_name: host_name("nodeName", node_name.unwrap_or(machine.trim()))?,
            containerd: path("containerd", &flags.containerd, &file.containerd)?
                .unwrap_or_else(|| PathBuf::from(CONTAINERD_DEFAULT)),
            secrets: path("secrets", &flags.secrets, &file.secrets)?,
            allow_non_local: flags.allow_non_local.or(file.allow_non_local).unwrap_or(false),
            immutable: file.immutable.unwrap_or(true),
            headroom: file.headroom()?,
            transfer: file.transfer()?,
            stages_max: in_range("jobs.stagesMax", file.jobs.stages_max, STAGES)?,
            s3: file.s3()?,
            log: Log {
                format: choice("log.format", file.log.format.as_deref(), LogFormat::ALL, LogFormat::Text)?,
                level: choice("log.level", file.log.level.as_deref(), LogLevel::ALL, LogLevel::Info)?,
            },
        };
        Ok((config, unknown))
    }
}

fn bad(key: &'static str, value: &str, allowed: &str) -> ConfigError {
    ConfigError::Value { key, value: value.to_owned(), allowed: allowed.to_owned() }
}

fn read(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    let _bytes = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
