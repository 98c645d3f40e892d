//! What the faulty server was asked and what it sent: the evidence tests count.
//!
//! In: each request as it comes, its bytes as they go. Out: a list of requests with sums over it.
//! Deliberately absent: bodies and credentials.

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// GetObject.
    Get,
    /// HeadObject.
    Head,
    /// ListObjectsV2.
    List,
    /// PutObject.
    Put,
    /// DeleteObject.
    Delete,
    /// CreateBucket, HeadBucket and all that the server refuses.
    Other,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is being sent.
    Open,
    /// A fault holds it.
    Stalled,
    /// Every byte was handed to the connection.
    Complete,
    /// A fault ended it.
    Cut,
    /// The client went away, or the connection broke.
    HungUp,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What for.
    pub operation: Operation,
    /// The bucket; empty without one.
    pub bucket: String,
    /// The object's key, or the prefix of a listing.
    pub key: String,
    /// First and last byte asked for, as the `Range` header said, resolved against the object.
    pub range: Option<(u64, u64)>,
    /// The `If-Match` header.
    pub if_match: Option<String>,
    /// HTTP status answered.
    pub status: u16,
    /// Bytes of the body handed to the connection so far.
    pub body_bytes: u64,
    /// Names of the faults that hit it.
    pub faults: Vec<&'static str>,
    /// How far it is.
    pub end: End,
}

/// All requests since the start, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The requests.
    pub requests: Vec<Request>,
    pub(super) most_open: usize,
    pub(super) open: usize,
}

impl Log {
    /// Bytes of bodies sent for GETs of `key`, refusals included.
    pub fn body_bytes(&self, key: &str) -> u64 {
        self.gets_of(key).map(|request| request.body_bytes).sum()
    }

    /// Bytes of bodies of objects sent: the successful GETs.
    pub fn object_bytes(&self) -> u64 {
        self.of(Operation::Get).filter(|request| request.status < 300).map(|request| request.body_bytes).sum()
    }

    /// GETs of objects.
    pub fn gets(&self) -> usize {
        self.of(Operation::Get).count()
    }

    /// GETs of one key.
    pub fn gets_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Request> {
        self.of(Operation::Get).filter(move |request| request.key == key)
    }

    /// HEADs of objects.
    pub fn heads(&self) -> usize {
        self.of(Operation::Head).count()
    }

    /// Listing requests: one per page.
    pub fn lists(&self) -> usize {
        self.of(Operation::List).count()
    }

    /// Requests of one kind.
    pub fn of(&self, operation: Operation) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(move |request| request.operation == operation)
    }

    /// Requests answered with this status.
    pub fn with_status(&self, status: u16) -> usize {
        self.requests.iter().filter(|request| request.status == status).count()
    }

    /// Requests hit by the fault of this name.
    pub fn faults(&self, name: &str) -> usize {
        self.requests.iter().filter(|request| request.faults.contains(&name)).count()
    }

    /// Answers held by a stall now.
    pub fn stalled(&self) -> usize {
        self.requests.iter().filter(|request| request.end == End::Stalled).count()
    }

    /// Answers not ended yet.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Most answers that were open at one time.
    pub fn most_open(&self) -> usize {
        self.most_open
    }
}
