//! `stokehold run`: the agent, from its configuration to its last journal.
//!
//! In go flags, out comes a running loop with a server beside it, until a signal stops it. Deliberately absent: a cluster, which
//! this release does not talk to.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stokehold_core::metric::CONFIG_UNKNOWN;
use stokehold_core::plan::PlanLimits;
use stokehold_core::transfer::TransferLimits;
use stokehold_host::machine::{self, Storage, Untold};
use stokehold_host::root::{CacheRoot, RootError, RootOptions};
use stokehold_origin::origins::Origins;
use stokehold_origin::s3::{S3Credentials, S3Options};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Exit, log};
use crate::config::{Config, ConfigError, RunFlags};
use crate::data_plane::DataPlane;
use crate::desired_folder::{self, Folder, FolderError};
use crate::metrics::Metrics;
use crate::node::{HeadroomPercent, Node};
use crate::run_loop::{Loop, LoopSettings};
use crate::server::Shown;
use crate::service::ServiceManager;

mod liveness;
mod socket;

/// Threads for the loop, jobs and servers; bytes move on threads of their own.
const WORKER_THREADS: usize = 2;
/// Threads that may wait for the disk: two stagings, their syncs, a survey and a few checks.
const BLOCKING_THREADS_MAX: usize = 16;
/// Longest wait for journals after a signal: the promise is 5 s, and the rest is for the process to end.
const STOP_LIMIT: Duration = Duration::from_millis(4_500);
/// Name of the report in the state folder.
const REPORT_NAME: &str = "report.json";

