//! Keeps reading a folder as it changes.
//!
//! In goes a folder that was read once; out goes what is desired, each time that it differs. Events only wake: each reading is of the whole folder, and a resync
//! bounds what a missed event costs. Deliberately absent: which file an event was about.

use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::path::Path;
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch::Sender;
use tokio_util::sync::CancellationToken;

use stokehold_core::desired::Desired;

use super::Folder;

/// After an event this long is waited, so that an editor's or kubelet's many small steps are one reading.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Look again this often even if nothing seems to have changed: a missed event costs one period.
const RESYNC_PERIOD: Duration = Duration::from_secs(60);
/// Look again this often while the folder cannot be read or cannot be watched.
const RETRY_PERIOD: Duration = Duration::from_secs(5);
/// Most reads of the event queue in one go: sixteen thousand events, the kernel's own limit of the queue.
const DRAIN_MAX: usize = 1_000;

/// Reads the folder whenever it changes, until `stop`. What is desired is sent only where it differs from what was sent before.
pub async fn watch(mut folder: Folder, sender: Sender<Desired>, stop: CancellationToken) {
    let mut events = Events::new();
    while !stop.is_cancelled() {
        // Watched before it is read: what changes in between is an event.
        let is_watched = events.arm(folder.path());
        let read = tokio::task::spawn_blocking(move || {
            let desired = folder.read();
            (folder, desired)
        });
        let desired;
        (folder, desired) = match read.await {
            Ok(read) => read,
            // Only a panic ends it otherwise, and that is ours to show.
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_runtime_is_stopping) => return,
            },
        };
        let is_settled = is_watched && !desired.rejected.iter().any(|rejected| rejected.place == folder.place());
        publish(&sender, desired);
        let wait = if is_settled { RESYNC_PERIOD } else { RETRY_PERIOD };
        tokio::select! {
            biased;
            // Cancel-safe: a token keeps its state.
            () = stop.cancelled() => return,
            // Cancel-safe: readiness is kept until the events are read.
            () = events.changed() => {}
            // Cancel-safe: a dropped sleep has done nothing.
            () = tokio::time::sleep(wait) => continue,
        }
        tokio::select! {
            biased;
            // Cancel-safe: a token keeps its state.
            () = stop.cancelled() => return,
            // Cancel-safe: a dropped sleep has done nothing.
            () = tokio::time::sleep(DEBOUNCE) => {}
        }
        events.drain();
    }
}

fn publish(sender: &Sender<Desired>, desired: Desired) {
    sender.send_if_modified(|last| {
        if *last == desired {
            return false;
        }
        for rejected in desired.rejected.iter().filter(|rejected| !last.rejected.contains(rejected)) {
            tracing::warn!(place = %rejected.place, error = %rejected.reason, "desired document rejected");
        }
        *last = desired;
        true
    });
}

/// Changes of one folder, as inotify tells them.
struct Events {
    /// Absent where the kernel gave none: then the folder is read every [`RETRY_PERIOD`].
    inotify: Option<AsyncFd<Instance>>,
    watched: Option<WatchDescriptor>,
}

/// Owns the descriptor for as long as tokio waits on it, and never replaces it.
struct Instance(Inotify);

impl AsRawFd for Instance {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Events {
    #[expect(deprecated, reason = "its successor is unsafe, for owners that may close the descriptor; ours cannot")]
    fn new() -> Self {
        let made = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .map_err(std::io::Error::from)
            .and_then(|inotify| AsyncFd::new(Instance(inotify)));
        let inotify = made
            .inspect_err(|error| tracing::warn!(%error, period = ?RETRY_PERIOD, "no inotify, desired folder is polled"))
            .ok();
        Self { inotify, watched: None }
    }

    /// Watches what the path leads to now; a folder that was replaced is another one.
    fn arm(&mut self, folder: &Path) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let armed = inotify.get_ref().0.add_watch(folder, flags).ok();
        if let Some(before) = self.watched.filter(|before| Some(*before) != armed) {
            // Fails where the old folder is gone, and its watch with it.
            let _gone = inotify.get_ref().0.rm_watch(before);
        }
        self.watched = armed;
        armed.is_some()
    }

    /// Waits until something changed.
    async fn changed(&self) {
        let Some(inotify) = &self.inotify else { return std::future::pending().await };
        loop {
            let Ok(mut guard) = inotify.readable().await else { return std::future::pending().await };
            match inotify.get_ref().0.read_events() {
                Ok(_events) => return,
                Err(_none_yet) => guard.clear_ready(),
            }
        }
    }

    /// Forgets what was told: all of it is answered by one reading.
    fn drain(&self) {
        if let Some(inotify) = &self.inotify {
            let more = |_read: &usize| inotify.get_ref().0.read_events().is_ok_and(|events| !events.is_empty());
            let _reads = (0..DRAIN_MAX).take_while(more).count();
        }
    }
}
