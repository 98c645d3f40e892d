//! A web address, checked: what must be known of it before anything is sent there.
//!
//! In goes text, out comes a URL whose host can be judged, or the reason it cannot. Deliberately absent: resolving, and any
//! clean-up; a host that two programs could read differently is refused.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest URL that is read; what common servers accept.
const URL_LENGTH_MAX: usize = 8_192;
/// Longest host name in DNS.
const HOST_LENGTH_MAX: usize = 253;

/// A URL of scheme http or https.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct WebUrl {
    text: String,
    is_tls: bool,
    host: Host,
    port: u16,
}

/// Whom a URL names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A name, lower case, without a dot at its end.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// A text that is not a URL that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a usable URL: {why}; allowed: http:// or https:// with a host and no user or password")]
pub struct BadUrl {
    /// The text, without what could be a password.
    pub text: String,
    /// What is wrong.
    pub why: &'static str,
}

impl WebUrl {
    /// The URL as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whom it names.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Whether scheme, host and port are those of `other`.
    #[must_use]
    pub fn same_origin(&self, other: &Self) -> bool {
        self.is_tls == other.is_tls && self.host == other.host && self.port == other.port
    }
}

impl TryFrom<String> for WebUrl {
    type Error = BadUrl;

    fn try_from(text: String) -> Result<Self, BadUrl> {
        let bad = |why| BadUrl { text: text.chars().take(100).collect(), why };
        if text.len() > URL_LENGTH_MAX || text.chars().any(|letter| !letter.is_ascii_graphic() || letter == '\\') {
            return Err(bad("it is longer than 8192 bytes, or holds a space, a backslash or a letter outside ASCII"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _other => return Err(bad("its scheme is another one")),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            // What stands before the @ may be a secret: it is not repeated.
            return Err(BadUrl { text: format!("{scheme}://…"), why: "it holds a user or a password" });
        }
        let (host, port) = split_port(authority).ok_or_else(|| bad("its port is not a number from 1 to 65535"))?;
        let port = port.unwrap_or(if is_tls { 443 } else { 80 });
        let host = read_host(host).map_err(bad)?;
        Ok(Self { is_tls, host, port, text })
    }
}

impl From<WebUrl> for String {
    fn from(url: WebUrl) -> Self {
        url.text
    }
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => out.write_str(name),
            Self::Address(address) => write!(out, "{address}"),
        }
    }
}

/// The host without port, and the port where one is written. `None` where the port is no port.
pub(crate) fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let after_bracket = authority.rfind(']').map_or(0, |at| at + 1);
    let Some(colon) = authority[after_bracket..].find(':').map(|at| at + after_bracket) else {
        return Some((authority, None));
    };
    let port = &authority[colon + 1..];
    let number = port.parse().ok().filter(|number| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((&authority[..colon], Some(number)))
}

/// Reads a host: an address in its one usual form, or a name.
pub(crate) fn read_host(text: &str) -> Result<Host, &'static str> {
    if let Some(inside) = text.strip_prefix('[') {
        let address = inside.strip_suffix(']').and_then(|address| address.parse::<Ipv6Addr>().ok());
        return address.map(|address| Host::Address(IpAddr::V6(address))).ok_or("its host is not an IPv6 address");
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Address(IpAddr::V4(address)));
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if name.len() > HOST_LENGTH_MAX || !name.split('.').all(label) {
        return Err("its host is not a name");
    }
    // 127.1, 2130706433 and 0x7f000001 are addresses to some programs and names to others.
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("its host is an address in an unusual form");
    }
    Ok(Host::Name(name))
}
