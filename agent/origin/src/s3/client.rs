//! Clients of S3: where to ask, in whose name, and how long.
//!
//! In go our settings, the environment that the AWS SDK reads (variables, profiles, container, web identity, IMDS) and what a
//! source says; out comes a client for it. The nearest wins: source, then our settings, then the environment. Deliberately absent:
//! SSO and `credential_process`, which need parts of the SDK that are not built in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    AppName, BehaviorVersion, Builder, Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    StalledStreamProtectionConfig,
};
use aws_types::service_config::ServiceConfigKey;
use tokio::sync::OnceCell;

use stokehold_core::source::S3Source;

use crate::s3::limit::AnswerLimit;

/// Longest wait for a connection: within a region it takes milliseconds, across the world half a second.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Longest wait for the head of an answer to a read. A backstop: whoever reads has shorter limits of its own.
const FIRST_BYTE_LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for one page of a listing or for one HEAD, each time it is tried.
const PAGE_LIMIT: Duration = Duration::from_secs(30);
/// How often a page or a HEAD is tried; with the SDK's growing waits some 3 s in all when refused at once.
const PAGE_TRIES_MAX: u32 = 3;
/// Most clients kept, one for each pair of region and endpoint: more than a node's deployments use at a time.
const CLIENTS_MAX: usize = 32;
/// Most buckets whose region is remembered because they turned out to be elsewhere.
const LEARNED_MAX: usize = 1_024;
/// Asked where nobody says a region: its endpoint knows the region of every bucket of the standard partition.
const REGION_DEFAULT: &str = "us-east-1";

/// In whose name requests are made.
#[derive(Clone, Default)]
pub enum S3Credentials {
    /// What the environment gives: variables, profile, web identity, container, IMDS. Refreshed before they expire.
    #[default]
    Chain,
    /// Nobody's: for public buckets. Requests are not signed.
    Anonymous,
    /// These, which never expire.
    Fixed {
        /// Access key id.
        access_key: String,
        /// Secret key.
        secret_key: String,
    },
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Chain => "Chain",
            Self::Anonymous => "Anonymous",
            Self::Fixed { .. } => "Fixed",
        })
    }
}

/// Settings for all sources in S3.
#[derive(Debug, Clone, Default)]
pub struct S3Options {
    /// In whose name requests are made.
    pub credentials: S3Credentials,
    /// Another S3-compatible service than AWS, as a URL; else what the environment says. A source's own endpoint comes first.
    pub endpoint: Option<String>,
    /// Region; else what the environment says. A source's own region comes first.
    pub region: Option<String>,
    /// Whether the bucket stands in the path rather than in the host name; `None`: wherever an endpoint is given by anyone.
    pub path_style: Option<bool>,
}

/// How to reach one source.
pub(super) struct Reach {
    pub(super) client: Client,
    pub(super) region: String,
    /// Host and port of a service other than AWS, for messages.
    pub(super) host: Option<String>,
}

/// The clients of one runtime, and what all runtimes share.
pub(super) struct Clients {
    shared: Arc<Shared>,
    by_place: Mutex<BTreeMap<Place, Client>>,
}

/// What a client is made for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    region: String,
    endpoint: Option<String>,
}

struct Shared {
    options: S3Options,
    environment: OnceCell<Environment>,
    /// Regions told by the service, by endpoint and bucket.
    learned: Mutex<BTreeMap<(Option<String>, String), String>>,
}

/// What the environment says, read once.
struct Environment {
    config: SdkConfig,
    endpoint: Option<String>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Clients and the SDK's configuration are long and may hold what must not be logged.
        out.debug_struct("Clients").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl Clients {
    pub(super) fn new(options: S3Options) -> Self {
        let shared = Shared { options, environment: OnceCell::new(), learned: Mutex::default() };
        Self { shared: Arc::new(shared), by_place: Mutex::default() }
    }

    pub(super) fn for_another_runtime(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), by_place: Mutex::default() }
    }

    /// A client for this source. The first call reads the environment, which may ask IMDS.
    pub(super) async fn reach(&self, source: &S3Source) -> Reach {
        let options = &self.shared.options;
        let environment = self.shared.environment.get_or_init(|| read_environment(options)).await;
        let place = self.shared.place(source, environment);
        let host = place.endpoint.as_deref().map(host_of);
        let mut by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = by_place.get(&place) {
            return Reach { client: client.clone(), region: place.region, host };
        }
        if by_place.len() >= CLIENTS_MAX {
            // Any one: its next user makes it again, and whoever holds it now keeps it.
            by_place.pop_first();
        }
        let client = client(options, environment, &place);
        by_place.insert(place.clone(), client.clone());
        Reach { client, region: place.region, host }
    }

    /// The service said where this source's bucket is.
    pub(super) fn learn(&self, source: &S3Source, region: String) {
        let Some(environment) = self.shared.environment.get() else { return };
        let endpoint = self.shared.endpoint(source, environment);
        tracing::info!(bucket = source.bucket, region, "the bucket is in another region than was said");
        let mut learned = self.shared.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if learned.len() >= LEARNED_MAX {
            learned.pop_first();
        }
        learned.insert((endpoint, source.bucket.clone()), region);
    }
}

