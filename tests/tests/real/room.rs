//! P4: what does not fit is refused with numbers before a byte of it is asked for.

use anyhow::{Result, ensure};
use stokehold_core::hold::Reason;
use stokehold_core::quantity::Bytes;
use stokehold_tests::lab::fault_s3::{Body, Checksums, FaultS3};
use stokehold_tests::real::{NAMESPACE, Node, Site, Wanted, look_through_current};

use crate::ground::{BUCKET, MIB, Model};

fn short_bytes(node: &Node, name: &str) -> Result<u64> {
    let series = format!("stokehold_hold_short_bytes{{name=\"{name}\",namespace=\"{NAMESPACE}\"}}");
    node.metric(&series).map(|bytes| bytes as u64)
}

#[test]
fn c045_what_does_not_fit_is_refused_with_numbers_before_a_byte_is_asked_for() -> Result<()> {
    let server = FaultS3::start()?;
    // No disk here has a quarter of a pebibyte free, and the bytes are made only when they are read.
    let whole = Body::Seeded { seed: 41, len: 1 << 48 };
    server.put(BUCKET, "vast/model.safetensors", whole, Checksums::None);
    let over = Model::new("over", 42, 2, 64 * MIB);
    let small = Model::new("small", 43, 1, 5 * MIB);
    over.put(&server);
    small.put(&server);
    let vast = Wanted::s3("vast", BUCKET, "vast/").spec("priority", 100);
    let site = Site::new(&server.access())?;
    site.want(&vast)?;
    site.want(&over.wanted().spec("limitPerNode", "64Mi").spec("priority", 50))?;
    site.want(&small.wanted())?;
    let node = site.start()?;

    let reason = node.until_held(&vast.id(), "NoRoom")?;
    let Reason::NoRoom { needed, free } = reason else { anyhow::bail!("it is {reason}") };
    ensure!(needed > Bytes(1 << 48) && free < needed, "{reason}");
    let reason = node.until_held(&over.id(), "OverLimit")?;
    let Reason::OverLimit { needed: over_needed, used, limit } = reason else { anyhow::bail!("it is {reason}") };
    ensure!(over_needed.0 > over.bytes() && used == Bytes(0) && limit == Bytes(64 * MIB), "{reason}");

    // One that fits is not kept from it by larger ones of higher priority.
    node.until_ready(&small.id())?;
    small.check_published(site.root())?;
    for (refused, name) in [(&vast, "vast"), (&over.wanted(), "over")] {
        ensure!(look_through_current(&node.folder(&refused.id()))?.is_none(), "{name} is not published");
        ensure!(short_bytes(&node, name)? > 0, "{name} lacks bytes");
    }
    ensure!(short_bytes(&node, "over")? == (over_needed + used).less(limit).0);
    let asked = server.log().requests.iter().any(|request| {
        request.operation == stokehold_tests::lab::fault_s3::Operation::Get && !request.key.starts_with("small/")
    });
    ensure!(!asked, "no byte of what is refused was asked for");
    let plan = node.ask("/v1/plan")?.to_string();
    ensure!(plan.contains("NoRoom") && plan.contains(&needed.to_string()), "{plan}");
    ensure!(plan.contains("OverLimit") && plan.contains(&over_needed.to_string()), "{plan}");
    Ok(())
}
