//! Every reason there is for not doing what is wanted: one table.
//!
//! A hold says in one sentence, with numbers, why something is not done. Its name is what conditions, events and metrics carry, so
//! names stay. Deliberately absent: holds without numbers where there are numbers to give.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::checksum::SnapshotId;
use crate::file_op::User;
use crate::name::CacheId;
use crate::quantity::Bytes;
use crate::time::WallTime;

/// What is held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// The node as a whole.
    Node,
    /// A cache's weights.
    Weights(CacheId),
    /// A cache's images.
    Images(CacheId),
    /// The document that asks for a cache.
    Document(String),
}

impl Subject {
    /// The cache it belongs to, where it belongs to one.
    #[must_use]
    pub const fn cache(&self) -> Option<&CacheId> {
        match self {
            Self::Weights(cache) | Self::Images(cache) => Some(cache),
            Self::Node | Self::Document(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => out.write_str("node"),
            Self::Weights(cache) => write!(out, "weights of {cache}"),
            Self::Images(cache) => write!(out, "images of {cache}"),
            Self::Document(place) => write!(out, "document {place}"),
        }
    }
}

/// One thing that is wanted and not done, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// What is held.
    pub subject: Subject,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Hold {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}: {}", self.subject, self.reason.name(), self.reason)
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $({ $($field:ident: $type:ty),* $(,)? })? => $meaning:literal, $text:literal;)*) => {
        /// Why something is not done.
        #[expect(missing_docs, reason = "each reason's doc and sentence name its fields")]
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "reason")]
        pub enum Reason {
            $($(#[$doc])* $name $({ $($field: $type),* })?,)*
        }

        /// All reasons with what they mean, in the order of the documentation.
        pub const REASONS: &[(&str, &str)] = &[$((stringify!($name), $meaning),)*];

        impl Reason {
            /// The name that conditions, events and metrics carry.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$name $({ $($field: _),* })? => stringify!($name),)*
                }
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name $({ $($field),* })? => write!(out, $text),)*
                }
            }
        }
    };
}

reasons! {
    /// A field asks for something that this release does not do.
    NotInThisRelease { field: String } =>
        "A field asks for something that this release does not do.",
        "{field} is set, and this release does not act on it";
    /// The document cannot be read.
    Rejected { why: String } =>
        "A document cannot be read; what is on disk for it stays as it is.",
        "{why}";
    /// A policy forbids the source.
    RefusedByPolicy { why: String } =>
        "A CachePolicy does not allow what is asked.",
        "{why}";
    /// The cache root cannot be used or measured.
    RootUnknown { why: String } =>
        "The cache root cannot be used or measured; nothing is started until it can.",
        "the cache root cannot be used: {why}";
    /// What is on disk for this cache cannot be read.
    CacheUnknown { why: String } =>
        "What is on disk for a cache cannot be read; nothing of it is touched.",
        "what is on disk cannot be read: {why}";
    /// `current` is not ours.
    CurrentIsForeign { found: String } =>
        "`current` in a cache's folder was made by somebody else; it is left alone.",
        "`current` is {found}, which this agent did not make; move it away";
    /// Not enough bytes.
    NoRoom { needed: Bytes, free: Bytes } =>
        "The disk has fewer bytes to promise than the snapshot needs.",
        "needs {needed}, and {free} can be promised (free space less head-room and what is promised to others)";
    /// Not enough inodes.
    NoInodes { needed: u64, free: u64 } =>
        "The disk has fewer inodes than the snapshot has files and folders.",
        "needs {needed} inodes, and {free} are free";
    /// Larger than `limitPerNode`.
    OverLimit { needed: Bytes, used: Bytes, limit: Bytes } =>
        "The snapshot does not fit into `limitPerNode` beside what is published.",
        "needs {needed} beside {used} in use, and limitPerNode is {limit}";
    /// The disk or a quota was full in the middle.
    DiskFull { why: String } =>
        "The disk or a quota was full while writing; what was received is kept.",
        "{why}";
    /// The disk failed.
    DiskError { why: String } =>
        "A file operation failed.",
        "{why}";
    /// The origin does not answer.
    OriginUnreachable { why: String } =>
        "The origin does not answer, or breaks off.",
        "{why}";
    /// The origin refuses.
    OriginRefused { why: String } =>
        "The origin refuses: credentials are missing, wrong, expired, or have no right to it.",
        "{why}";
    /// The source does not exist.
    OriginMissing { why: String } =>
        "The bucket, object or folder does not exist, or no file matches.",
        "{why}";
    /// The origin answers against its protocol.
    OriginBroken { why: String } =>
        "The origin answers against its protocol.",
        "{why}";
    /// The origin asks to slow down.
    OriginThrottled { why: String } =>
        "The origin asks to slow down, again and again.",
        "{why}";
    /// The listing has a key that cannot be staged.
    BadListing { why: String } =>
        "The source has a key that cannot become a path, or too many files.",
        "{why}";
    /// Another version is offered than the one that is served.
    UpdateAvailable { current: SnapshotId, offered: SnapshotId } =>
        "The origin offers another snapshot than the one that is served; set `revision` to take it.",
        "{current} is served, and the origin offers {offered}; set revision to it, or update to Automatic";
    /// The target can no longer be had.
    OriginChanged { target: SnapshotId, offered: SnapshotId } =>
        "The origin changed before the target was staged; set `revision` to what it offers.",
        "{target} is the target, and the origin now offers {offered}; set revision to it, or update to Automatic";
    /// `revision` names what the origin does not offer.
    RevisionNotOffered { wanted: SnapshotId, offered: SnapshotId } =>
        "`revision` names a snapshot that the origin does not offer.",
        "revision is {wanted}, and the origin offers {offered}";
    /// The bytes are not what the origin vouched for.
    ChecksumMismatch { file: String, expected: String, found: String } =>
        "The bytes that arrived are not what the origin vouches for; they are not published.",
        "{file} should be {expected} and is {found}";
    /// No checksum where one is required.
    NoChecksum { file: String } =>
        "`verification: Required`, and the origin offers no checksum for a file.",
        "verification is Required, and the origin offers no checksum for {file}";
    /// A published file is not what was published.
    Corrupt { file: String, what: String } =>
        "A published file is no longer what was published; readiness is withdrawn and it is checked.",
        "{file} {what}";
    /// Waiting for other stagings.
    WaitingForTurn { ahead: u32 } =>
        "Other stagings go first.",
        "{ahead} others are being staged or go first";
    /// The job keeps dying.
    Quarantined { starts: u32, until: WallTime } =>
        "The agent died while it worked on this, without getting further; it waits before it tries again.",
        "begun {starts} times without getting further; tried again at {until}";
    /// Somebody uses it.
    InUse { users: u32, first: String } =>
        "Bytes that should go are in use.",
        "{users} use it, the first is {first}";
    /// It cannot be told whether somebody uses it.
    UsersUnknown { why: String } =>
        "It cannot be told whether bytes that should go are in use, so they count as in use.",
        "cannot tell whether it is in use: {why}";
    /// Kept for a while after it was deleted.
    Retained { until: WallTime } =>
        "Nobody asks for it any more; it is kept until its retention ends.",
        "nobody asks for it; kept until {until}";
}

