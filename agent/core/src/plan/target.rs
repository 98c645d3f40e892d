//! Which snapshot a cache should have.
//!
//! A revision that a person pinned wins; then what was decided before for this very source; then what the origin offers.

use crate::checksum::SnapshotId;
use crate::desired::{DesiredWeights, Update};
use crate::listing::ListingSummary;
use crate::record::DeploymentRecord;

/// The target, where anything decides one.
pub(super) fn target(
    weights: &DesiredWeights,
    record: Option<&DeploymentRecord>,
    offered: Option<&ListingSummary>,
) -> Option<SnapshotId> {
    if weights.revision.is_some() {
        return weights.revision;
    }
    let fingerprint = weights.origin_fingerprint();
    let recorded = record.filter(|record| record.origin_fingerprint == fingerprint).and_then(|record| record.target);
    let offered = offered.map(|summary| summary.snapshot);
    match weights.update {
        Update::Manual => recorded.or(offered),
        Update::Automatic => offered.or(recorded),
    }
}
