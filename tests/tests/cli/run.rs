//! `stokehold run` and the commands that ask it.

use std::{fs, path::Path, time::Duration};

use anyhow::Result;
use serde_json::Value;
use stokehold_tests::{
    lab::{
        self,
        fault_s3::{Body, Checksums, Fault, FaultS3, Times},
        http,
    },
    real::{self, Node, Site, Wanted},
};

use crate::said::{LIMIT, Said, say};

const BUCKET: &str = "models";
/// Between a signal and the end of the process.
const STOP_LIMIT: Duration = Duration::from_secs(5);

fn origin(bytes: u64) -> Result<FaultS3> {
    let origin = FaultS3::start()?;
    let body = Body::Seeded { seed: 7, len: bytes };
    origin.put(BUCKET, "llama/model.safetensors", body, Checksums::Crc64Nvme);
    Ok(origin)
}

fn asked(site: &Site, node: &Node, args: &[&str]) -> Result<Said> {
    let socket = node.socket().display().to_string();
    let mut all = args.to_vec();
    all.extend(["--socket", &socket]);
    say(&site.path("home"), &[], &all)
}

#[test]
fn a_ready_cache_is_seen_on_every_command_and_sigterm_ends_the_agent_at_once() -> Result<()> {
    let origin = origin(5 << 20)?;
    let site = Site::new(&origin.access())?;
    let llama = Wanted::s3("llama", BUCKET, "llama/");
    site.want(&llama)?;
    let node = site.start()?;
    let waited = asked(&site, &node, &["status", "--wait", "50s"])?;
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert!(waited.stdout.contains("models/llama   Ready"), "{}", waited.stdout);

    let status = asked(&site, &node, &["status", "--output", "json"])?.object()?;
    assert_eq!(status["node"], "node-1");
    assert_eq!(status["caches"][0]["phase"], "Ready");
    assert_eq!(status["caches"][0]["bytesDone"], 5 << 20);
    let why = asked(&site, &node, &["why", "llama"])?;
    assert_eq!(why.code, Some(0));
    assert!(why.stdout.starts_with("models/llama is ready: snapshot "), "{}", why.stdout);
    assert_eq!(asked(&site, &node, &["why", "qwen"])?.code, Some(1));
    let plan = asked(&site, &node, &["plan", "--output", "json"])?.object()?;
    assert_eq!(plan["steps"], Value::Array(Vec::new()));
    assert_eq!(asked(&site, &node, &["status", "--output", "yaml"])?.code, Some(0));

    for path in ["/healthz", "/readyz"] {
        assert_eq!(http::get_unix(node.socket(), path)?.status, 200, "{path}");
    }
    assert!(node.metrics()?.contains("stokehold_build_info"));
    assert_eq!(http::get_unix(node.socket(), "/v1/report")?.status, 200);
    assert_eq!(http::get_unix(node.socket(), "/v1/nothing")?.status, 404);

    let exit = node.running().terminate(STOP_LIMIT)?;
    assert_eq!(exit.status.code(), Some(0), "{}", site.log());
    assert!(!node.socket().exists(), "the socket is removed");
    Ok(())
}

#[test]
fn sigterm_amid_a_staging_ends_the_agent_in_time() -> Result<()> {
    let origin = origin(64 << 20)?;
    origin.fault("llama/model.safetensors", Fault::StallAfter { bytes: 100_000 }, Times::Always);
    let site = Site::new(&origin.access())?;
    site.want(&Wanted::s3("llama", BUCKET, "llama/"))?;
    let node = site.start()?;
    lab::until("a stalled read", LIMIT, || (origin.log().stalled() > 0).then_some(()))?;
    let staging = asked(&site, &node, &["status", "--output", "json"])?.object()?;
    assert_eq!(staging["caches"][0]["phase"], "Staging");
    let exit = node.running().terminate(STOP_LIMIT)?;
    assert_eq!(exit.status.code(), Some(0), "{}", site.log());
    Ok(())
}

