//! Users of bytes, real processes each: descriptors, mappings, folders and mounts.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::root::RootOptions;

struct Place {
    folder: tempfile::TempDir,
    root: CacheRoot,
}

/// What is asked about.
const SNAPSHOT: &str = "deployments/ns/llama/snapshots/one";

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = CacheRoot::open(folder.path(), RootOptions::default()).expect("root");
        let snapshot = folder.path().join(SNAPSHOT);
        fs::create_dir_all(snapshot.join("tokenizer")).expect("folders");
        fs::write(snapshot.join("tokenizer/vocabulary"), "words").expect("write");
        fs::create_dir_all(folder.path().join("deployments/ns/mistral")).expect("folders");
        Self { folder, root }
    }

    fn real(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }

    /// Users as `source path`, among the processes that this test may look at: their number differs from machine to machine.
    fn users(&self, path: &str) -> Vec<String> {
        let proc = tempfile::tempdir().expect("temporary folder");
        symlink("/proc/self", proc.path().join("self")).expect("link");
        fs::create_dir_all(proc.path().join("1/fd")).expect("folder");
        fs::write(proc.path().join("1/maps"), "").expect("write");
        for pid in process::pids(Path::new(PROC)).expect("processes") {
            let real = Path::new(PROC).join(pid.to_string());
            if pid != 1 && fs::File::open(real.join("maps")).is_ok() && fs::read_link(real.join("cwd")).is_ok() {
                symlink(&real, proc.path().join(pid.to_string())).expect("link");
            }
        }
        match shown_by(proc.path(), &self.root, &TreePath::root().entry(path)).expect("looked") {
            Seen::Present(users) => users.into_iter().map(|user| format!("{:?} {}", user.source, user.path)).collect(),
            other @ (Seen::Absent | Seen::Unknown(_)) => vec![format!("{other:?}")],
        }
    }

    /// A child that another test is just starting has our open files too, until it runs its own program, and one that runs a
    /// set-user-ID program may not be read.
    fn check(&self, path: &str, wanted: &[&str]) {
        let patience = Instant::now() + Duration::from_secs(10);
        while self.users(path) != wanted && Instant::now() < patience {
            std::thread::yield_now();
        }
        assert_eq!(self.users(path), wanted, "users of {path}");
    }
}

/// A process that ends with the test, after it said that it is ready.
struct Reader(Child);

