//! The places that the tests read: a bucket of a server, a folder.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use stokehold_core::source::{S3Source, Source};
use stokehold_origin::{Origins, S3Credentials, S3Options};
use stokehold_tests::conformance::Ground;
use stokehold_tests::lab::bucket::{Access, Bucket, Upload};

/// Origins that reach S3 like this.
pub(crate) fn origins(access: &Access) -> Origins {
    let (access_key, secret_key) = (access.access_key.clone(), access.secret_key.clone());
    Origins::new(S3Options {
        credentials: S3Credentials::Fixed { access_key, secret_key },
        endpoint: Some(access.endpoint.clone()),
        region: Some(access.region.clone()),
        path_style: None,
    })
}

/// A prefix of a bucket.
pub(crate) fn s3(bucket: &str, prefix: &str) -> Source {
    Source::S3(S3Source::new(bucket, prefix).expect("a source"))
}

impl Ground for Bucketed {
    fn source(&self, folder: &str) -> Source {
        s3(self.0.name(), folder)
    }

    async fn put(&self, path: &str, bytes: Vec<u8>) {
        self.0.put(path, bytes, Upload::Crc64Nvme).await.expect("put");
    }

    async fn remove(&self, path: &str) {
        self.0.delete(path).await.expect("delete");
    }
}

/// A bucket.
pub(crate) struct Bucketed(pub(crate) Bucket);

/// A folder.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("folders");
        // Told apart from the version before even where the filesystem's clock has not moved on since.
        let later = fs::metadata(&path).and_then(|found| found.modified()).map(|time| time + Duration::from_secs(1));
        fs::write(&path, bytes).expect("write");
        let file = fs::File::options().write(true).open(&path).expect("open");
        file.set_modified(later.unwrap_or_else(|_| SystemTime::now())).expect("set time");
    }
}

impl Ground for Folder {
    fn source(&self, folder: &str) -> Source {
        Source::node_path(self.path().join(folder).to_str().expect("UTF-8")).expect("a source")
    }

    async fn put(&self, path: &str, bytes: Vec<u8>) {
        self.write(path, &bytes);
    }

    async fn remove(&self, path: &str) {
        fs::remove_file(self.path().join(path)).expect("remove");
    }
}
