//! The built `stokehold` program as a process: started with arguments, watched, ended.
//!
//! In: arguments, environment, a folder for its output. Out: exit code, what it said, its memory and CPU time.
//! Deliberately absent: knowledge of the agent's options: tests pass them.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use crate::lab::{
    self,
    child::{Child, Exit},
};

/// Name of the program.
const PROGRAM: &str = "stokehold";
/// Names a ready program, for CI that built it before.
const PROGRAM_VARIABLE: &str = "STOKEHOLD_BIN";

/// Path of the program: `STOKEHOLD_BIN`, or else what Cargo builds now beside this test.
///
/// Building here (once per process, half a second when fresh) keeps a test from judging yesterday's program: Cargo does
/// not build another package's program for a test.
pub fn program() -> Result<&'static Path> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| match env::var_os(PROGRAM_VARIABLE) {
        Some(path) => Ok(PathBuf::from(path)),
        None => build().map_err(|error| format!("{error:#}")),
    });
    found.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

fn build() -> Result<PathBuf> {
    let us = env::current_exe().context("find this test's own program")?;
    // <target>/<triple>/<profile>/deps/<test>, or without deps/ for a program of this package.
    let folder = us.parent().context("a program is in a folder")?;
    let folder = if folder.ends_with("deps") { folder.parent().context("deps is in a folder")? } else { folder };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    // Both packages: the same features for shared dependencies as in the build of this test, so nothing is built twice.
    command.args(["build", "--quiet", "-p", PROGRAM, "-p", env!("CARGO_PKG_NAME"), "--bin", PROGRAM]);
    if folder.ends_with("release") {
        command.arg("--release");
    }
    let built = command.current_dir(lab::workspace()).output().context("run cargo")?;
    ensure!(built.status.success(), "cargo build of {PROGRAM}: {}", String::from_utf8_lossy(&built.stderr));
    let program = folder.join(PROGRAM);
    ensure!(program.exists(), "cargo built no {}", program.display());
    Ok(program)
}

/// What to start.
#[derive(Debug)]
pub struct Agent {
    command: Command,
    folder: PathBuf,
}

impl Agent {
    /// The agent with these arguments; its output and home are in `folder`, which is made when absent.
    ///
    /// Its environment has nothing of ours but `PATH`: the AWS settings of the person who runs the test are not the
    /// agent's.
    pub fn new<A: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = A>) -> Result<Self> {
        Self::within(folder, &[], args)
    }

    /// The same, started by another program, such as `unshare` with its options; its process is that program's.
    pub fn within<A: AsRef<OsStr>>(folder: &Path, starter: &[&str], args: impl IntoIterator<Item = A>) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let mut command = match starter {
            [] => Command::new(program()?),
            [first, options @ ..] => {
                let mut command = Command::new(first);
                command.args(options).arg(program()?);
                command
            }
        };
        command.args(args).env_clear().env("HOME", folder).env("AWS_EC2_METADATA_DISABLED", "true");
        if let Some(path) = env::var_os("PATH") {
            command.env("PATH", path);
        }
        Ok(Self { command, folder: folder.to_owned() })
    }

    /// Set a variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Set several, such as [`Access::environment`](crate::lab::bucket::Access::environment).
    pub fn envs(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.command.envs(variables);
        self
    }

    /// Start it. Output of an earlier start in the same folder is kept: this one's is appended.
    pub fn start(mut self) -> Result<Running> {
        let open = |name| {
            let path = self.folder.join(name);
            File::options().create(true).append(true).open(&path).with_context(|| format!("open {}", path.display()))
        };
        self.command.stdout(open("stdout")?).stderr(open("stderr")?);
        let child = Child::start(self.command).context("start the agent")?;
        Ok(Running { child, folder: self.folder })
    }
}

/// A started agent; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    /// Its process.
    pub fn process(&self) -> &Child {
        &self.child
    }

    /// All it has written to standard output so far.
    pub fn stdout(&self) -> String {
        self.said("stdout")
    }

    /// All it has written to standard error so far.
    pub fn stderr(&self) -> String {
        self.said("stderr")
    }

    /// `kill -9`, and wait until it is gone.
    pub fn kill(&self) -> Result<Exit> {
        self.child.kill().context("the agent outlived SIGKILL")
    }

    /// SIGTERM, and wait for its end at most for `limit`.
    pub fn terminate(&self, limit: Duration) -> Result<Exit> {
        self.child.signal(Signal::SIGTERM);
        self.wait(limit)
    }

    /// Wait for its end at most for `limit`; the error holds what it said last.
    pub fn wait(&self, limit: Duration) -> Result<Exit> {
        self.child
            .wait(limit)
            .with_context(|| format!("the agent still ran after {limit:?}; it said:\n{}", self.stderr()))
    }

    fn said(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join(name)).unwrap_or_default()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_started_and_its_end_reported() {
        let folder = tempfile::tempdir().expect("folder");
        let agent = Agent::new(folder.path(), ["--no-such-option"]).expect("program").start().expect("it starts");
        let exit = agent.wait(Duration::from_secs(30)).expect("it ends");
        assert!(exit.status.code().is_some(), "it ends by itself");
    }
}