impl Reader {
    fn start(command: &mut Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut said = [0; 6];
        let ready = child.stdout.as_mut()?.read_exact(&mut said);
        let reader = Self(child);
        ready.is_ok().then_some(reader)
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let (_killed, _waited) = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn nobody_is_an_empty_list_and_our_own_files_do_not_count() {
    let place = Place::new();
    let _own = fs::File::open(place.real(SNAPSHOT).join("tokenizer/vocabulary")).expect("open");
    place.check(SNAPSHOT, &[]);
    place.check("deployments", &[]);
}

#[test]
fn p05_an_open_file_is_found_by_file_and_by_every_folder_above() {
    let place = Place::new();
    let file = format!("{SNAPSHOT}/tokenizer/vocabulary");
    let opened = fs::File::open(place.real(&file)).expect("open");
    let reader = Reader::start(Reader::shell("echo ready; exec sleep 600").stdin(opened)).expect("shell");
    let wanted = format!("Descriptor {file}");
    for asked in [&file, SNAPSHOT, "deployments"] {
        place.check(asked, &[&wanted]);
    }
    place.check("deployments/ns/mistral", &[]);
    fs::rename(place.real(SNAPSHOT), place.real("condemned/one.1")).expect("rename aside");
    place.check("condemned", &["Descriptor condemned/one.1/tokenizer/vocabulary"]);
    fs::remove_file(place.real("condemned/one.1/tokenizer/vocabulary")).expect("unlink");
    place.check("condemned", &["Descriptor condemned/one.1/tokenizer/vocabulary"]);
    drop(reader);
    place.check("condemned", &[]);
}

#[test]
fn p05_a_working_directory_is_found() {
    let place = Place::new();
    let folder = place.real(SNAPSHOT).join("tokenizer");
    let _reader = Reader::start(Reader::shell("echo ready; exec sleep 600").current_dir(folder)).expect("shell");
    place.check(SNAPSHOT, &[&format!("WorkingDirectory {SNAPSHOT}/tokenizer")]);
}

#[test]
fn p05_a_mapping_whose_file_is_closed_is_found() {
    let place = Place::new();
    let file = format!("{SNAPSHOT}/tokenizer/vocabulary");
    let script = "import mmap,sys,time\nf=open(sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\nf.close()\nprint('ready',flush=True)\ntime.sleep(600)";
    // Python keeps a copy of the descriptor for a mapping that may grow; 3.13 can leave it out.
    let reader = Reader::start(Command::new("python3").args(["-c", script]).arg(place.real(&file)));
    let Some(_reader) = reader else { return eprintln!("skipped: no python3") };
    let users = place.users(SNAPSHOT);
    assert!(users.contains(&format!("Map {file}")), "{users:?}");
}

#[test]
fn p05_a_bind_in_another_mount_namespace_is_found_also_after_a_rename() {
    let place = Place::new();
    let target = tempfile::tempdir().expect("temporary folder");
    let script = "mount --bind \"$1\" \"$2\" && echo ready && exec sleep 600";
    let bind = |path: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).arg(place.real(path)).arg(target.path());
        Reader::start(&mut command)
    };
    let Some(pod) = bind("deployments/ns/llama") else { return eprintln!("skipped: may not mount") };
    for asked in ["deployments/ns/llama", SNAPSHOT, "deployments"] {
        place.check(asked, &["Mount deployments/ns/llama"]);
    }
    place.check("deployments/ns/mistral", &[]);
    drop(pod);
    let _pod = bind(SNAPSHOT).expect("as before");
    place.check(SNAPSHOT, &[&format!("Mount {SNAPSHOT}")]);
    fs::rename(place.real(SNAPSHOT), place.real("condemned/one.1")).expect("rename aside");
    place.check("condemned/one.1", &["Mount condemned/one.1"]);
    place.check("deployments", &[]);
}

#[test]
fn a_mount_of_the_root_itself_is_no_user() {
    let place = Place::new();
    let target = tempfile::tempdir().expect("temporary folder");
    let script = "mount --bind \"$1\" \"$2\" && echo ready && exec sleep 600";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(place.folder.path()).arg(target.path());
    let Some(_agent) = Reader::start(&mut command) else { return eprintln!("skipped: may not mount") };
    place.check(SNAPSHOT, &[]);
}

#[test]
fn p05_an_overlay_over_a_snapshot_is_found_by_the_name_of_its_layer() {
    let place = Place::new();
    let target = tempfile::tempdir().expect("temporary folder");
    let script = "mount -t overlay -o ro,lowerdir=\"$1\":/var/empty-or-not none \"$2\" 2>/dev/null || \
                  mount -t overlay -o ro,lowerdir=\"$1\":/usr none \"$2\" && echo ready && exec sleep 600";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(place.real(SNAPSHOT)).arg(target.path());
    let Some(_pod) = Reader::start(&mut command) else { return eprintln!("skipped: may not mount overlays") };
    place.check(SNAPSHOT, &[&format!("Mount {SNAPSHOT}")]);
}

/// A `/proc` made of files, with process 1 and another that has the given files.
fn proc_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let proc = tempfile::tempdir().expect("temporary folder");
    for pid in ["1", "7"] {
        fs::create_dir_all(proc.path().join(pid).join("fd")).expect("folders");
        for file in ["maps", "mountinfo"] {
            fs::write(proc.path().join(pid).join(file), "").expect("write");
        }
    }
    for (path, content) in files {
        fs::write(proc.path().join(path), content).expect("write");
    }
    proc
}

fn subject() -> Subject<'static> {
    Subject {
        path: "deployments/ns/llama",
        inodes: BTreeMap::from([(42, "deployments/ns/llama/file".to_owned())]),
        file_device: (259, 1),
        mount_device: (259, 1),
        root_on_device: "/stokehold".to_owned(),
        root_here: "/opt/nvme/stokehold".to_owned(),
    }
}

