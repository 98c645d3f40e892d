//! Words to a service manager that speaks systemd's notify protocol: ready, alive, stopping.
//!
//! In go states, out go datagrams to the socket that the environment names. Without such a socket nothing is said. Deliberately
//! absent: any decision whether the agent is alive.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Names the socket.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// Says after how many microseconds of silence the agent is restarted.
const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// Says which process the watchdog is meant for.
const WATCHDOG_PID_VARIABLE: &str = "WATCHDOG_PID";

/// Whoever started us and wants to know how we are.
#[derive(Debug)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    alive_period: Option<Duration>,
}

impl ServiceManager {
    /// As the environment names it.
    #[must_use]
    pub fn of_environment() -> Self {
        let said = |name| std::env::var(name).ok();
        let is_for_us = said(WATCHDOG_PID_VARIABLE).is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = said(WATCHDOG_VARIABLE).and_then(|text| text.parse().ok()).filter(|_| is_for_us);
        Self::new(said(SOCKET_VARIABLE).as_deref(), watchdog.map(Duration::from_micros))
    }

    fn new(socket: Option<&str>, watchdog: Option<Duration>) -> Self {
        let opened = socket.and_then(|name| {
            open(name)
                .inspect_err(|error| tracing::warn!(name, %error, "the service manager cannot be told anything"))
                .ok()
        });
        // Twice in each period, so that one late word does no harm.
        Self { socket: opened, alive_period: watchdog.map(|period| period / 2).filter(|period| !period.is_zero()) }
    }

    /// How often it wants to hear that we are alive.
    #[must_use]
    pub const fn alive_period(&self) -> Option<Duration> {
        self.alive_period
    }

    /// The first pass has been made.
    pub fn ready(&self) {
        self.say("READY=1\nSTATUS=passes are made");
    }

    /// Work goes on.
    pub fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    /// Journals are being closed.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=journals are being closed");
    }

    fn say(&self, words: &str) {
        let Some((socket, to)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(words.as_bytes(), to) {
            tracing::warn!(%error, "the service manager was not told");
        }
    }
}

fn open(name: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold us.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_arrives_and_half_the_watchdog_is_the_period() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bind");
        let service = ServiceManager::new(path.to_str(), Some(Duration::from_secs(240)));
        assert_eq!(service.alive_period(), Some(Duration::from_secs(120)));
        service.ready();
        let mut words = [0; 100];
        let length = manager.recv(&mut words).expect("a datagram");
        assert!(words[..length].starts_with(b"READY=1\n"));
    }

    #[test]
    fn without_a_manager_nothing_is_said_and_nothing_fails() {
        let service = ServiceManager::new(None, None);
        service.stopping();
        assert_eq!(service.alive_period(), None);
        ServiceManager::new(Some("/no/such/socket"), None).alive();
    }
}
