//! Origins in memory: files that change, and answers that are late, cut short, refused or wrong.
//!
//! In: files and faults. Out: what core's port asks of an origin. A byte is only ever wrong where a checksum vouches for it: a lie of
//! the right length about a file without one cannot be found by anybody. Deliberately absent: sockets and HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stokehold_core::checksum::{Checksum, ChecksumKind, Hasher};
use stokehold_core::file_op::FileError;
use stokehold_core::listing::{Entry, ListingBuilder, Pin};
use stokehold_core::port::{ByteRange, Fill, Origin, OriginError, Pinned};
use stokehold_core::quantity::Bytes;
use stokehold_core::source::Source;

use super::rng::Rng;
use super::scene::Scene;
use super::truth::{Truth, Version};

mod fault;

pub use fault::OriginFaults;

use fault::Gate;

/// Files of one page of a listing.
const PAGE_FILES: usize = 3;
/// How long a stalled answer takes: longer than any world lasts.
const STALL: Duration = Duration::from_secs(365 * 86_400);

#[derive(Debug, Clone)]
struct Object {
    etag: String,
    version: Arc<Version>,
    vouched: Option<Checksum>,
}

/// The origins. Clones share them.
#[derive(Debug, Clone)]
pub struct SimOrigin(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    scene: Scene,
    truth: Truth,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Files by source and by path below it.
    files: BTreeMap<String, BTreeMap<String, Object>>,
    /// Keys that no path can be made of, by source.
    bad_keys: BTreeMap<String, String>,
    /// Bytes sent, by ETag.
    served: BTreeMap<String, u64>,
    versions: u64,
    rng: Rng,
    faults: OriginFaults,
    down_until_ns: u64,
    refuses_until_ns: u64,
}

/// What an origin does next with one request for bytes.
enum Answer {
    Piece(Vec<u8>, Duration),
    Stall,
    Fails(OriginError),
}

