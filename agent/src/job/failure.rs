//! What an error means for the planner: which hold, and whether trying again can help.

use stokehold_core::attempt::{Disposition, JobFailure};
use stokehold_core::creation::CreateError;
use stokehold_core::eviction::EvictError;
use stokehold_core::file_op::{FileError, FileFault};
use stokehold_core::hold::Reason;
use stokehold_core::listing::BadListing;
use stokehold_core::port::OriginError;
use stokehold_core::staging::StageError;
use stokehold_core::verification::VerifyError;

/// A failure that may mend by itself.
fn retry(reason: Reason) -> JobFailure {
    JobFailure { reason, disposition: Disposition::Retry }
}

fn await_change(reason: Reason) -> JobFailure {
    JobFailure { reason, disposition: Disposition::AwaitChange }
}

/// Of a file operation.
#[must_use]
pub fn of_disk(error: &FileError) -> JobFailure {
    let why = error.to_string();
    match error.fault {
        FileFault::NoSpace | FileFault::QuotaFull => retry(Reason::DiskFull { why }),
        FileFault::NotFound
        | FileFault::Exists
        | FileFault::NotEmpty
        | FileFault::Foreign
        | FileFault::InUse
        | FileFault::ReadOnly
        | FileFault::Denied
        | FileFault::TooLarge
        | FileFault::Io => retry(Reason::DiskError { why }),
    }
}

/// Of an origin.
#[must_use]
pub fn of_origin(error: &OriginError) -> JobFailure {
    let why = error.to_string();
    match error {
        OriginError::Unreachable { .. } => retry(Reason::OriginUnreachable { why }),
        OriginError::Refused { .. } => retry(Reason::OriginRefused { why }),
        OriginError::Missing { .. } | OriginError::Listing(BadListing::Empty { .. }) => {
            retry(Reason::OriginMissing { why })
        }
        OriginError::Throttled { .. } => retry(Reason::OriginThrottled { why }),
        OriginError::Changed { .. } | OriginError::Broken { .. } => retry(Reason::OriginBroken { why }),
        OriginError::Listing(BadListing::Key(_) | BadListing::TooMany) => await_change(Reason::BadListing { why }),
        OriginError::Disk(error) => of_disk(error),
    }
}

/// Of staging.
#[must_use]
pub fn of_staging(error: &StageError) -> JobFailure {
    match error {
        StageError::Disk(error) => of_disk(error),
        StageError::Mismatch { file, expected, found } => retry(Reason::ChecksumMismatch {
            file: file.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        }),
    }
}

/// Of giving bytes up.
#[must_use]
pub fn of_eviction(error: &EvictError) -> JobFailure {
    match error {
        EvictError::Disk(error) => of_disk(error),
        EvictError::InUse(users) => retry(Reason::in_use(users)),
        EvictError::UsersUnknown(why) => retry(Reason::UsersUnknown { why: why.clone() }),
    }
}

/// Of making a cache's folder.
#[must_use]
pub fn of_creation(error: &CreateError) -> JobFailure {
    match error {
        CreateError::Disk(error) => of_disk(error),
        CreateError::CurrentIsForeign(found) => retry(Reason::CurrentIsForeign { found: found.clone() }),
    }
}

/// Of reading a snapshot again.
#[must_use]
pub fn of_verification(error: &VerifyError) -> JobFailure {
    match error {
        VerifyError::Disk(error) => of_disk(error),
        VerifyError::Corrupt { file, what } => retry(Reason::Corrupt { file: file.clone(), what: what.clone() }),
    }
}
