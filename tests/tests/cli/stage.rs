//! `stokehold stage`: whole and verified, or not at all.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::Value;
use stokehold_tests::{
    lab::{
        self,
        agent::Agent,
        fault_s3::{Body, Checksums, Fault, FaultS3, Times},
    },
    real,
};

use crate::said::{LIMIT, Said, say};

const BUCKET: &str = "models";
const MIB: u64 = 1 << 20;
/// Bytes of the one large file.
const LARGE: u64 = 24 * MIB;
/// Sum of all files.
const TOTAL: u64 = LARGE + 3;

/// A bucket with a model, and a folder to stage to.
struct Ground {
    origin: FaultS3,
    folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Result<Self> {
        let origin = FaultS3::start()?;
        let large = Body::Seeded { seed: 3, len: LARGE };
        origin.put(BUCKET, "llama/model.safetensors", large, Checksums::Crc64Nvme);
        origin.put(BUCKET, "llama/sub/config.json", Body::bytes("{ }"), Checksums::Crc64Nvme);
        origin.put(BUCKET, "llama/empty", Body::bytes(""), Checksums::Crc64Nvme);
        origin.put(BUCKET, "llama-2/other", Body::bytes("other"), Checksums::Crc64Nvme);
        Ok(Self { origin, folder: tempfile::tempdir()? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn stage(&self, source: &str, target: &str, more: &[&str]) -> Result<Said> {
        let target = self.path(target).display().to_string();
        let args = [&["stage", source, &target, "--output", "json"], more].concat();
        say(&self.path("home"), &self.origin.access().environment(), &args)
    }

    fn start(&self, target: &str) -> Result<lab::agent::Running> {
        let target = self.path(target).display().to_string();
        let agent = Agent::new(&self.path("home"), ["stage", "s3://models/llama", &target, "--part-size", "1Mi"])?;
        agent.envs(self.origin.access().environment()).start()
    }

    fn is_whole(&self, target: &str) -> Result<bool> {
        let paths = real::paths(&self.path(target))?;
        let large = Body::Seeded { seed: 3, len: LARGE };
        let model = self.path(target).join("model.safetensors");
        Ok(paths == ["empty", "model.safetensors", "sub", "sub/config.json"]
            && real::holds_bytes(&model, LARGE, |offset, count| large.read(offset, count))?)
    }
}

/// What stands beside the result.
fn beside(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn number(object: &Value, field: &str) -> u64 {
    object[field].as_u64().unwrap_or(u64::MAX)
}

#[test]
fn a_prefix_becomes_a_folder_and_repeated_it_fetches_nothing() -> Result<()> {
    let ground = Ground::new()?;
    let first = ground.stage("s3://models/llama", "llama", &[])?;
    assert_eq!(first.code, Some(0), "{first:?}");
    let object = first.object()?;
    assert_eq!((number(&object, "files"), number(&object, "bytes")), (3, TOTAL));
    assert_eq!((number(&object, "fetched_bytes"), number(&object, "reused_bytes")), (TOTAL, 0));
    assert!(number(&object, "requests") >= 4 && object["seconds"].is_f64(), "{object}");
    assert_eq!(object["verified"], "crc");
    assert!(ground.is_whole("llama")?);
    assert_eq!(beside(&ground.path(".llama.stokehold")), ["manifest.json"]);

    ground.origin.clear_log();
    let again = ground.stage("s3://models/llama/", "llama", &[])?;
    assert_eq!(again.code, Some(0), "{again:?}");
    let object = again.object()?;
    assert_eq!((number(&object, "fetched_bytes"), number(&object, "reused_bytes")), (0, TOTAL));
    assert_eq!(number(&object, "requests"), 0);
    assert_eq!(ground.origin.log().gets(), 0);
    assert_eq!(beside(&ground.path(".llama.stokehold")), ["manifest.json"]);
    Ok(())
}

#[test]
fn a_folder_of_this_machine_is_a_source_too_and_globs_choose() -> Result<()> {
    let ground = Ground::new()?;
    fs::create_dir_all(ground.path("source/sub"))?;
    fs::write(ground.path("source/model.bin"), vec![1; 100_000])?;
    fs::write(ground.path("source/sub/notes.md"), "notes")?;
    let source = ground.path("source").display().to_string();
    let staged = ground.stage(&source, "copy", &["--include", "**/*.bin", "--include", "*.bin"])?;
    assert_eq!(staged.code, Some(0), "{staged:?}");
    assert_eq!(real::paths(&ground.path("copy"))?, ["model.bin"]);
    assert_eq!(number(&staged.object()?, "bytes"), 100_000);
    Ok(())
}

#[test]
fn killed_and_repeated_it_goes_on_and_nothing_is_there_before_all_is() -> Result<()> {
    let ground = Ground::new()?;
    ground.origin.fault("llama/model.safetensors", Fault::Slow { bytes_per_second: 2 * MIB }, Times::Always);
    let running = ground.start("llama")?;
    let enough = 8 * MIB;
    lab::until("a third of the bytes", LIMIT, || {
        (ground.origin.log().body_bytes("llama/model.safetensors") >= enough).then_some(())
    })?;
    running.kill()?;
    assert!(!ground.path("llama").exists(), "half a model is nowhere");
    ground.origin.clear_faults();
    lab::until("the end of all answers", LIMIT, || (ground.origin.log().open() == 0).then_some(()))?;
    ground.origin.clear_log();

    let again = ground.stage("s3://models/llama", "llama", &["--part-size", "1Mi"])?;
    assert_eq!(again.code, Some(0), "{again:?}");
    let object = again.object()?;
    let (fetched, reused) = (number(&object, "fetched_bytes"), number(&object, "reused_bytes"));
    assert_eq!(fetched + reused, TOTAL);
    assert!(reused >= MIB, "parts that were whole are not fetched again: {object}");
    assert_eq!(ground.origin.log().object_bytes(), fetched, "what is said to be fetched is what was sent");
    assert!(ground.is_whole("llama")?);
    assert_eq!(beside(&ground.path(".llama.stokehold")), ["manifest.json"]);
    Ok(())
}

#[test]
fn ctrl_c_keeps_what_was_received_and_says_so() -> Result<()> {
    let ground = Ground::new()?;
    ground.origin.fault("llama/model.safetensors", Fault::StallAfter { bytes: 400_000 }, Times::Always);
    let running = ground.start("llama")?;
    lab::until("a stalled read", LIMIT, || (ground.origin.log().stalled() > 0).then_some(()))?;
    assert!(running.process().signal(Signal::SIGINT));
    let exit = running.wait(LIMIT)?;
    assert_eq!(exit.status.code(), Some(130), "{}", running.stderr());
    assert!(running.stderr().contains("are kept, and the same command goes on from there"), "{}", running.stderr());
    assert!(!ground.path("llama").exists());
    Ok(())
}

#[test]
fn a_folder_that_is_somebody_elses_is_refused_and_untouched() -> Result<()> {
    let ground = Ground::new()?;
    fs::create_dir(ground.path("theirs"))?;
    fs::write(ground.path("theirs/file"), "theirs")?;
    let refused = ground.stage("s3://models/llama", "theirs", &[])?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("is there and is not touched"), "{}", refused.stderr);
    assert_eq!(beside(&ground.path("theirs")), ["file"]);
    assert_eq!(fs::read_to_string(ground.path("theirs/file"))?, "theirs");
    assert!(!ground.path(".theirs.stokehold").exists());
    assert!(ground.origin.log().requests.is_empty(), "refused before anything is asked");

    // Ours, and changed by somebody since.
    assert_eq!(ground.stage("s3://models/llama", "llama", &[])?.code, Some(0));
    let config = ground.path("llama/sub/config.json");
    fs::remove_file(&config)?;
    fs::write(&config, "{x}")?;
    let refused = ground.stage("s3://models/llama", "llama", &[])?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("sub/config.json"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&config)?, "{x}");
    Ok(())
}

#[test]
fn another_snapshot_takes_the_place_of_the_older_one_at_once() -> Result<()> {
    let ground = Ground::new()?;
    assert_eq!(ground.stage("s3://models/llama", "llama", &[])?.code, Some(0));
    ground.origin.put(BUCKET, "llama/added", Body::bytes("added"), Checksums::Crc64Nvme);
    let updated = ground.stage("s3://models/llama", "llama", &[])?;
    assert_eq!(updated.code, Some(0), "{updated:?}");
    assert_eq!(fs::read_to_string(ground.path("llama/added"))?, "added");
    assert_eq!(number(&updated.object()?, "files"), 4);
    // Where not every process of this machine may be looked at, the older folder is kept and that is said.
    let left = beside(&ground.path(".llama.stokehold"));
    let was_kept = updated.stderr.contains("the older folder is kept as");
    assert_eq!(left.iter().any(|name| name.starts_with("older-")), was_kept, "{left:?} {}", updated.stderr);
    Ok(())
}

#[test]
fn an_empty_folder_is_filled() -> Result<()> {
    let ground = Ground::new()?;
    fs::create_dir(ground.path("llama"))?;
    assert_eq!(ground.stage("s3://models/llama", "llama", &[])?.code, Some(0));
    assert!(ground.is_whole("llama")?);
    assert_eq!(beside(&ground.path(".llama.stokehold")), ["manifest.json"]);
    Ok(())
}

#[test]
fn bytes_that_are_not_what_the_origin_vouches_for_never_appear() -> Result<()> {
    let ground = Ground::new()?;
    let body = Body::Seeded { seed: 9, len: MIB };
    ground.origin.put(BUCKET, "llama/wrong", body, Checksums::WrongCrc64Nvme);
    let refused = ground.stage("s3://models/llama", "llama", &[])?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("wrong should be crc64nvme"), "{}", refused.stderr);
    assert!(!ground.path("llama").exists());
    Ok(())
}

#[test]
fn what_cannot_be_had_leaves_nothing_behind() -> Result<()> {
    let ground = Ground::new()?;
    let missing = ground.stage("s3://models/no-such-prefix", "none", &[])?;
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("could not list s3://models/no-such-prefix/"), "{}", missing.stderr);
    assert_eq!(ground.stage("s3://models/llama", "no/such/parent", &[])?.code, Some(1));
    let later = ground.stage("hf://meta/llama@main", "later", &[])?;
    assert_eq!(later.code, Some(2), "{later:?}");
    assert!(later.stderr.contains("hf:// sources are not in this release"), "{}", later.stderr);
    assert_eq!(beside(ground.folder.path()), ["home"]);
    Ok(())
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_both_numbers_before_a_byte() -> Result<()> {
    let ground = Ground::new()?;
    let huge = Body::Seeded { seed: 1, len: 1 << 50 };
    ground.origin.put(BUCKET, "huge/model", huge, Checksums::None);
    let refused = ground.stage("s3://models/huge", "huge", &[])?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("needs 1034.2 TiB, and "), "{}", refused.stderr);
    assert_eq!(ground.origin.log().gets(), 0);
    assert_eq!(beside(ground.folder.path()), ["home"]);
    Ok(())
}
