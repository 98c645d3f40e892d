//! `stokehold stage SRC DIR`: one source to one folder, once, without an agent.
//!
//! In go a source and a folder's path, out comes the folder whole and verified, or nothing but a hidden sibling that remembers what
//! was received. Killed and repeated it goes on; repeated after success it fetches nothing. Deliberately absent: keeping it so.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use stokehold_core::attempt::JobFailure;
use stokehold_core::desired::{DesiredWeights, Update, Verification};
use stokehold_core::file_op::FileError;
use stokehold_core::hold::{Reason, Subject};
use stokehold_core::layout::SnapshotLayout;
use stokehold_core::listing::{Filter, Listing};
use stokehold_core::quantity::Bytes;
use stokehold_core::record::Manifest;
use stokehold_core::source::{BadSource, Source};
use stokehold_core::transfer::TransferLimits;
use stokehold_host::machine::{self, Untold};
use stokehold_host::root::{CacheRoot, RootError};
use stokehold_origin::origins::Origins;
use stokehold_origin::s3::{S3Credentials, S3Options};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::asked::{Asked, Target};
use self::place::{Found, Place, PlaceError};
use self::summary::Summary;
use super::output::{Format, print, render};
use super::{Exit, log};
use crate::config::{Log, LogFormat, LogLevel};
use crate::data_plane::DataPlane;
use crate::job::stage::{StageJob, Staged, Stopped, stage};
use crate::job::{JobContext, list};
use crate::metrics::Metrics;
use crate::node::{HeadroomPercent, Node};
use crate::streams::Streams;
use crate::world::World;

mod asked;
mod place;
mod progress;
mod summary;

/// Threads for the work; bytes move on threads of their own.
const WORKER_THREADS: usize = 2;
/// Threads that may wait for the disk.
const BLOCKING_THREADS_MAX: usize = 8;
/// How often an origin that changes while it is read is listed again before a person is asked.
const CHANGES_MAX: u32 = 3;

/// Stage one source to a folder, once.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The environment of the AWS SDK is honoured: AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_S3 and the rest."
)]
pub struct StageFlags {
    /// Where the files come from: s3://BUCKET/PREFIX, or the path of a folder
    #[arg(value_name = "SRC", value_parser = asked::source)]
    source: Asked,
    /// The folder that is to appear; its parent must exist
    #[arg(value_name = "DIR", value_parser = asked::target)]
    target: Target,
    /// Take only files that match; may be repeated
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Leave files that match; may be repeated
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Do not sign requests: for public buckets
    #[arg(long)]
    anonymous: bool,
    /// URL of another S3-compatible service
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long)]
    region: Option<String>,
    /// Most connections at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,
    /// Bytes of one request
    #[arg(long, value_name = "BYTES", default_value = "8Mi", value_parser = asked::part_size)]
    part_size: Bytes,
    /// In which form the result is printed
    #[arg(long, value_enum, default_value_t)]
    output: Format,
}

