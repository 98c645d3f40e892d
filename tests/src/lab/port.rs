//! Free ports on 127.0.0.1 for servers that cannot be told "any".
//!
//! In: how many. Out: that many port numbers, each just seen free. Deliberately absent: a reservation: none exists for a
//! server that binds by itself, so callers start again with other ports when a server does not come up.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU16, Ordering},
};

/// First port handed out; all lie below 32768, where Linux starts to take ports for outgoing connections.
const FIRST: u16 = 12_000;
/// How many ports are handed out in turn: [`FIRST`] + 20,000 stays below 32768.
const COUNT: u16 = 20_000;
/// Ports between the starts of two processes: more than one test process usually takes.
const STRIDE: u32 = 211;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// `N` different ports that nothing listened on a moment ago; processes start at different places and this one never
/// hands the same port out twice in a row.
pub fn free<const N: usize>() -> [u16; N] {
    let start = (process::id().wrapping_mul(STRIDE) % u32::from(COUNT)) as u16;
    let mut found = [0; N];
    for port in &mut found {
        *port = loop {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let candidate = FIRST + ((u32::from(start) + u32::from(step)) % u32::from(COUNT)) as u16;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, candidate)).is_ok() {
                break candidate;
            }
        };
    }
    found
}
