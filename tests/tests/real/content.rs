//! P1: bytes and names that an origin should not have, and files that stagers forget.

use anyhow::{Result, ensure};
use stokehold_core::hold::Reason;
use stokehold_tests::lab::bucket::{Bucket, Upload};
use stokehold_tests::lab::fault_s3::{Body, Checksums, Fault, FaultS3, Times};
use stokehold_tests::lab::seaweed::Seaweed;
use stokehold_tests::lab::seed;
use stokehold_tests::real::{Site, Wanted, files, look_through_current, paths};

use crate::ground::{BUCKET, MIB, Model, shard};

#[test]
fn p01_wrong_bytes_of_the_right_length_are_not_published_and_cost_only_their_file() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("wrong", 31, 3, 6 * MIB);
    model.put(&server);
    let (path, body) = &model.files[1];
    server.put(BUCKET, &model.key(path), body.clone(), Checksums::WrongCrc64Nvme);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let node = site.start()?;
    let reason = node.until_held(&model.id(), "ChecksumMismatch")?;
    ensure!(matches!(&reason, Reason::ChecksumMismatch { file, .. } if file == path), "{reason}");
    ensure!(look_through_current(&node.folder(&model.id()))?.is_none(), "nothing is published");
    let report = node.report().expect("just seen");
    ensure!(!report.labels.contains_key(&stokehold_tests::real::label(&model.id())), "no label");
    server.put(BUCKET, &model.key(path), body.clone(), Checksums::Crc64Nvme);
    node.until_ready(&model.id())?;
    model.check_published(site.root())?;
    for number in [1, 3] {
        let sent = server.log().body_bytes(&model.key(&shard(number)));
        // What was on its way when the wrong bytes were found is asked for again, and nothing else.
        ensure!(sent <= 6 * MIB + 4 * MIB, "{sent} bytes of shard {number} were sent");
    }
    ensure!(node.metric("stokehold_corrupt_total")? >= 1.0);
    Ok(())
}

#[test]
fn p01_a_byte_that_flips_on_its_way_is_found_and_its_file_is_fetched_again() -> Result<()> {
    let server = FaultS3::start()?;
    let model = Model::new("flipped", 32, 2, 6 * MIB);
    model.put(&server);
    server.fault(model.key(&shard(2)).as_str(), Fault::FlippedByte { at: 1_000_000 }, Times::Nth(2));
    let site = Site::new(&server.access())?;
    site.want(&model.wanted())?;
    let node = site.start()?;
    let reason = node.until_held(&model.id(), "ChecksumMismatch")?;
    ensure!(matches!(&reason, Reason::ChecksumMismatch { file, .. } if *file == shard(2)), "{reason}");
    node.until_ready(&model.id())?;
    model.check_published(site.root())?;
    let sent = server.log().body_bytes(&model.key(&shard(1)));
    ensure!(sent <= 6 * MIB + 4 * MIB, "{sent} bytes of the good shard were sent");
    Ok(())
}

#[test]
fn c021_keys_that_cannot_be_paths_are_refused_by_name_and_write_nothing() -> Result<()> {
    let long = "n".repeat(256);
    let bad = [
        ("up", "../../x", "../../x"),
        ("absolute", "/abs", "/abs"),
        ("double", "a//b", "a//b"),
        ("dot", "a/./b", "a/./b"),
        ("long", long.as_str(), "nnnnnnnn"),
        ("clash", "model", "model"),
    ];
    let server = FaultS3::start()?;
    let site = Site::new(&server.access())?;
    let before = paths(&site.path(""))?;
    for (name, key, _) in bad {
        server.put(BUCKET, &format!("{name}/{key}"), Body::bytes("bytes"), Checksums::Crc64Nvme);
        server.put(BUCKET, &format!("{name}/good.json"), Body::bytes("{}"), Checksums::Crc64Nvme);
    }
    server.put(BUCKET, "clash/model/config.json", Body::bytes("{}"), Checksums::Crc64Nvme);
    for (name, ..) in bad {
        site.want(&Wanted::s3(name, BUCKET, &format!("{name}/")))?;
    }
    let node = site.start()?;
    for (name, _, told) in bad {
        let wanted = Wanted::s3(name, BUCKET, "");
        let reason = node.until_held(&wanted.id(), "BadListing")?.to_string();
        ensure!(reason.contains(told), "the hold of {name} names the key: {reason}");
        ensure!(files(&node.folder(&wanted.id()).join("snapshots"))?.is_empty());
        ensure!(files(&node.folder(&wanted.id()).join("incoming"))?.is_empty());
    }
    ensure!(server.log().gets() == 0, "nothing was asked for");
    // Beside the root there is what was there, and what every agent has there.
    let ours = ["stdout", "stderr", "agent.sock", "state/", "desired/", "root/"];
    let is_known = |path: &String| before.contains(path) || ours.iter().any(|ours| path.starts_with(ours));
    let strange: Vec<String> = paths(&site.path(""))?.into_iter().filter(|path| !is_known(path)).collect();
    ensure!(strange.is_empty(), "{strange:?}");
    let strange: Vec<String> = paths(&site.path(""))?
        .into_iter()
        .filter(|path| ["x", "abs", "b"].iter().any(|name| path.rsplit('/').next() == Some(name)))
        .collect();
    ensure!(strange.is_empty(), "{strange:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn c009_files_without_bytes_and_folders_are_kept_and_folder_markers_are_not_files() -> Result<()> {
    let Some(seaweed) = Seaweed::start_or_skip() else { return Ok(()) };
    let bucket = Bucket::create(&seaweed.access(), BUCKET).await?;
    let big = seed::bytes(7, 17 << 20);
    bucket.put("m/", "", Upload::Plain).await?;
    bucket.put("m/nested/", "", Upload::Plain).await?;
    bucket.put("m/nested/deeper/empty.txt", "", Upload::Crc64Nvme).await?;
    bucket.put("m/nested/config.json", "{}", Upload::Sha256).await?;
    bucket.put("m/big.safetensors", big.clone(), Upload::Multipart { part_bytes: 5 << 20 }).await?;
    bucket.put("m/with a blank & sign.json", "[]", Upload::Plain).await?;
    // Another model whose name begins alike is not part of this one.
    bucket.put("m-2/other.json", "{}", Upload::Plain).await?;
    let site = Site::new(&seaweed.access())?;
    let wanted = Wanted::s3("nested", BUCKET, "m/");
    site.want(&wanted)?;
    let node = site.start()?;
    let id = node.until_ready(&wanted.id())?;
    let found = files(&node.folder(&wanted.id()).join(format!("snapshots/{id}")))?;
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let expected = ["big.safetensors", "nested/config.json", "nested/deeper/empty.txt", "with a blank & sign.json"];
    ensure!(names == expected, "{names:?}");
    ensure!(found["big.safetensors"] == big && found["nested/config.json"] == b"{}");
    ensure!(found["nested/deeper/empty.txt"].is_empty());
    let status = node.ask("/v1/status")?.to_string();
    ensure!(status.contains(&id.to_string()), "{status}");
    Ok(())
}