impl SimOrigin {
    /// Origins that hold nothing yet.
    #[must_use]
    pub fn new(scene: &Scene, truth: &Truth, faults: OriginFaults) -> Self {
        let state = State {
            files: BTreeMap::new(),
            bad_keys: BTreeMap::new(),
            served: BTreeMap::new(),
            versions: 0,
            rng: scene.rng("origin"),
            faults,
            down_until_ns: 0,
            refuses_until_ns: 0,
        };
        Self(Arc::new(Shared { scene: scene.clone(), truth: truth.clone(), state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.0.scene.clock.now_ns()
    }

    /// Writes a file, or a new version of one. `vouch` is the checksum that is offered for it. Returns its ETag.
    pub fn put(&self, source: &Source, path: &str, bytes: Vec<u8>, vouch: Option<ChecksumKind>) -> String {
        let mut state = self.state();
        state.versions += 1;
        let etag = format!("etag-{}", state.versions);
        let vouched = vouch.map(|kind| {
            let mut hasher = Hasher::new(kind);
            hasher.update(&bytes);
            hasher.finish()
        });
        let identity = source.identity();
        self.0.scene.say(format_args!("origin {identity}{path} is {etag}, {} bytes, vouched {vouched:?}", bytes.len()));
        let version = Arc::new(Version { identity: identity.clone(), path: path.to_owned(), bytes });
        self.0.truth.add(&etag, version.clone());
        let object = Object { etag: etag.clone(), version, vouched };
        state.files.entry(identity).or_default().insert(path.to_owned(), object);
        etag
    }

    /// Removes a file.
    pub fn remove(&self, source: &Source, path: &str) {
        self.0.scene.say(format_args!("origin {source}{path} is removed"));
        if let Some(files) = self.state().files.get_mut(&source.identity()) {
            files.remove(path);
        }
    }

    /// A key that no path can be made of appears, or goes.
    pub fn set_bad_key(&self, source: &Source, key: Option<&str>) {
        self.0.scene.say(format_args!("origin {source} has the bad key {key:?}"));
        let mut state = self.state();
        match key {
            Some(key) => drop(state.bad_keys.insert(source.identity(), key.to_owned())),
            None => drop(state.bad_keys.remove(&source.identity())),
        }
    }

    /// From now on faults come as often as this; whatever was down is up again.
    pub fn set_faults(&self, faults: OriginFaults) {
        let mut state = self.state();
        state.faults = faults;
        (state.down_until_ns, state.refuses_until_ns) = (0, 0);
    }

    /// Bytes sent of each version, by ETag, and how many it has.
    #[must_use]
    pub fn served(&self) -> BTreeMap<String, u64> {
        self.state().served.clone()
    }

    /// Paths below a source.
    #[must_use]
    pub fn paths(&self, source: &Source) -> Vec<String> {
        self.state().files.get(&source.identity()).map(|files| files.keys().cloned().collect()).unwrap_or_default()
    }

    /// Bytes of all files of a source.
    #[must_use]
    pub fn bytes(&self, source: &Source) -> u64 {
        let state = self.state();
        let files = state.files.get(&source.identity());
        files.map_or(0, |files| files.values().map(|object| object.version.bytes.len() as u64).sum())
    }

    /// Whether this request gets past the door, and how long that takes.
    async fn gate(&self, source: &Source) -> Result<(), OriginError> {
        let (gate, wait) = self.state().gate(source, self.now_ns());
        tokio::time::sleep(wait).await;
        match gate {
            Gate::Open => Ok(()),
            Gate::Stalls => {
                self.0.scene.say(format_args!("origin {source} stalls"));
                tokio::time::sleep(STALL).await;
                Err(unreachable_origin(source, "it stalled"))
            }
            Gate::Refuses(error) => {
                self.0.scene.say(format_args!("origin {source}: {error}"));
                Err(error)
            }
        }
    }

    fn find(&self, source: &Source, entry: &Entry, pin: &Pin) -> Result<Object, OriginError> {
        let what = format!("{source}{}", entry.path);
        let state = self.state();
        let object = state.files.get(&source.identity()).and_then(|files| files.get(entry.path.as_str()));
        match object {
            None => Err(OriginError::Missing { what }),
            Some(object) if pin.etag.as_ref() != Some(&object.etag) => Err(OriginError::Changed { what }),
            Some(object) => Ok(object.clone()),
        }
    }
}

fn unreachable_origin(source: &Source, message: &str) -> OriginError {
    OriginError::Unreachable { origin: source.to_string(), message: message.to_owned() }
}

fn deliver(mut bytes: &[u8], fill: &mut dyn Fill) -> Result<(), FileError> {
    while !bytes.is_empty() {
        let room = fill.buffer()?;
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        fill.filled(count)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

impl Origin for SimOrigin {
    async fn list(&self, source: &Source, into: &mut ListingBuilder) -> Result<(), OriginError> {
        let mut after = String::new();
        let mut count = 0;
        loop {
            self.gate(source).await?;
            let page: Vec<(String, Object)> = {
                let state = self.state();
                let Some(files) = state.files.get(&source.identity()) else { break };
                let rest = files.iter().filter(|(path, _)| **path > after).take(PAGE_FILES);
                rest.map(|(path, object)| (path.clone(), object.clone())).collect()
            };
            let is_last = page.len() < PAGE_FILES;
            for (path, object) in page {
                let pin = Pin { etag: Some(object.etag.clone()), ..Pin::default() };
                into.push(&path, Bytes(object.version.bytes.len() as u64), object.etag, pin, None)?;
                after = path;
                count += 1;
            }
            if is_last {
                break;
            }
        }
        let bad_key = self.state().bad_keys.get(&source.identity()).cloned();
        if let Some(key) = bad_key {
            into.push(&key, Bytes(1), "bad".to_owned(), Pin::default(), None)?;
        }
        self.0.scene.say(format_args!("origin {source} was listed: {count} files"));
        Ok(())
    }

    async fn pin(&self, source: &Source, entry: &Entry) -> Result<Pinned, OriginError> {
        self.gate(source).await?;
        let object = self.find(source, entry, &entry.pin)?;
        Ok(Pinned { pin: entry.pin.clone(), checksum: object.vouched })
    }

    async fn read_into(
        &self,
        source: &Source,
        entry: &Entry,
        pin: &Pin,
        range: ByteRange,
        fill: &mut dyn Fill,
    ) -> Result<(), OriginError> {
        self.gate(source).await?;
        let object = self.find(source, entry, pin)?;
        let mut body = self.state().body(&object, range, source);
        loop {
            let answer = self.state().next(&mut body, &object, source);
            match answer {
                None => return Ok(()),
                Some(Answer::Piece(bytes, wait)) => {
                    tokio::time::sleep(wait).await;
                    let count = bytes.len() as u64;
                    *self.state().served.entry(object.etag.clone()).or_default() += count;
                    deliver(&bytes, fill)?;
                }
                Some(Answer::Stall) => {
                    self.0.scene.say(format_args!("origin {source}{} stalls at {}", entry.path, body.at));
                    tokio::time::sleep(STALL).await;
                }
                Some(Answer::Fails(error)) => {
                    self.0.scene.say(format_args!("origin {source}{} at {}: {error}", entry.path, body.at));
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
