//! Operations that change something, as the steps that they are made of. Between any two of them the crash may come.

use stokehold_core::file_op::{Answer, FileFault, FileKind, FileOp};
use stokehold_core::layout::TreePath;

use super::inode::{Body, FileBody, FolderBody, Ino, Refused, refused};
use super::watch::Touch;
use super::{IgnoredSync, SimDisk, State};

/// Mode of files that are being written.
const FILE_MODE: u32 = 0o644;

fn done((): ()) -> Answer {
    Answer::Done
}

impl SimDisk {
    pub(super) async fn act(&self, op: &FileOp) -> Result<Answer, Refused> {
        if let Some(answer) = self.state().store.look(op) {
            return answer;
        }
        match op {
            FileOp::Users { path } => self.state().users(path.as_str()).map(Answer::Users),
            FileOp::MakeDir { path, mode } => self.make_dir(path, *mode).await.map(done),
            FileOp::Allocate { path, size } => self.allocate(path, size.0).await.map(done),
            FileOp::Append { path, at, bytes } => self.append(path, *at, bytes).await.map(done),
            FileOp::Replace { path, bytes, mode } => {
                self.settle(path, |aside| self.write_aside(path, aside, bytes, *mode)).await.map(done)
            }
            FileOp::Link { path, target } => {
                if target.is_empty() || target.starts_with('/') || target.split('/').any(|part| part == "..") {
                    return refused(FileFault::Denied, "the link would leave its folder");
                }
                self.settle(path, |aside| self.link_aside(path, aside, target)).await.map(done)
            }
            FileOp::Rename { .. }
            | FileOp::Exchange { .. }
            | FileOp::SetMode { .. }
            | FileOp::SetImmutable { .. }
            | FileOp::Unlink { .. }
            | FileOp::RemoveDir { .. } => self.change_name(op).await.map(done),
            FileOp::SyncData { .. } | FileOp::SyncDir { .. } | FileOp::SyncFs => self.sync(op).await.map(done),
            FileOp::Read { .. }
            | FileOp::ReadLink { .. }
            | FileOp::List { .. }
            | FileOp::Walk { .. }
            | FileOp::Stat { .. }
            | FileOp::Checksum { .. }
            | FileOp::Room => unreachable!("looks were answered above"),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only the operations of this family are sent here")]
    async fn sync(&self, op: &FileOp) -> Result<(), Refused> {
        let (_, path) = op.act();
        let name = path.as_str();
        let ignored = self.0.ignores;
        match op {
            FileOp::SyncData { .. } if ignored == Some(IgnoredSync::Data) => Ok(()),
            FileOp::SyncDir { .. } if ignored == Some(IgnoredSync::Folder) => Ok(()),
            FileOp::SyncData { .. } => {
                self.one(Touch::Sync(name), |state| {
                    let ino = state.store.find(name)?;
                    state.store.file(ino)?;
                    state.store.sync_blocks(ino);
                    Ok(())
                })
                .await
            }
            FileOp::SyncDir { .. } => self.sync_dir(name).await,
            _whole => {
                self.one(Touch::Sync(""), |state| {
                    state.store.sync_all();
                    Ok(())
                })
                .await
            }
        }
    }

    async fn sync_dir(&self, path: &str) -> Result<(), Refused> {
        self.one(Touch::Sync(path), |state| {
            let ino = state.store.find(path)?;
            state.store.folder(ino)?;
            state.store.sync_folder(ino);
            Ok(())
        })
        .await
    }

    /// Operations of one step.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only the operations of this family are sent here")]
    async fn change_name(&self, op: &FileOp) -> Result<(), Refused> {
        match op {
            FileOp::Rename { from, to } => {
                let touch = Touch::Move(from.as_str(), to.as_str());
                self.one(touch, |state| {
                    let (from, to) = (state.store.place(from.as_str())?, state.store.place(to.as_str())?);
                    state.store.rename(from, to, false)
                })
                .await
            }
            FileOp::Exchange { one, two } => {
                let touch = Touch::Move(one.as_str(), two.as_str());
                self.one(touch, |state| {
                    let (one, two) = (state.store.place(one.as_str())?, state.store.place(two.as_str())?);
                    state.store.exchange(one, two)
                })
                .await
            }
            FileOp::SetMode { path, mode } => {
                self.one(Touch::Attributes(path.as_str()), |state| {
                    let ino = state.store.find(path.as_str())?;
                    state.store.set_mode(ino, *mode)
                })
                .await
            }
            FileOp::SetImmutable { path, immutable } => {
                self.one(Touch::Attributes(path.as_str()), |state| {
                    let ino = state.store.find(path.as_str())?;
                    state.store.set_immutable(ino, *immutable)
                })
                .await
            }
            FileOp::Unlink { path, unused_only } => {
                self.one(Touch::Gone(path.as_str()), |state| state.unlink(path.as_str(), *unused_only)).await
            }
            _folder => {
                let (_, path) = op.act();
                self.one(Touch::Gone(path.as_str()), |state| {
                    let (folder, name) = state.store.place(path.as_str())?;
                    let ino = state.store.find(path.as_str())?;
                    state.store.folder(ino)?;
                    state.store.remove(folder, name)
                })
                .await
            }
        }
    }

    async fn make_dir(&self, path: &TreePath, mode: u32) -> Result<(), Refused> {
        let name = path.as_str();
        self.one(Touch::Made(name), |state| {
            if let Ok(ino) = state.store.find(name) {
                state.store.folder(ino)?;
                return state.store.set_mode(ino, mode);
            }
            let (folder, name) = state.store.place(name)?;
            state.store.make(folder, name, Body::Folder(FolderBody::default()), mode)?;
            Ok(())
        })
        .await
    }

    /// Opens or makes a file that is ours alone to write: one that was published before is made writable again.
    async fn open_to_write(&self, path: &TreePath) -> Result<Ino, Refused> {
        let name = path.as_str();
        let is_there = self.state().store.find(name).is_ok();
        let touch = if is_there { Touch::Attributes(name) } else { Touch::Made(name) };
        self.one(touch, |state| {
            let Ok(ino) = state.store.find(name) else {
                let (folder, name) = state.store.place(name)?;
                return state.store.make(folder, name, Body::File(FileBody::default()), FILE_MODE);
            };
            state.store.file(ino)?;
            if state.store.may_write(ino).is_err() {
                state.store.set_immutable(ino, false)?;
                state.store.set_mode(ino, FILE_MODE)?;
            }
            Ok(ino)
        })
        .await
    }

    async fn allocate(&self, path: &TreePath, size: u64) -> Result<(), Refused> {
        let name = path.as_str();
        let ino = self.open_to_write(path).await?;
        self.one(Touch::Attributes(name), |state| state.store.set_mode(ino, FILE_MODE)).await?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let is_that_long = self.state().store.file(ino).is_ok_and(|file| file.bytes.len() == size);
        if is_that_long {
            return Ok(());
        }
        let promised = self.one(Touch::Content(name), |state| state.store.resize(ino, size)).await;
        if promised.is_err() {
            self.one(Touch::Content(name), |state| state.store.resize(ino, 0)).await?;
        }
        promised
    }

    async fn append(&self, path: &TreePath, at: u64, bytes: &[u8]) -> Result<(), Refused> {
        let name = path.as_str();
        let ino = self.open_to_write(path).await?;
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        self.one(Touch::Content(name), |state| state.store.resize(ino, at)).await?;
        let half = bytes.len() / 2;
        for (from, part) in [(0, &bytes[..half]), (half, &bytes[half..])] {
            if !part.is_empty() {
                self.one(Touch::Content(name), |state| state.store.write(ino, at + from, part)).await?;
            }
        }
        Ok(())
    }

    /// Makes something aside, renames it over the name and syncs the folder; what failed leaves no aside.
    async fn settle<Made: Future<Output = Result<(), Refused>>>(
        &self,
        path: &TreePath,
        make: impl FnOnce(String) -> Made,
    ) -> Result<(), Refused> {
        let aside = {
            let mut state = self.state();
            state.asides += 1;
            path.parent().entry(&format!(".{}.1-{}.aside", path.name(), state.asides))
        };
        let mut made = make(aside.as_str().to_owned()).await;
        if made.is_ok() {
            let touch = Touch::Move(aside.as_str(), path.as_str());
            made = self
                .one(touch, |state| {
                    let (from, to) = (state.store.place(aside.as_str())?, state.store.place(path.as_str())?);
                    state.store.rename(from, to, true)
                })
                .await;
        }
        if made.is_err() {
            let _stays = self
                .one(Touch::Gone(aside.as_str()), |state| {
                    let (folder, name) = state.store.place(aside.as_str())?;
                    state.store.remove(folder, name)
                })
                .await;
            return made;
        }
        self.sync_dir(path.parent().as_str()).await
    }

    async fn write_aside(&self, path: &TreePath, aside: String, bytes: &[u8], mode: u32) -> Result<(), Refused> {
        let folder = path.parent();
        let name = aside.rsplit('/').next().unwrap_or_default();
        let ino = self
            .one(Touch::Made(&aside), |state| {
                let folder = state.store.find(folder.as_str())?;
                state.store.make(folder, name, Body::File(FileBody::default()), 0o600)
            })
            .await?;
        self.one(Touch::Content(&aside), |state| {
            state.store.write(ino, 0, bytes)?;
            state.store.set_mode(ino, mode)
        })
        .await?;
        self.one(Touch::Sync(&aside), |state| {
            state.store.sync_file(ino);
            Ok(())
        })
        .await
    }

    async fn link_aside(&self, path: &TreePath, aside: String, target: &str) -> Result<(), Refused> {
        let folder = path.parent();
        let name = aside.rsplit('/').next().unwrap_or_default();
        self.one(Touch::Made(&aside), |state| {
            let folder = state.store.find(folder.as_str())?;
            state.store.make(folder, name, Body::Link(target.to_owned()), 0o777)?;
            Ok(())
        })
        .await
    }
}

impl State {
    fn unlink(&mut self, path: &str, unused_only: bool) -> Result<(), Refused> {
        let (folder, name) = self.store.place(path)?;
        let ino = self.store.find(path)?;
        match self.store.inode(ino).kind() {
            FileKind::Folder => return refused(FileFault::Foreign, "it is a folder"),
            FileKind::File => {
                if unused_only && self.pods.has_open(ino) {
                    return refused(FileFault::InUse, "somebody has it open (no write lease)");
                }
                self.store.set_immutable(ino, false)?;
            }
            FileKind::Link | FileKind::Other => {}
        }
        self.store.remove(folder, name)
    }
}
