//! What an error number means to a protocol, in one table.
//!
//! In goes an error number or a reason of our own, out comes a [`Refusal`]; the operation it belongs to is added at the top.

use nix::errno::Errno;
use stokehold_core::file_op::{FileError, FileFault, FileOp};

/// A file operation that did not happen, before it is known which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) fault: FileFault,
    pub(crate) message: String,
    /// What the system said, where it was the system.
    pub(crate) errno: Option<Errno>,
}

/// Error numbers that protocols tell apart; all others are [`FileFault::Io`].
const FAULTS: &[(Errno, FileFault)] = &[
    (Errno::ENOENT, FileFault::NotFound),
    (Errno::EEXIST, FileFault::Exists),
    (Errno::ENOTEMPTY, FileFault::NotEmpty),
    // A link on the way or at the end.
    (Errno::ELOOP, FileFault::Foreign),
    // A mount on the way, or another project's folder.
    (Errno::EXDEV, FileFault::Foreign),
    (Errno::ENOTDIR, FileFault::Foreign),
    (Errno::EISDIR, FileFault::Foreign),
    // A pipe without a reader, or a socket, where a file should be.
    (Errno::ENXIO, FileFault::Foreign),
    (Errno::ENOSPC, FileFault::NoSpace),
    (Errno::EDQUOT, FileFault::QuotaFull),
    (Errno::EBUSY, FileFault::InUse),
    (Errno::ETXTBSY, FileFault::InUse),
    (Errno::EROFS, FileFault::ReadOnly),
    (Errno::EACCES, FileFault::Denied),
    (Errno::EPERM, FileFault::Denied),
];

impl Refusal {
    pub(crate) fn new(fault: FileFault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into(), errno: None }
    }

    /// Of this operation.
    pub(crate) fn of(self, op: &FileOp) -> FileError {
        FileError::new(op, self.fault, self.message)
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        let fault = FAULTS.iter().find(|(number, _)| *number == errno).map_or(FileFault::Io, |(_, fault)| *fault);
        Self { fault, message: errno.to_string(), errno: Some(errno) }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Errno::from_raw(number).into(),
            None => Self::new(FileFault::Io, error.to_string()),
        }
    }
}

/// Calls again while a signal interrupts.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_number_has_one_meaning_and_the_rest_are_io() {
        let fault = |errno: Errno| Refusal::from(errno).fault;
        assert_eq!(fault(Errno::ENOSPC), FileFault::NoSpace);
        assert_eq!(fault(Errno::EDQUOT), FileFault::QuotaFull);
        assert_eq!(fault(Errno::EROFS), FileFault::ReadOnly);
        assert_eq!(fault(Errno::EIO), FileFault::Io);
        assert_eq!(fault(Errno::EMFILE), FileFault::Io);
        for (at, (errno, _)) in FAULTS.iter().enumerate() {
            assert!(FAULTS[..at].iter().all(|(earlier, _)| earlier != errno), "{errno} stands twice");
        }
    }

    #[test]
    fn the_message_says_what_the_system_said() {
        assert_eq!(Refusal::from(Errno::ENOSPC).message, "ENOSPC: No space left on device");
        assert_eq!(Refusal::from(std::io::Error::from_raw_os_error(libc::EROFS)).fault, FileFault::ReadOnly);
    }
}