fn told(proc: &tempfile::TempDir) -> String {
    match look(proc.path(), &subject(), 1) {
        Seen::Present(users) => {
            let one = |user: &User| format!("{:?} {}", user.source, user.path);
            users.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Seen::Unknown(why) => format!("unknown: {why}"),
        Seen::Absent => "absent".to_owned(),
    }
}

#[test]
fn p05_a_process_that_cannot_be_read_makes_the_answer_unknown_unless_users_are_known() {
    let proc = proc_with(&[]);
    assert_eq!(told(&proc), "");
    fs::remove_file(proc.path().join("7/maps")).expect("remove");
    assert_eq!(told(&proc), "", "what went meanwhile is nothing");
    fs::create_dir(proc.path().join("7/maps")).expect("cannot be read as a file, whoever asks");
    assert_eq!(
        told(&proc),
        "unknown: 1 processes could not be read, the first is pid 7: maps: Is a directory (os error 21)"
    );
    fs::write(proc.path().join("1/maps"), "0-1 r--s 00000000 103:01 42 /models/file\n").expect("write");
    assert_eq!(told(&proc), "Map deployments/ns/llama/file");
    fs::remove_dir_all(proc.path().join("1")).expect("remove");
    assert_eq!(told(&proc), "unknown: processes of others are hidden: there is no process 1");
}

#[test]
fn the_same_inode_or_path_of_another_device_is_no_user() {
    let mount = "1 0 8:1 /stokehold/deployments/ns/llama /models ro - ext4 /dev/sda rw\n";
    let maps = "0-1 r--s 00000000 08:01 42 /opt/nvme/stokehold/deployments/ns/llama/file\n";
    assert_eq!(told(&proc_with(&[("7/mountinfo", mount), ("7/maps", maps)])), "");
}

#[test]
fn names_that_only_start_alike_are_no_users() {
    let mount = "1 0 259:1 /stokehold/deployments/ns/llama-2 /models ro - xfs /dev/md0 rw\n";
    let maps = "0-1 r--s 00000000 103:01 43 /opt/nvme/stokehold/deployments/ns/llama-2/file\n";
    assert_eq!(told(&proc_with(&[("7/mountinfo", mount), ("7/maps", maps)])), "");
}

#[test]
fn mounts_above_the_folder_count_up_to_the_root_and_layers_of_overlays_too() {
    let of_namespace = "1 0 259:1 /stokehold/deployments/ns /models ro - xfs /dev/md0 rw\n";
    assert_eq!(told(&proc_with(&[("7/mountinfo", of_namespace)])), "Mount deployments/ns");
    let of_disk = "1 0 259:1 / /opt/nvme rw - xfs /dev/md0 rw\n1 0 259:1 /stokehold /cache rw - xfs /dev/md0 rw\n";
    assert_eq!(told(&proc_with(&[("7/mountinfo", of_disk)])), "");
    let layer =
        "1 0 0:40 / / rw - overlay overlay rw,lowerdir=/x:/opt/nvme/stokehold/deployments/ns/llama/snapshots/1\n";
    assert_eq!(told(&proc_with(&[("7/mountinfo", layer)])), "Mount deployments/ns/llama/snapshots/1");
}

#[test]
fn p05_a_process_that_ends_while_it_is_read_hides_no_mount_of_its_namespace() {
    let mount = "1 0 259:1 /stokehold/deployments/ns/llama /models ro - xfs /dev/md0 rw\n";
    let proc = proc_with(&[("7/mountinfo", mount)]);
    for pid in ["1", "7"] {
        fs::create_dir(proc.path().join(pid).join("ns")).expect("folder");
        symlink("mnt:[4026531841]", proc.path().join(pid).join("ns/mnt")).expect("link");
        symlink(proc.path(), proc.path().join(pid).join("root")).expect("link");
    }
    let (ending, pod) = (Process::new(proc.path(), 1), Process::new(proc.path(), 7));
    assert_eq!(ending.mount_view(), pod.mount_view(), "one namespace");
    let mut found = Found { users: BTreeSet::new(), namespaces: BTreeSet::new() };
    found.mounts(&ending, &subject()).expect("it has no mounts any more");
    fs::remove_file(proc.path().join("1/mountinfo")).expect("remove");
    assert!(matches!(found.mounts(&ending, &subject()), Err(Vanished::Gone)));
    found.mounts(&pod, &subject()).expect("reads");
    assert_eq!(found.users.len(), 1);
}
