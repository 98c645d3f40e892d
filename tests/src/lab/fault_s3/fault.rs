//! Faults that a test orders: what goes wrong, for which request, how often.
//!
//! In: a fault, a target, a count. Out: for one request the faults that hit it. The same orders and the same requests
//! give the same faults. Deliberately absent: doing them; the server does.

use crate::lab::{fault_s3::content::Body, seed};

/// One thing that goes wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 412 although the object did not change.
    PreconditionFailed,
    /// 503 SlowDown.
    SlowDown {
        /// `Retry-After` in seconds, when there is to be one.
        retry_after: Option<u32>,
    },
    /// 403 ExpiredToken.
    ExpiredToken,
    /// Any other refusal.
    Refused {
        /// HTTP status.
        status: u16,
        /// S3's error code.
        code: &'static str,
    },
    /// The connection ends when exactly this many bytes of the body were sent.
    DropAfter {
        /// Bytes of the body.
        bytes: u64,
    },
    /// Nothing more comes after this many bytes of the body, until [`release`](super::FaultS3::release).
    StallAfter {
        /// Bytes of the body.
        bytes: u64,
    },
    /// Another range than asked: `by` bytes further on (or back, at the end of the object), `Content-Range` saying so.
    ShiftedRange {
        /// Bytes of shift.
        by: u64,
    },
    /// 200 with the whole object although a range was asked.
    WholeObject,
    /// Just before this request the object gets new content and so another ETag, for good.
    Overwritten {
        /// The new content.
        with: Body,
    },
    /// One byte of the answer is inverted; its length is right.
    FlippedByte {
        /// Place in the body of the answer.
        at: u64,
    },
    /// The body ends this many bytes before its `Content-Length`.
    Truncated {
        /// Bytes not sent.
        missing: u64,
    },
    /// The body comes at this speed.
    Slow {
        /// Bytes a second, at least 1.
        bytes_per_second: u64,
    },
    /// A success with `Content-Length: 0`.
    EmptyBody,
}

impl Fault {
    /// Name by which the log counts it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PreconditionFailed => "PreconditionFailed",
            Self::SlowDown { .. } => "SlowDown",
            Self::ExpiredToken => "ExpiredToken",
            Self::Refused { .. } => "Refused",
            Self::DropAfter { .. } => "DropAfter",
            Self::StallAfter { .. } => "StallAfter",
            Self::ShiftedRange { .. } => "ShiftedRange",
            Self::WholeObject => "WholeObject",
            Self::Overwritten { .. } => "Overwritten",
            Self::FlippedByte { .. } => "FlippedByte",
            Self::Truncated { .. } => "Truncated",
            Self::Slow { .. } => "Slow",
            Self::EmptyBody => "EmptyBody",
        }
    }
}

/// Which requests a fault is for. A plain string is a key: its GETs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// GETs of the object with this key, in any bucket.
    Get(String),
    /// HEADs of the object with this key, in any bucket.
    Head(String),
    /// GETs of every object.
    AnyGet,
    /// Listings.
    List,
}

impl From<&str> for On {
    fn from(key: &str) -> Self {
        Self::Get(key.to_owned())
    }
}

/// Which of the requests that match are hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// The first.
    Once,
    /// The first so many.
    First(u64),
    /// Only this one, counted from 1.
    Nth(u64),
    /// Each one.
    Always,
    /// About so many of a hundred, spread by a fixed seed.
    Percent(u8),
}

/// Faults that are ordered, each with the requests it has seen.
#[derive(Debug, Default)]
pub(super) struct Orders {
    orders: Vec<Order>,
}

#[derive(Debug)]
struct Order {
    on: On,
    fault: Fault,
    times: Times,
    seen: u64,
}

impl Orders {
    pub(super) fn add(&mut self, on: On, fault: Fault, times: Times) {
        self.orders.push(Order { on, fault, times, seen: 0 });
    }

    pub(super) fn clear(&mut self) {
        self.orders.clear();
    }

    /// The faults that hit this request, in the order they were given.
    pub(super) fn hit(&mut self, request: &On) -> Vec<Fault> {
        let orders = self.orders.iter_mut().filter(|order| order.on.covers(request));
        orders.filter_map(Order::hit).collect()
    }
}

impl On {
    fn covers(&self, request: &Self) -> bool {
        self == request || (*self == Self::AnyGet && matches!(request, Self::Get(_)))
    }
}

impl Order {
    fn hit(&mut self) -> Option<Fault> {
        self.seen += 1;
        let now = match self.times {
            Times::Once => self.seen == 1,
            Times::First(count) => self.seen <= count,
            Times::Nth(nth) => self.seen == nth,
            Times::Always => true,
            Times::Percent(percent) => seed::mix(self.seen) % 100 < u64::from(percent),
        };
        now.then(|| self.fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(times: Times) -> String {
        let mut orders = Orders::default();
        orders.add("a".into(), Fault::ExpiredToken, times);
        (0..6).map(|_| if orders.hit(&"a".into()).is_empty() { '.' } else { 'x' }).collect()
    }

    #[test]
    fn times_say_which_requests_are_hit() {
        assert_eq!(hits(Times::Once), "x.....");
        assert_eq!(hits(Times::First(2)), "xx....");
        assert_eq!(hits(Times::Nth(3)), "..x...");
        assert_eq!(hits(Times::Always), "xxxxxx");
    }

    #[test]
    fn a_share_is_close_to_its_percentage() {
        let mut orders = Orders::default();
        orders.add(On::AnyGet, Fault::ExpiredToken, Times::Percent(30));
        let hit = (0..1000).filter(|_| !orders.hit(&"any".into()).is_empty()).count();
        assert!((250..350).contains(&hit), "{hit}");
    }

    #[test]
    fn an_order_for_one_key_leaves_others_alone() {
        let mut orders = Orders::default();
        orders.add("a".into(), Fault::ExpiredToken, Times::Always);
        assert!(orders.hit(&"b".into()).is_empty());
        assert!(orders.hit(&On::Head("a".to_owned())).is_empty());
        assert!(orders.hit(&On::List).is_empty());
    }
}
