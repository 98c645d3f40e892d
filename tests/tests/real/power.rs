//! Power loss, as near as a loop device comes to it: the filesystem stops in the middle and loses what was not synced.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use stokehold_tests::lab;
use stokehold_tests::lab::fault_s3::{Fault, FaultS3, On, Times};
use stokehold_tests::real::{LIMIT, Site, folder, look_through_current};
use tempfile::TempDir;

use crate::ground::{IN_FLIGHT, MIB, MOUNTS, Model, is_root, shard};

/// `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN`: `_IOR('X', 125, __u32)`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Without writing the log: what was not synced is lost.
const WITHOUT_LOG: u32 = 2;
/// Bytes of the filesystem: XFS is made from 300 MiB on.
const DISK_BYTES: u64 = 512 * MIB;

/// A filesystem in a file, mounted; unmounted when dropped.
struct Disk {
    work: TempDir,
    is_mounted: bool,
}

impl Disk {
    /// `None` after saying why where this machine cannot.
    fn new(kind: &str) -> Result<Option<Self>> {
        if !is_root("a filesystem on a loop device") {
            return Ok(None);
        }
        let work = tempfile::tempdir().context("make a folder for the filesystem")?;
        let image = work.path().join("image");
        File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).context("make its image")?;
        std::fs::create_dir(work.path().join("mount")).context("make its mount point")?;
        let made = Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image).output();
        if !made.as_ref().is_ok_and(|made| made.status.success()) {
            eprintln!("skipped: no {kind}: {made:?}");
            return Ok(None);
        }
        let mut disk = Self { work, is_mounted: false };
        if let Err(error) = disk.mount() {
            eprintln!("skipped: no {kind}: {error:#}");
            return Ok(None);
        }
        std::fs::create_dir(disk.root()).context("make a root on it")?;
        // The root is an empty folder of a filesystem that has been there for long.
        nix::unistd::sync();
        Ok(Some(disk))
    }

    fn point(&self) -> PathBuf {
        self.work.path().join("mount")
    }

    fn root(&self) -> PathBuf {
        self.point().join("root")
    }

    fn mount(&mut self) -> Result<()> {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.work.path().join("image")).arg(self.point()))?;
        self.is_mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        self.is_mounted = false;
        run(Command::new("umount").arg(self.point()))
    }

    /// Stops it at once.
    #[expect(unsafe_code, reason = "no crate has this ioctl")]
    fn cut(&self) -> Result<()> {
        let folder = File::open(self.point()).context("open the mount point")?;
        let how = WITHOUT_LOG;
        // SAFETY: the kernel reads four bytes at the pointer, which is to a live local.
        let done = unsafe { libc::ioctl(folder.as_raw_fd(), SHUTDOWN, &raw const how) };
        nix::errno::Errno::result(done).map(drop).context("stop the filesystem")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(error) = self.unmount()
        {
            eprintln!("{error:#}");
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let done = command.output().with_context(|| format!("run {command:?}"))?;
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn cut_and_recover(kind: &str) -> Result<()> {
    const CUTS: u64 = 2;
    let _mounts = MOUNTS.blocking_write();
    let Some(mut disk) = Disk::new(kind)? else { return Ok(()) };
    let server = FaultS3::start()?;
    let model = Model::new("cut", 101, 3, 40 * MIB);
    model.put(&server);
    server.fault(On::AnyGet, Fault::Slow { bytes_per_second: 8 * MIB }, Times::Always);
    let site = Site::on(&server.access(), &disk.root())?;
    site.want(&model.wanted())?;
    for cut in 1..=CUTS {
        let node = site.start()?;
        let wanted = server.log().object_bytes() + 45 * MIB;
        let sent = || (server.log().object_bytes() >= wanted).then_some(());
        lab::until("a third more sent", LIMIT, sent).with_context(|| site.log())?;
        if let Err(error) = disk.cut() {
            eprintln!("skipped: {kind} cannot be stopped: {error:#}");
            return Ok(());
        }
        node.running().kill()?;
        drop(node);
        lab::until("it is unmounted", LIMIT, || disk.unmount().ok())?;
        disk.mount()?;
        eprintln!("{kind}: cut {cut} after {} bytes sent", server.log().object_bytes());
        let folder = folder(Path::new(&disk.root()), &model.id());
        if folder.join("current").is_symlink() {
            ensure!(look_through_current(&folder)?.is_none(), "nothing is published");
        }
        ensure!(!folder.join("current").join(shard(1)).exists());
    }
    server.clear_faults();
    let node = site.start()?;
    node.until_ready(&model.id())?;
    model.check_published(&disk.root())?;
    let (sent, size) = (server.log().object_bytes(), model.bytes());
    eprintln!("{kind}: {sent} bytes sent for {size}");
    // A second of bytes after the last watermark may be lost each time, and the parts in flight.
    let bound = size + CUTS * (IN_FLIGHT + 2 * 4 * 8 * MIB);
    ensure!(sent <= bound, "{sent} bytes were sent, and {bound} may be");
    node.running().kill()?;
    // Published means durable: cut again, all of it is there.
    disk.cut()?;
    lab::until("it is unmounted", LIMIT, || disk.unmount().ok())?;
    disk.mount()?;
    model.check_published(&disk.root())?;
    Ok(())
}

#[test]
fn p03_a_filesystem_cut_off_in_the_middle_is_recovered_ext4() -> Result<()> {
    cut_and_recover("ext4")
}

#[test]
fn p03_a_filesystem_cut_off_in_the_middle_is_recovered_xfs() -> Result<()> {
    cut_and_recover("xfs")
}