/// Why the agent cannot start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration is not good.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No folder of desired files.
    #[error(
        "desired is not set, and this release does not talk to a cluster; name a folder of InferenceCache files by --desired, STOKEHOLD_DESIRED or the file"
    )]
    NoCluster,
    /// The root is not on a local disk.
    #[error(
        "{} is not on local NVMe: {found}; what is staged there would not be read at the speed of this machine's disks. To use it \
         all the same: --allow-non-local, STOKEHOLD_ALLOW_NON_LOCAL=true, or allowNonLocal: true in the file", root.display()
    )]
    NotLocal {
        /// The root.
        root: PathBuf,
        /// What it is on.
        found: String,
    },
    /// The root cannot be taken.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The folder of desired files cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The kernel does not tell what it must.
    #[error(transparent)]
    Untold(#[from] Untold),
    /// The state folder cannot be had.
    #[error("could not make the state folder {}", path.display())]
    State {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Nothing can listen there.
    #[error("could not listen on {address} for metrics and health; another --listen is needed if somebody else does")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The socket of the local API cannot be made.
    #[error("could not make the socket {} of the local API", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The system gives no thread or signal.
    #[error("could not {act}")]
    System {
        /// What was attempted.
        act: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The loop ended by itself.
    #[error("the loop ended by itself: {why}")]
    LoopEnded {
        /// How.
        why: String,
    },
}

/// Runs the agent until SIGTERM or SIGINT.
///
/// # Errors
/// [`RunError`] says what is wrong, and where it can be set right.
pub fn run(flags: &RunFlags) -> Result<Exit, RunError> {
    let (config, unknown) = Config::load(flags)?;
    let desired = config.desired.clone().ok_or(RunError::NoCluster)?;
    log::start(config.log);
    for key in &unknown {
        warn!(key, "the configuration has a key that this release does not know");
    }
    check_local(&config)?;
    std::fs::create_dir_all(&config.state).map_err(|source| RunError::State { path: config.state.clone(), source })?;
    let root = CacheRoot::open(&config.root, RootOptions { make_missing: true })?;
    let system = |act| move |source| RunError::System { act, source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("agent")
        .enable_all()
        .build()
        .map_err(system("start threads"))?;
    let ended = runtime.block_on(serve(&config, &desired, root, unknown.len()));
    // Whatever still waits for a disk that does not answer must not hold the process.
    runtime.shutdown_background();
    ended
}

/// Local NVMe, or leave to use something else.
fn check_local(config: &Config) -> Result<(), RunError> {
    // Not made yet: then it will stand where its parent does.
    let standing = if config.root.exists() { Some(config.root.as_path()) } else { config.root.parent() };
    let found = match standing.map(machine::storage_at) {
        Some(Storage::Nvme) => return Ok(()),
        Some(Storage::Other(what)) => format!("it is on {what}"),
        Some(Storage::Unknown(why)) => format!("what it is on cannot be told ({why})"),
        None => "it has no parent".to_owned(),
    };
    if config.allow_non_local {
        warn!(root = %config.root.display(), "the root is not on local NVMe, as allowed: {found}");
        return Ok(());
    }
    Err(RunError::NotLocal { root: config.root.clone(), found })
}

async fn serve(config: &Config, desired: &Path, root: CacheRoot, unknown: usize) -> Result<Exit, RunError> {
    let system = |act| move |source| RunError::System { act, source };
    let terminate = signal(SignalKind::terminate()).map_err(system("listen to SIGTERM"))?;
    let interrupt = signal(SignalKind::interrupt()).map_err(system("listen to SIGINT"))?;
    let health =
        TcpListener::bind(config.listen).await.map_err(|source| RunError::Listen { address: config.listen, source })?;
    let (folder, asked) = Folder::open(desired)?;
    warn_where_blind();

    let stop = CancellationToken::new();
    let metrics = Metrics::new();
    metrics.set(&CONFIG_UNKNOWN, &[], u32::try_from(unknown).map_or(f64::MAX, f64::from));
    let (desired_now, desired_seen) = watch::channel(asked);
    let origins = Origins::new(s3_options(config));
    let data_plane = DataPlane::start(&root, &origins).map_err(system("start the threads that move bytes"))?;
    let report = config.state.join(REPORT_NAME);
    let headroom = HeadroomPercent {
        bytes: config.headroom.available_percent.into(),
        inodes: config.headroom.inodes_percent.into(),
    };
    let node = Node::new(root, origins, data_plane, machine::boot_id()?, headroom, Some(report));
    // Last of what may fail, so that a start that fails leaves no socket.
    let local =
        socket::bind(&config.socket).map_err(|source| RunError::Socket { path: config.socket.clone(), source })?;
    let looping = Loop::new(node, desired_seen, settings(config), metrics.clone(), stop.clone());
    let shown = Shown {
        node: config.node_name.clone(),
        views: looping.views(),
        board: looping.board(),
        metrics,
        since: machine::monotonic(),
    };
    info!(
        root = %config.root.display(), desired = %desired.display(), listen = %health.local_addr().unwrap_or(config.listen),
        socket = %config.socket.display(), version = env!("CARGO_PKG_VERSION"), "the agent runs"
    );
    let service = Arc::new(ServiceManager::of_environment());
    tokio::spawn(desired_folder::watch(folder, desired_now, stop.clone()));
    tokio::spawn(shown.clone().serve_health(health, stop.clone()));
    tokio::spawn(shown.clone().serve_local(local, stop.clone()));
    tokio::spawn(liveness::tell(shown, service.clone(), stop.clone()));
    tokio::spawn(stop_on_signal(terminate, interrupt, stop.clone()));
    let ended = end_of(tokio::spawn(looping.run()), &service, &stop).await;
    socket::remove(&config.socket);
    ended
}

/// Waits for the end of the loop; once it was told to stop, not longer than promised.
async fn end_of(
    looping: tokio::task::JoinHandle<()>,
    service: &ServiceManager,
    stop: &CancellationToken,
) -> Result<Exit, RunError> {
    let limit = async {
        stop.cancelled().await;
        service.stopping();
        tokio::time::sleep(STOP_LIMIT).await;
    };
    // Each arm is safe to drop: nothing is done after either.
    tokio::select! {
        biased;
        ended = looping => match ended {
            Ok(()) if stop.is_cancelled() => {
                info!("journals are durable, the agent ends");
                Ok(Exit::Done)
            }
            Ok(()) => Err(RunError::LoopEnded { why: "it was not told to".to_owned() }),
            Err(ended) => Err(RunError::LoopEnded { why: ended.to_string() }),
        },
        () = limit => {
            warn!("work did not end within {} ms and is left; what was noted is in its journals", STOP_LIMIT.as_millis());
            Ok(Exit::Done)
        }
    }
}

async fn stop_on_signal(mut terminate: Signal, mut interrupt: Signal, stop: CancellationToken) {
    // Each arm is safe to drop: a signal that arrived stays noted.
    let name = tokio::select! {
        biased;
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    info!(signal = name, "told to stop");
    stop.cancel();
}

fn warn_where_blind() {
    match machine::sees_all_processes() {
        Ok(true) => {}
        Ok(false) => warn!(
            "the agent is in a PID namespace of its own and does not see all processes: what may be in use is never evicted; give it the \
             machine's (hostPID)"
        ),
        Err(error) => warn!(%error, "it cannot be told whether the agent sees all processes"),
    }
}

fn s3_options(config: &Config) -> S3Options {
    S3Options {
        credentials: if config.s3.anonymous { S3Credentials::Anonymous } else { S3Credentials::Chain },
        endpoint: config.s3.endpoint.clone(),
        region: config.s3.region.clone(),
        path_style: None,
    }
}

fn settings(config: &Config) -> LoopSettings {
    let defaults = TransferLimits::default();
    let connections_max = u32::try_from(config.transfer.connections_max).unwrap_or(u32::MAX);
    LoopSettings {
        plan: PlanLimits { stages_max: u32::try_from(config.stages_max).unwrap_or(u32::MAX), ..PlanLimits::default() },
        transfer: TransferLimits {
            part_bytes: config.transfer.part_size.0,
            connections_start: defaults.connections_start.min(connections_max),
            connections_max,
            ..defaults
        },
        immutable: config.immutable,
    }
}
