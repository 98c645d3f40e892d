//! C033: nothing to do means nothing asked of the origin.

use anyhow::{Result, ensure};
use stokehold_tests::lab::{self, fault_s3::FaultS3};
use stokehold_tests::real::{LIMIT, Site, Wanted};

use crate::ground::{MIB, Model};

#[test]
fn c033_a_hundred_passes_of_a_ready_cache_ask_the_origin_nothing() -> Result<()> {
    const PASSES: u32 = 100;
    let server = FaultS3::start()?;
    let model = Model::new("idle", 81, 2, MIB);
    model.put(&server);
    let site = Site::new(&server.access())?;
    site.want(&model.wanted().weights("checkInterval", "1h"))?;
    let node = site.start()?;
    node.until_ready(&model.id())?;
    let asked = server.log().requests.len();
    let first = node.metric("stokehold_passes_total")?;
    for pass in 0..PASSES {
        let before = node.metric("stokehold_passes_total")?;
        // Another document that asks for no bytes, with another priority each time.
        site.want(&Wanted::images("other").spec("priority", pass + 1))?;
        lab::until("a pass", LIMIT, || {
            node.metric("stokehold_passes_total").is_ok_and(|passes| passes > before).then_some(())
        })?;
    }
    let passes = node.metric("stokehold_passes_total")? - first;
    ensure!(passes >= f64::from(PASSES), "{passes} passes");
    let more = server.log().requests.len() - asked;
    ensure!(more == 0, "{more} requests in {passes} passes: {:?}", server.log().requests.last());
    Ok(())
}