#[test]
fn p07_a_held_cache_is_told_with_its_reason_and_exit_code_three() -> Result<()> {
    let origin = origin(5 << 20)?;
    let site = Site::new(&origin.access())?;
    site.want(&Wanted::s3("llama", BUCKET, "llama/").spec("limitPerNode", "1Mi"))?;
    let node = site.start()?;
    node.until_held(&real::id("llama"), "OverLimit")?;
    let why = asked(&site, &node, &["why", "models/llama"])?;
    assert_eq!(why.code, Some(3), "{why:?}");
    assert!(why.stdout.starts_with("models/llama is held: OverLimit: needs "), "{}", why.stdout);
    assert!(why.stdout.contains("limitPerNode is 1.0 MiB"), "{}", why.stdout);
    let watched = asked(&site, &node, &["status", "--watch"])?;
    assert_eq!(watched.code, Some(3), "{watched:?}");
    assert!(watched.stderr.contains("models/llama: held: OverLimit"), "{}", watched.stderr);
    Ok(())
}

#[test]
fn a_second_agent_on_one_root_is_refused_with_the_pid_of_the_first() -> Result<()> {
    let origin = origin(1)?;
    let site = Site::new(&origin.access())?;
    let first = site.start()?;
    lab::until("the first agent", LIMIT, || first.report())?;
    let root = site.root().display().to_string();
    let desired = site.path("desired").display().to_string();
    let state = site.path("other-state").display().to_string();
    let args = ["run", "--root", &root, "--desired", &desired, "--state", &state, "--allow-non-local"];
    let second = say(&site.path("home"), &[("STOKEHOLD_LISTEN".to_owned(), "127.0.0.1:0".to_owned())], &args)?;
    assert_eq!(second.code, Some(1), "{second:?}");
    let pid = format!("is held by another agent, pid {}", first.running().process().pid());
    assert!(second.stderr.contains(&pid), "{}", second.stderr);
    assert!(first.running().process().exit().is_none(), "the first goes on");
    Ok(())
}

fn refused(folder: &Path, args: &[&str]) -> Result<String> {
    let said = say(&folder.join("home"), &[], args)?;
    assert_eq!(said.code, Some(1), "{said:?}");
    Ok(said.stderr)
}

#[test]
fn what_is_wrong_with_a_start_is_named_with_what_is_allowed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (root, desired, state, file) = (path("root"), path("desired"), path("state"), path("agent.yaml"));
    fs::create_dir(&desired)?;
    let usual = ["run", "--root", &root, "--desired", &desired, "--state", &state, "--listen", "127.0.0.1:0"];

    fs::write(&file, "jobs: { stagesMax: 99 }\n")?;
    let said = refused(folder.path(), &["run", "--root", &root, "--config", &file])?;
    assert!(said.contains("jobs.stagesMax: \"99\" is not allowed; allowed: 1 to 16"), "{said}");
    let said = refused(folder.path(), &["run", "--root", &root])?;
    assert!(said.contains("desired is not set, and this release does not talk to a cluster"), "{said}");
    let gone = path("no-such-folder");
    let said =
        refused(folder.path(), &["run", "--root", &root, "--desired", &gone, "--state", &state, "--allow-non-local"])?;
    assert!(said.contains("could not list the folder of desired files"), "{said}");
    fs::create_dir_all(path("state/stokehold.sock"))?;
    let said = refused(folder.path(), &[usual.as_slice(), &["--allow-non-local"]].concat())?;
    assert!(said.contains("could not make the socket"), "{said}");

    // Of tmpfs nobody can say that it is local NVMe, whatever disks this machine has.
    let memory = tempfile::tempdir_in("/dev/shm")?;
    let root = memory.path().join("root").display().to_string();
    let said = refused(folder.path(), &["run", "--root", &root, "--desired", &desired, "--state", &state])?;
    assert!(said.contains("is not on local NVMe") && said.contains("--allow-non-local"), "{said}");
    assert!(!memory.path().join("root").exists(), "a refused root is not made");
    Ok(())
}