/// Why the folder is not there.
#[derive(Debug, thiserror::Error)]
pub enum OneOffError {
    /// The source is not there.
    #[error("could not find the source {}", path.display())]
    Source {
        /// As it was named.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder is to stand below its own source.
    #[error("{} lies in the source itself, which would be staged with it; name a folder outside", target.display())]
    Within {
        /// The folder.
        target: PathBuf,
    },
    /// The source cannot be used as named.
    #[error(transparent)]
    BadSource(#[from] BadSource),
    /// A glob cannot be read.
    #[error(transparent)]
    BadGlob(#[from] stokehold_core::listing::BadGlob),
    /// Something else stands there.
    #[error("{} is there and is not touched: {why}; move it away, or name another folder", target.display())]
    Foreign {
        /// The folder.
        target: PathBuf,
        /// Why it is not taken for ours.
        why: String,
    },
    /// The parent cannot be used, or another process stages to the same folder.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The place cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] FileError),
    /// The kernel does not tell what it must.
    #[error(transparent)]
    Untold(#[from] Untold),
    /// The system gives no thread or signal.
    #[error("could not {act}")]
    System {
        /// What was attempted.
        act: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The source cannot be listed.
    #[error("could not list {from}: {why}")]
    List {
        /// The source.
        from: String,
        /// Why.
        why: Reason,
    },
    /// Files cannot be had.
    #[error("could not stage {from}: {why}; {kept} are kept, and the same command goes on from there")]
    Stage {
        /// The source.
        from: String,
        /// Why.
        why: Reason,
        /// What was received so far.
        kept: Bytes,
    },
}

/// Stages, and says what came of it.
///
/// # Errors
/// [`OneOffError`] says why the folder is not there.
pub fn run(flags: &StageFlags) -> Result<Exit, OneOffError> {
    log::start(Log { format: LogFormat::Text, level: LogLevel::Warn });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()
        .map_err(|source| OneOffError::System { act: "start threads", source })?;
    let ended = runtime.block_on(stage_once(flags));
    runtime.shutdown_background();
    ended
}

async fn stage_once(flags: &StageFlags) -> Result<Exit, OneOffError> {
    let begun = Instant::now();
    let stop = CancellationToken::new();
    stop_on_signal(&stop)?;
    let weights = weights(flags)?;
    refuse_foreign(&flags.target)?;
    let Target { parent, name } = &flags.target;
    let root = CacheRoot::open_one_off(parent, name)?;
    let origins = Origins::new(s3_options(flags));
    let start = |source| OneOffError::System { act: "start the threads that move bytes", source };
    let data_plane = DataPlane::start(&root, &origins).map_err(start)?;
    // All of the room may be used: it is the caller's disk.
    let headroom = HeadroomPercent { bytes: 0, inodes: 0 };
    let node = Node::new(root, origins, data_plane, machine::boot_id()?, headroom, None);
    let place = Place::new(node.disk(), name);
    let once = OneOff { flags, weights, node: &node, place: &place, stop };
    let came = once.run().await;
    if !matches!(came, Ok(Came::Published(_))) {
        // What led here is what counts.
        let _left = place.leave_as_found().await;
    }
    match came? {
        Came::Published(staged) => {
            let summary = Summary::of(&once.weights.source, &flags.target, &staged, begun.elapsed());
            print(&render(&summary, flags.output, Summary::table));
            Ok(Exit::Done)
        }
        Came::Stopped(kept) => {
            eprintln!("stopped; {kept} are kept, and the same command goes on from there");
            Ok(Exit::Interrupted)
        }
        Came::Changed(failure, kept) => Err(once.failed(failure.reason, kept)),
    }
}

/// How an attempt ended.
enum Came {
    /// The folder is there.
    Published(Staged),
    /// It was stopped, with so much received.
    Stopped(Bytes),
    /// The origin is no longer what was listed.
    Changed(JobFailure, Bytes),
}

/// One source on its way to its folder.
struct OneOff<'a> {
    flags: &'a StageFlags,
    weights: DesiredWeights,
    node: &'a Node,
    place: &'a Place<'a, <Node as World>::Disk>,
    stop: CancellationToken,
}

impl OneOff<'_> {
    async fn run(&self) -> Result<Came, OneOffError> {
        let mut changes = 0;
        loop {
            // Each arm is safe to drop: a listing leaves nothing behind.
            let listed = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(Came::Stopped(Bytes::ZERO)),
                listed = list::list(self.node.origin(), &self.weights) => listed,
            };
            let from = || self.weights.source.to_string();
            let listing = listed.map_err(|failure| OneOffError::List { from: from(), why: failure.reason })?;
            match self.bring(Arc::new(listing)).await? {
                Came::Changed(failure, _) if changes < CHANGES_MAX => {
                    changes += 1;
                    eprintln!("{}; it is listed again", failure.reason);
                }
                came @ (Came::Published(_) | Came::Stopped(_) | Came::Changed(..)) => return Ok(came),
            }
        }
    }

    fn failed(&self, why: Reason, kept: Bytes) -> OneOffError {
        OneOffError::Stage { from: self.weights.source.to_string(), why, kept }
    }

    async fn bring(&self, listing: Arc<Listing>) -> Result<Came, OneOffError> {
        let (place, id) = (self.place, listing.id);
        let target = self.flags.target.parent.join(&self.flags.target.name);
        let found = place.look().await?;
        let replaces = match &found {
            Found::Foreign(why) => return Err(OneOffError::Foreign { target, why: why.clone() }),
            Found::Ours(manifest) if manifest.snapshot == id => {
                self.finish().await?;
                return Ok(Came::Published(as_it_was((**manifest).clone())));
            }
            Found::Ours(_) | Found::Empty => true,
            Found::Nothing => false,
        };
        let staged = match place.waiting(id).await? {
            Some(manifest) if replaces => as_it_was(manifest),
            Some(_) | None => {
                place.drop_others(id).await?;
                place.check_room(&listing.summary(), &self.flags.target.parent.display().to_string()).await?;
                match self.fetch(listing, place.layout(id, &found)).await? {
                    Ok(staged) => staged,
                    Err(came) => return Ok(came),
                }
            }
        };
        if replaces {
            place.exchange(&staged.manifest, self.node.random()).await?;
        }
        self.finish().await?;
        Ok(Came::Published(staged))
    }

    async fn finish(&self) -> Result<(), OneOffError> {
        for kept in self.place.finish().await? {
            let path = self.flags.target.parent.join(kept.path);
            eprintln!("the older folder is kept as {}: {}; remove it when nobody reads it", path.display(), kept.why);
        }
        Ok(())
    }

    async fn fetch(&self, listing: Arc<Listing>, layout: SnapshotLayout) -> Result<Result<Staged, Came>, OneOffError> {
        let defaults = TransferLimits::default();
        let limits = TransferLimits {
            part_bytes: self.flags.part_size.0,
            connections_start: defaults.connections_start.min(self.flags.connections),
            connections_max: self.flags.connections,
            ..defaults
        };
        let job = StageJob {
            weights: self.weights.clone(),
            listing,
            layout,
            cache: None,
            streams: Streams::new(limits.connections_max),
            limits,
            // The folder is the caller's, who must be able to remove it.
            immutable: false,
            priority: 0,
            subject: Subject::Node,
        };
        let context = JobContext { progress: Arc::default(), cancel: self.stop.clone() };
        let shown = tokio::spawn(progress::show(context.progress.clone()));
        let staged = stage(self.node, &job, &Metrics::new(), &context).await;
        shown.abort();
        let (kept, _, _) = context.progress.shown();
        progress::clear(shown).await;
        match staged {
            Ok(staged) => Ok(Ok(staged)),
            Err(Stopped::Cancelled) => Ok(Err(Came::Stopped(kept))),
            Err(Stopped::OriginChanged(failure)) => Ok(Err(Came::Changed(failure, kept))),
            Err(Stopped::Failed(failure)) => Err(self.failed(failure.reason, kept)),
        }
    }
}

/// A snapshot that needed nothing from its origin.
fn as_it_was(manifest: Manifest) -> Staged {
    Staged { reused: manifest.bytes, manifest, fetched: Bytes::ZERO, requests: 0 }
}

fn stop_on_signal(stop: &CancellationToken) -> Result<(), OneOffError> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signal = signal(kind).map_err(|source| OneOffError::System { act: "listen to signals", source })?;
        let stop = stop.clone();
        tokio::spawn(async move {
            if signal.recv().await.is_some() {
                stop.cancel();
            }
        });
    }
    Ok(())
}

