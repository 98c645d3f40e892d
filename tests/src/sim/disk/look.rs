//! Operations that only look.

use stokehold_core::checksum::Hasher;
use stokehold_core::file_op::{Answer, FileFault, FileOp, TreeEntry};

use super::inode::{Body, Refused, Store, refused};

/// Whether an operation changes nothing.
pub(super) const fn is_look(op: &FileOp) -> bool {
    match op {
        FileOp::Read { .. }
        | FileOp::ReadLink { .. }
        | FileOp::List { .. }
        | FileOp::Walk { .. }
        | FileOp::Stat { .. }
        | FileOp::Checksum { .. }
        | FileOp::Users { .. }
        | FileOp::Room => true,
        FileOp::MakeDir { .. }
        | FileOp::Allocate { .. }
        | FileOp::Append { .. }
        | FileOp::SyncData { .. }
        | FileOp::SyncDir { .. }
        | FileOp::SyncFs
        | FileOp::Replace { .. }
        | FileOp::Link { .. }
        | FileOp::Rename { .. }
        | FileOp::Exchange { .. }
        | FileOp::SetMode { .. }
        | FileOp::SetImmutable { .. }
        | FileOp::Unlink { .. }
        | FileOp::RemoveDir { .. } => false,
    }
}

impl Store {
    /// Answers what only looks at the filesystem; nothing where the operation is of another kind.
    pub(super) fn look(&self, op: &FileOp) -> Option<Result<Answer, Refused>> {
        let answer = match op {
            FileOp::Read { path, size_max } => self.read(path.as_str(), size_max.0),
            FileOp::ReadLink { path } => self.read_link(path.as_str()),
            FileOp::List { path } => self.list(path.as_str()),
            FileOp::Walk { path } => self.walk(path.as_str()).map(Answer::Tree),
            FileOp::Stat { path } => self.find(path.as_str()).map(|ino| Answer::Stat(self.inode(ino).stat(ino))),
            FileOp::Checksum { path, offset, length, kind } => {
                let mut hasher = Hasher::new(*kind);
                self.range(path.as_str(), *offset, *length).map(|bytes| {
                    hasher.update(bytes);
                    Answer::Checksum(hasher.finish())
                })
            }
            FileOp::Room => Ok(Answer::Room(self.room())),
            FileOp::MakeDir { .. }
            | FileOp::Allocate { .. }
            | FileOp::Append { .. }
            | FileOp::SyncData { .. }
            | FileOp::SyncDir { .. }
            | FileOp::SyncFs
            | FileOp::Replace { .. }
            | FileOp::Link { .. }
            | FileOp::Rename { .. }
            | FileOp::Exchange { .. }
            | FileOp::SetMode { .. }
            | FileOp::SetImmutable { .. }
            | FileOp::Unlink { .. }
            | FileOp::RemoveDir { .. }
            | FileOp::Users { .. } => return None,
        };
        Some(answer)
    }

    fn read(&self, path: &str, size_max: u64) -> Result<Answer, Refused> {
        let file = self.file(self.find(path)?)?;
        if file.bytes.len() as u64 > size_max {
            return refused(FileFault::TooLarge, "it is larger than is read");
        }
        Ok(Answer::Content(file.bytes.clone()))
    }

    pub(super) fn target(&self, path: &str) -> Result<&str, Refused> {
        match &self.inode(self.find(path)?).body {
            Body::Link(target) => Ok(target),
            Body::File(_) | Body::Folder(_) => refused(FileFault::Foreign, "it is not a symbolic link"),
        }
    }

    fn read_link(&self, path: &str) -> Result<Answer, Refused> {
        self.target(path).map(|target| Answer::Target(target.to_owned()))
    }

    fn list(&self, path: &str) -> Result<Answer, Refused> {
        let folder = self.folder(self.find(path)?)?;
        let names = folder.names.iter().map(|(name, ino)| (name.clone(), self.inode(*ino).kind()));
        Ok(Answer::Names(names.collect()))
    }

    pub(super) fn walk(&self, path: &str) -> Result<Vec<TreeEntry>, Refused> {
        let top = self.find(path)?;
        self.folder(top)?;
        let entry = |(path, ino)| TreeEntry { path, stat: self.inode(ino).stat(ino) };
        Ok(self.below(top).into_iter().map(entry).collect())
    }

    fn range(&self, path: &str, offset: u64, length: u64) -> Result<&[u8], Refused> {
        let bytes = &self.file(self.find(path)?)?.bytes;
        let range = usize::try_from(offset).ok().zip(usize::try_from(offset + length).ok());
        let found = range.and_then(|(start, end)| bytes.get(start..end));
        found.ok_or_else(|| Refused { fault: FileFault::Io, message: "the file ends before".to_owned() })
    }
}
