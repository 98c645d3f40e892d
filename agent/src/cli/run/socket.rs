//! The Unix socket of the local API: made, opened to owner and group, and removed.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use tokio::net::UnixListener;
use tracing::warn;

/// Owner and group may ask; others may not.
const MODE: u32 = 0o660;

/// Binds the socket. One that an ended agent left is replaced; anything else in its place is not.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket is in its place"));
        }
        Ok(_socket) => match UnixStream::connect(path) {
            Ok(_answered) => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers there"));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) => return Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    Ok(listener)
}

/// Removes the socket at the end; a client then hears at once that nobody is there.
pub(super) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!(socket = %path.display(), %error, "the socket could not be removed");
    }
}