impl Shared {
    fn endpoint(&self, source: &S3Source, environment: &Environment) -> Option<String> {
        let options = &self.options;
        let nearest = source.endpoint.as_ref().or(options.endpoint.as_ref()).or(environment.endpoint.as_ref());
        nearest.cloned()
    }

    fn place(&self, source: &S3Source, environment: &Environment) -> Place {
        let endpoint = self.endpoint(source, environment);
        let key = (endpoint, source.bucket.clone());
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let region = learned
            .or_else(|| source.region.clone())
            .or_else(|| self.options.region.clone())
            .or_else(|| environment.config.region().map(ToString::to_string))
            .unwrap_or_else(|| REGION_DEFAULT.to_owned());
        Place { region, endpoint: key.0 }
    }
}

async fn read_environment(options: &S3Options) -> Environment {
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT_LIMIT).build());
    if let Ok(name) = AppName::new(concat!("stokehold-", env!("CARGO_PKG_VERSION"))) {
        loader = loader.app_name(name);
    }
    loader = match &options.credentials {
        S3Credentials::Chain => loader,
        S3Credentials::Anonymous => loader.no_credentials(),
        S3Credentials::Fixed { access_key, secret_key } => {
            loader.credentials_provider(Credentials::new(access_key, secret_key, None, None, "settings"))
        }
    };
    if let Some(region) = &options.region {
        // Not left to the chain: at its end that asks IMDS, and waits where there is none.
        loader = loader.region(Region::new(region.clone()));
    }
    let config = loader.load().await;
    let key = ServiceConfigKey::builder().service_id("S3").env("AWS_ENDPOINT_URL").profile("endpoint_url").build();
    let for_s3 = key.ok().and_then(|key| config.service_config()?.load_config(key));
    let endpoint = for_s3.or_else(|| config.endpoint_url().map(ToOwned::to_owned));
    Environment { config, endpoint }
}

fn client(options: &S3Options, environment: &Environment, place: &Place) -> Client {
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT_LIMIT).read_timeout(FIRST_BYTE_LIMIT).build();
    let mut builder = Builder::from(&environment.config)
        .region(Region::new(place.region.clone()))
        .force_path_style(options.path_style.unwrap_or(place.endpoint.is_some()))
        // A checksum of a whole object says nothing about a range; ranges are checked where they are put together.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        // It takes a slow disk for a slow network; stalls are seen by whoever reads.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .retry_config(RetryConfig::disabled())
        .interceptor(AnswerLimit)
        .timeout_config(timeouts);
    builder.set_endpoint_url(place.endpoint.clone());
    Client::from_conf(builder.build())
}

/// For requests that are few and small: retried here, with a limit of their own.
pub(super) fn patient() -> Builder {
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT_LIMIT).operation_attempt_timeout(PAGE_LIMIT);
    Builder::new()
        .retry_config(RetryConfig::standard().with_max_attempts(PAGE_TRIES_MAX))
        .timeout_config(timeouts.build())
}

/// Host and port of a URL: what may be shown of it.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_scheme, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    authority.rsplit('@').next().unwrap_or(authority).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_host_and_port_of_an_endpoint_and_nothing_else() {
        for (url, host) in [
            ("http://127.0.0.1:8333", "127.0.0.1:8333"),
            ("https://user:secret@minio.example:9000/path?key=secret", "minio.example:9000"),
            ("minio.example", "minio.example"),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }

    #[test]
    fn settings_can_be_shown_without_their_secrets() {
        let credentials = S3Credentials::Fixed { access_key: "AKIA-x".to_owned(), secret_key: "s3cr3t".to_owned() };
        let origin = crate::S3Origin::new(S3Options { credentials, ..S3Options::default() });
        let shown = format!("{origin:?}");
        assert!(!shown.contains("s3cr3t") && !shown.contains("AKIA"), "{shown}");
    }
}