/// What was never ours is refused before anything is asked of anyone, and nothing is left beside it.
fn refuse_foreign(target: &Target) -> Result<(), OneOffError> {
    let path = target.parent.join(&target.name);
    let work = target.parent.join(SnapshotLayout::one_off_work(&target.name).as_str());
    let is_empty = || fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
    if fs::symlink_metadata(&path).is_ok() && fs::symlink_metadata(&work).is_err() && !is_empty() {
        return Err(OneOffError::Foreign { target: path, why: "nothing says that it was staged".to_owned() });
    }
    Ok(())
}

/// A folder below its own source would be staged into itself the next time.
fn refuse_within(source: &Source, target: &Target) -> Result<(), OneOffError> {
    let Source::NodePath(source) = source else { return Ok(()) };
    let is_within = fs::canonicalize(&target.parent).is_ok_and(|parent| parent.starts_with(source));
    if is_within { Err(OneOffError::Within { target: target.parent.join(&target.name) }) } else { Ok(()) }
}

fn weights(flags: &StageFlags) -> Result<DesiredWeights, OneOffError> {
    let source = match &flags.source {
        Asked::S3(s3) => Source::S3(s3.clone()),
        Asked::Folder(path) => {
            let real = fs::canonicalize(path).map_err(|source| OneOffError::Source { path: path.clone(), source })?;
            Source::node_path(&real.to_string_lossy())?
        }
    };
    refuse_within(&source, &flags.target)?;
    let _readable = Filter::new(&flags.include, &flags.exclude)?;
    Ok(DesiredWeights {
        source,
        include: flags.include.clone(),
        exclude: flags.exclude.clone(),
        revision: None,
        update: Update::Automatic,
        check_interval: Duration::MAX,
        verification: Verification::BestOffered,
    })
}

fn s3_options(flags: &StageFlags) -> S3Options {
    S3Options {
        credentials: if flags.anonymous { S3Credentials::Anonymous } else { S3Credentials::Chain },
        endpoint: flags.endpoint.clone(),
        region: flags.region.clone(),
        path_style: None,
    }
}
