//! A process of ours that cannot outlive us: started, watched, ended by its pid.
//!
//! In: a `Command`. Out: its pid, signals to it, how it ended with CPU time and peak memory. It is killed when its
//! [`Child`] is dropped and, by PDEATHSIG, when this process dies in any way.
//! Deliberately absent: pipes: callers direct output to files, which need no reader.
#![expect(unsafe_code, reason = "PDEATHSIG must be set between fork and exec, and wait4 has no safe wrapper")]

use std::{
    fs, io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

/// A killed process is gone within this time, or something is badly wrong with the machine.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Linux counts CPU time in `/proc/PID/stat` in ticks of 10 ms on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// How a process ended and what it used.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// User and system time of the process and the children it waited for.
    pub cpu: Duration,
    /// Largest resident set in bytes. Never less than what *this* process had when it forked: the kernel carries that
    /// over exec. [`Child::peak_rss`] of a running process does not have this flaw.
    pub peak_rss: u64,
}

/// A running or ended process.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    watched: Arc<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// `None` while the pid is ours to signal; set under the lock in the same step that gives the pid back.
    exit: Mutex<Option<Exit>>,
    ended: Condvar,
}

impl Child {
    /// Start `command`. Its parent is a thread that lives exactly as long as it: PDEATHSIG watches the parent *thread*.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let us = Pid::this();
        // SAFETY: between fork and exec only two system calls without memory allocation or locks are made.
        unsafe {
            command.pre_exec(move || {
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                // We may have died before the call above: then nobody would ever signal the child.
                if Pid::parent() == us { Ok(()) } else { Err(Errno::ESRCH.into()) }
            });
        }
        let watched = Arc::new(Watched::default());
        let for_thread = Arc::clone(&watched);
        let (started, start) = mpsc::sync_channel(1);
        thread::Builder::new().name("lab-child".to_owned()).spawn(move || {
            let spawned = command.spawn().map(|child| Pid::from_raw(child.id().cast_signed()));
            let pid = spawned.as_ref().ok().copied();
            // The receiver waits below, so this cannot fail; if it did the child would be killed with this thread.
            if started.send(spawned).is_ok()
                && let Some(pid) = pid
            {
                for_thread.until_ended(pid);
            }
        })?;
        let pid = start.recv().map_err(io::Error::other)??;
        Ok(Self { pid, watched })
    }

    /// The process id; it may be another process's once this one has ended.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Send a signal; false when the process has ended already.
    pub fn signal(&self, signal: Signal) -> bool {
        // Held across the call, so that the pid cannot be given back and reused in between.
        let exit = self.watched.lock();
        exit.is_none() && kill(self.pid, signal).is_ok()
    }

    /// Wait for the end at most for `limit`; `None` when it is still running then.
    pub fn wait(&self, limit: Duration) -> Option<Exit> {
        let until = Instant::now() + limit;
        let mut exit = self.watched.lock();
        while exit.is_none() {
            let left = until.checked_duration_since(Instant::now())?;
            exit = self.watched.ended.wait_timeout(exit, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *exit
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        *self.watched.lock()
    }

    /// SIGKILL, and wait until it is gone. An ended process keeps its first end.
    pub fn kill(&self) -> Option<Exit> {
        self.signal(Signal::SIGKILL);
        self.wait(KILL_LIMIT)
    }

    /// Largest resident set so far in bytes (VmHWM); an error once it has ended.
    pub fn peak_rss(&self) -> io::Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no VmHWM in /proc status: the process is ending"))
    }

    /// User and system time so far, to 10 ms; an error once it has ended.
    pub fn cpu(&self) -> io::Result<Duration> {
        let stat = self.proc("stat")?;
        // The name in brackets may hold blanks and brackets: count fields after the last one; utime and stime are
        // fields 14 and 15 of the line, the 12th and 13th after it.
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: u32 = after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
        Ok(TICK * ticks)
    }

    fn proc(&self, file: &str) -> io::Result<String> {
        let exit = self.watched.lock();
        if exit.is_some() {
            return Err(io::Error::other("the process has ended"));
        }
        fs::read_to_string(format!("/proc/{}/{file}", self.pid))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, Option<Exit>> {
        self.exit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn until_ended(&self, pid: Pid) {
        // WNOWAIT leaves the zombie, so that the pid is given back only under the lock.
        while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
        let mut exit = self.lock();
        *exit = Some(reap(pid));
        self.ended.notify_all();
    }
}

fn reap(pid: Pid) -> Exit {
    let mut status = 0;
    // SAFETY: both pointers are to live locals; rusage is plain numbers, for which zero is a value.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::wait4(pid.as_raw(), &mut status, 0, &mut used);
        used
    };
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec.cast_unsigned()) + Duration::from_micros(value.tv_usec.cast_unsigned())
    };
    Exit {
        status: ExitStatus::from_raw(status),
        cpu: time(used.ru_utime) + time(used.ru_stime),
        peak_rss: used.ru_maxrss.cast_unsigned() * 1024,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        let mut command = Command::new("sleep");
        command.arg("600");
        Child::start(command).expect("sleep starts")
    }

    #[test]
    fn a_killed_process_reports_its_signal_and_frees_its_pid() {
        let child = sleeper();
        assert!(child.peak_rss().expect("it runs") > 0);
        let exit = child.kill().expect("it ends");
        assert_eq!(exit.status.signal(), Some(Signal::SIGKILL as i32));
        assert!(!child.signal(Signal::SIGTERM), "an ended process is not signalled");
        assert!(child.peak_rss().is_err());
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let child = sleeper();
        let pid = child.pid;
        drop(child);
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    }

    #[test]
    fn a_wait_has_a_bound() {
        assert!(sleeper().wait(Duration::ZERO).is_none());
    }

    #[test]
    fn an_exit_code_and_cpu_time_are_reported() {
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7"]);
        let exit = Child::start(command).expect("sh starts").wait(Duration::from_secs(60)).expect("it ends");
        assert_eq!(exit.status.code(), Some(7));
        assert!(exit.cpu > Duration::ZERO && exit.peak_rss > 0);
    }

    #[test]
    fn what_cannot_start_is_an_error() {
        assert!(Child::start(Command::new("no-such-program-anywhere")).is_err());
    }
}
