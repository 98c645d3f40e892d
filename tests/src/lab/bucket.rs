//! A small S3 client for making what the tests read: buckets, objects with and without checksums, versions.
//!
//! In: an [`Access`] (of SeaweedFS or of the faulty server) and a bucket name. Out: objects in it.
//! Deliberately absent: reading back: that is what the code under test does; [`Bucket::client`] is there for the rest.

use anyhow::{Context as _, Result};
use aws_sdk_s3::{
    Client,
    config::{
        BehaviorVersion, Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation,
        StalledStreamProtectionConfig, retry::RetryConfig,
    },
    primitives::ByteStream,
    types::{
        BucketVersioningStatus, ChecksumAlgorithm, ChecksumType, CompletedMultipartUpload, CompletedPart,
        VersioningConfiguration,
    },
};
use aws_smithy_types::base64;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use sha2::{Digest as _, Sha256};

/// How to reach an S3 server of the lab.
#[derive(Clone, Debug)]
pub struct Access {
    /// URL such as `http://127.0.0.1:12000`.
    pub endpoint: String,
    /// Region to sign for.
    pub region: String,
    /// Access key id.
    pub access_key: String,
    /// Secret key; the faulty server never looks at it.
    pub secret_key: String,
    /// Attempts per request; 1 where every request is counted.
    pub attempts: u32,
}

impl Access {
    /// The environment by which the AWS SDK, and so the agent, finds this server. Paths must be bucket-first
    /// (`force_path_style`): the reader's own setting.
    pub fn environment(&self) -> Vec<(String, String)> {
        [
            ("AWS_ENDPOINT_URL_S3", &self.endpoint),
            ("AWS_REGION", &self.region),
            ("AWS_ACCESS_KEY_ID", &self.access_key),
            ("AWS_SECRET_ACCESS_KEY", &self.secret_key),
        ]
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .to_vec()
    }

    /// A client of the AWS SDK for this server.
    pub fn client(&self) -> Client {
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(self.region.clone()))
            .endpoint_url(&self.endpoint)
            .force_path_style(true)
            .credentials_provider(Credentials::new(&self.access_key, &self.secret_key, None, None, "lab"))
            // Only those that a test asks for.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .retry_config(RetryConfig::standard().with_max_attempts(self.attempts))
            // Stalls are what some tests are about; the SDK must not end them first.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Client::from_conf(config)
    }
}

/// How an object is uploaded, which decides the checksum that the server stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// One request without a checksum.
    Plain,
    /// One request with CRC64NVME over the whole object.
    Crc64Nvme,
    /// One request with SHA-256.
    Sha256,
    /// Several requests of this many bytes each (S3 asks for 5 MiB at least, but for the last), CRC64NVME over the
    /// whole object.
    Multipart {
        /// Bytes of one part.
        part_bytes: usize,
    },
}

/// A bucket and the client to fill it.
#[derive(Clone, Debug)]
pub struct Bucket {
    client: Client,
    name: String,
}

impl Bucket {
    /// The bucket `name` at `access`; nothing is asked of the server yet.
    pub fn new(access: &Access, name: &str) -> Self {
        Self { client: access.client(), name: name.to_owned() }
    }

    /// Make the bucket `name` at `access`.
    pub async fn create(access: &Access, name: &str) -> Result<Self> {
        let bucket = Self::new(access, name);
        let made = bucket.client.create_bucket().bucket(name).send().await;
        made.with_context(|| format!("create bucket {name}"))?;
        Ok(bucket)
    }

    /// The client, for requests this type has no function for.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The bucket's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Upload an object; gives its ETag as the server wrote it, quotes included.
    pub async fn put(&self, key: &str, body: impl Into<Bytes>, upload: Upload) -> Result<String> {
        let body = body.into();
        if let Upload::Multipart { part_bytes } = upload {
            return self.put_parts(key, body, part_bytes).await;
        }
        // Computed here: the SDK, told to send checksums only when required, leaves out even one that is asked for.
        let crc = (upload == Upload::Crc64Nvme).then(|| crc64nvme(&body));
        let sha = (upload == Upload::Sha256).then(|| base64::encode(Sha256::digest(&body)));
        let request = self.client.put_object().bucket(&self.name).key(key);
        let request = request.set_checksum_crc64_nvme(crc).set_checksum_sha256(sha);
        let put = request.body(ByteStream::from(body)).send().await;
        let put = put.with_context(|| format!("put {}/{key}", self.name))?;
        put.e_tag.context("the server gave no ETag")
    }

    /// Delete an object (with versioning: put a delete marker).
    pub async fn delete(&self, key: &str) -> Result<()> {
        let deleted = self.client.delete_object().bucket(&self.name).key(key).send().await;
        deleted.with_context(|| format!("delete {}/{key}", self.name))?;
        Ok(())
    }

    /// From now on keep every version of an object.
    pub async fn enable_versioning(&self) -> Result<()> {
        let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        let request = self.client.put_bucket_versioning().bucket(&self.name).versioning_configuration(enabled);
        request.send().await.with_context(|| format!("enable versioning of {}", self.name))?;
        Ok(())
    }

    async fn put_parts(&self, key: &str, body: Bytes, part_bytes: usize) -> Result<String> {
        let what = || format!("put {}/{key} in parts of {part_bytes}", self.name);
        let request = self.client.create_multipart_upload().bucket(&self.name).key(key);
        let request = request.checksum_algorithm(ChecksumAlgorithm::Crc64Nvme).checksum_type(ChecksumType::FullObject);
        let upload = request.send().await.with_context(what)?.upload_id.context("the server gave no upload id")?;
        let mut parts = Vec::new();
        for (number, at) in (1..).zip((0..body.len()).step_by(part_bytes)) {
            let part = body.slice(at..body.len().min(at + part_bytes));
            let request = self.client.upload_part().bucket(&self.name).key(key).upload_id(&upload).part_number(number);
            let request = request.checksum_crc64_nvme(crc64nvme(&part)).body(ByteStream::from(part));
            let sent = request.send().await.with_context(what)?;
            let part = CompletedPart::builder().part_number(number).set_e_tag(sent.e_tag);
            parts.push(part.set_checksum_crc64_nvme(sent.checksum_crc64_nvme).build());
        }
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let request = self.client.complete_multipart_upload().bucket(&self.name).key(key).upload_id(upload);
        let request = request.checksum_type(ChecksumType::FullObject).checksum_crc64_nvme(crc64nvme(&body));
        let done = request.multipart_upload(parts).send().await;
        done.with_context(what)?.e_tag.context("the server gave no ETag")
    }
}

fn crc64nvme(bytes: &[u8]) -> String {
    base64::encode(checksum(CrcAlgorithm::Crc64Nvme, bytes).to_be_bytes())
}
