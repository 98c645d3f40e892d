//! What an error of the S3 SDK means.
//!
//! In goes an SDK error and what was asked, out comes an [`OriginError`] with one line of message, and the region where the
//! bucket really is, if the answer tells it. Deliberately absent: request headers and anything else that could hold a secret.

use std::error::Error;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use stokehold_core::port::OriginError;
use stokehold_core::source::S3Source;

/// Most characters of a message: services may answer with pages of HTML.
const MESSAGE_LENGTH_MAX: usize = 600;
/// Longest wait that a service may ask for; beyond it, asking again is the better guess.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// What was asked, for messages.
pub(super) struct Asked<'a> {
    pub(super) source: &'a S3Source,
    /// Key of an object, or the prefix of a listing.
    pub(super) key: &'a str,
    /// Host and port of a service other than AWS.
    pub(super) host: Option<&'a str>,
}

impl Asked<'_> {
    /// The object.
    pub(super) fn what(&self) -> String {
        format!("s3://{}/{}", self.source.bucket, self.key)
    }

    /// The object, and where it was looked for.
    pub(super) fn origin(&self) -> String {
        match self.host {
            Some(host) => format!("{} at {host}", self.what()),
            None => self.what(),
        }
    }

    pub(super) fn broken(&self, message: impl Into<String>) -> OriginError {
        OriginError::Broken { origin: self.origin(), message: message.into() }
    }

    pub(super) fn unreachable(&self, message: impl Into<String>) -> OriginError {
        OriginError::Unreachable { origin: self.origin(), message: message.into() }
    }

    fn refused(&self, message: String) -> OriginError {
        OriginError::Refused { origin: self.origin(), message }
    }
}

/// An error, and where the bucket is if that was the trouble.
pub(super) struct Fault {
    pub(super) error: OriginError,
    pub(super) region: Option<String>,
}

/// What this error means.
pub(super) fn fault<E>(asked: &Asked<'_>, error: &SdkError<E, HttpResponse>) -> Fault
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's list, which it may lengthen")]
    let meant = match error {
        SdkError::ServiceError(answer) => {
            let (code, said) = (answer.err().code(), answer.err().message());
            return answered(asked, answer.raw(), code.unwrap_or_default(), said.unwrap_or_default());
        }
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_) => {
            unsent(asked, error)
        }
        SdkError::ResponseError(answer) if answer.raw().status().is_success() => {
            // Of our requests only a listing has a body that the SDK reads; one it cannot read was cut or is not S3's.
            asked.unreachable(chain(error))
        }
        _other_or_not_an_answer => asked.broken(chain(error)),
    };
    Fault { error: meant, region: None }
}

/// No answer came.
fn unsent(asked: &Asked<'_>, error: &(dyn Error + 'static)) -> OriginError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(credentials) = inner.downcast_ref::<CredentialsError>() {
            let late = matches!(credentials, CredentialsError::ProviderTimedOut(_));
            let message = format!("no credentials: {}", chain(credentials));
            return if late { asked.unreachable(message) } else { asked.refused(message) };
        }
        cause = inner.source();
    }
    asked.unreachable(chain(error))
}

/// An error that S3 answered.
fn answered(asked: &Asked<'_>, raw: &HttpResponse, code: &str, said: &str) -> Fault {
    let status = raw.status().as_u16();
    let request = raw.headers().get("x-amz-request-id");
    let message = message_of(status, code, said, request);
    let elsewhere = matches!(status, 301 | 307 | 400)
        && matches!(
            code,
            "" | "PermanentRedirect"
                | "AuthorizationHeaderMalformed"
                | "IllegalLocationConstraintException"
                | "TemporaryRedirect"
                | "Redirect"
                | "BadRequest"
                | "IncorrectEndpoint"
        );
    let region = raw.headers().get("x-amz-bucket-region").filter(|_| elsewhere).map(ToOwned::to_owned);
    let error = match (code, status) {
        ("NoSuchBucket", _) => OriginError::Missing { what: format!("bucket {}", asked.source.bucket) },
        ("NoSuchKey" | "NoSuchVersion" | "NotFound", _) | (_, 404) => OriginError::Missing { what: asked.what() },
        ("PreconditionFailed" | "InvalidRange", _) | (_, 412 | 416) => OriginError::Changed { what: asked.what() },
        ("SlowDown" | "ServiceUnavailable" | "TooManyRequests" | "Throttling" | "ThrottlingException", _)
        | (_, 429 | 503) => OriginError::Throttled { origin: asked.origin(), retry_after: retry_after(raw) },
        ("InvalidObjectState", _) => asked.refused(format!("it is archived and must be restored first ({message})")),
        ("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" | "InvalidAccessKeyId", _) | (_, 401 | 403) => {
            asked.refused(message)
        }
        ("RequestTimeout", _) | (_, 408 | 500..) => asked.unreachable(message),
        _against_the_protocol => asked.broken(message),
    };
    Fault { error, region }
}

fn message_of(status: u16, code: &str, said: &str, request: Option<&str>) -> String {
    let mut message = format!("HTTP {status}");
    for part in [code, said] {
        if !part.is_empty() {
            message = format!("{message} {part}");
        }
    }
    if let Some(request) = request {
        message = format!("{message} (request {request})");
    }
    one_line(&message)
}

/// Seconds only: S3 sends no dates.
fn retry_after(raw: &HttpResponse) -> Option<Duration> {
    let seconds = raw.headers().get("retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// An error and all its causes in one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let next = inner.to_string();
        // Many layers repeat the one below.
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = inner.source();
    }
    one_line(&text)
}

fn one_line(text: &str) -> String {
    let words = text.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    line.chars().take(MESSAGE_LENGTH_MAX).collect()
}

#[cfg(test)]
mod tests;