impl Reason {
    /// That somebody uses it, and who first.
    #[must_use]
    pub fn in_use(users: &[User]) -> Self {
        let first = users.first().map(|user| match user.pid {
            Some(pid) => format!("process {pid} ({:?} of {})", user.source, user.path),
            None => format!("{:?} of {}", user.source, user.path),
        });
        Self::InUse { users: u32::try_from(users.len()).unwrap_or(u32::MAX), first: first.unwrap_or_default() }
    }

    /// Whether this keeps a cache from being ready; else it only says that there is more to know. Bytes that should go and are in
    /// use harm nobody while what should be served is served, and stand in the way of what should take their place.
    #[must_use]
    pub const fn stands_in_the_way(&self, is_served: bool) -> bool {
        let is_offer = matches!(self, Self::UpdateAvailable { .. });
        let waits_for_users = matches!(self, Self::InUse { .. } | Self::UsersUnknown { .. });
        !(is_offer || (waits_for_users && is_served))
    }

    /// Whether a person may have to look: not where waiting is all there is to do.
    #[must_use]
    pub const fn is_worrying(&self) -> bool {
        self.stands_in_the_way(true) && !matches!(self, Self::WaitingForTurn { .. } | Self::Retained { .. })
    }

    /// Bytes that are missing, where that is the reason.
    #[must_use]
    pub fn short_by(&self) -> Option<Bytes> {
        match self {
            Self::NoRoom { needed, free } => Some(needed.less(*free)),
            Self::OverLimit { needed, used, limit } => Some((*needed + *used).less(*limit)),
            Self::NotInThisRelease { .. }
            | Self::Rejected { .. }
            | Self::RefusedByPolicy { .. }
            | Self::RootUnknown { .. }
            | Self::CacheUnknown { .. }
            | Self::CurrentIsForeign { .. }
            | Self::NoInodes { .. }
            | Self::DiskFull { .. }
            | Self::DiskError { .. }
            | Self::OriginUnreachable { .. }
            | Self::OriginRefused { .. }
            | Self::OriginMissing { .. }
            | Self::OriginBroken { .. }
            | Self::OriginThrottled { .. }
            | Self::BadListing { .. }
            | Self::UpdateAvailable { .. }
            | Self::OriginChanged { .. }
            | Self::RevisionNotOffered { .. }
            | Self::ChecksumMismatch { .. }
            | Self::NoChecksum { .. }
            | Self::Corrupt { .. }
            | Self::WaitingForTurn { .. }
            | Self::Quarantined { .. }
            | Self::InUse { .. }
            | Self::UsersUnknown { .. }
            | Self::Retained { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p07_a_hold_reads_as_one_sentence_with_numbers() {
        let hold = Hold {
            subject: Subject::Weights(CacheId::new("inference", "llama-70b").expect("checked")),
            reason: Reason::NoRoom { needed: Bytes(140 << 30), free: Bytes(12 << 30) },
        };
        assert_eq!(
            hold.to_string(),
            "weights of inference/llama-70b: NoRoom: needs 140.0 GiB, and 12.0 GiB can be promised \
             (free space less head-room and what is promised to others)"
        );
        assert!(REASONS.iter().any(|(name, _)| *name == hold.reason.name()));
    }
}
