//! Which addresses and names lead out to the public network, and which stay on the machine, in the cluster or the company.
//!
//! Deliberately absent: resolving. A public-looking name can lead to a private address; who connects asks again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::api::Host;

/// Domains that never lead out: of this machine, this link, this cluster, this cloud account.
const PRIVATE_DOMAINS: &[&str] = &["localhost", "local", "internal", "svc", "lan", "intranet", "corp", "home", "arpa"];

/// Whether a host is a name that leads out. An address is not a name: what is allowed by name leaves it out.
#[must_use]
pub fn is_public_host(host: &Host) -> bool {
    match host {
        Host::Address(_) => false,
        // A single label is completed by the resolver's search list: in a pod it names a service of the namespace.
        Host::Name(name) => {
            name.contains('.') && !PRIVATE_DOMAINS.contains(&name.rsplit('.').next().unwrap_or_default())
        }
    }
}

/// Whether an address leads out: not this machine, not this link (instance metadata), not private, not multicast, not reserved.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_protocol = first == 192 && second == 0 && third == 0;
    let is_benchmark = first == 198 && (second == 18 || second == 19);
    !(first == 0
        || first >= 224
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_protocol
        || is_benchmark)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    /// The well-known prefix of NAT64 (RFC 6052): the last 32 bits are an IPv4 address.
    const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
    let parts = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    if parts[..6] == NAT64 {
        return is_public_v4(embedded(parts[6], parts[7]));
    }
    if parts[0] == 0x2002 {
        // 6to4: bits 16 to 48 are an IPv4 address.
        return is_public_v4(embedded(parts[1], parts[2]));
    }
    // Only 2000::/3 is given out; the documentation prefix lies in it. Instance metadata, fd00:ec2::254, does not.
    let is_documentation = parts[0] == 0x2001 && parts[1] == 0x0db8;
    parts[0] & 0xe000 == 0x2000 && !is_documentation
}
