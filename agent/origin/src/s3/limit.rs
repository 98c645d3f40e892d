//! How much of an answer is taken into memory: everything but the bytes of an object that were asked for.
//!
//! A listing page, an error or any other document is read whole before it is understood; an endpoint that never stops sending one
//! must not take the node's memory. Deliberately absent: a limit on ranges of objects, which go to the disk as they come.

use aws_sdk_s3::config::interceptors::BeforeDeserializationInterceptorContextMut;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use aws_sdk_s3::primitives::SdkBody;
use http_body_util::Limited;

/// Most of an error: S3's are below a kilobyte.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Most of any other answer that is not a range: a page of a thousand keys of a thousand bytes each, several times over.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Partial content: what a range is answered with.
const PARTIAL: u16 = 206;

/// Cuts answers off at their limit.
#[derive(Debug)]
pub(super) struct AnswerLimit;

impl Intercept for AnswerLimit {
    fn name(&self) -> &'static str {
        "AnswerLimit"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _settings: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response_mut();
        let status = response.status();
        if status.as_u16() == PARTIAL {
            return Ok(());
        }
        let most = if status.is_success() { ANSWER_BYTES_MAX } else { ERROR_BYTES_MAX };
        let body = std::mem::replace(response.body_mut(), SdkBody::taken());
        *response.body_mut() = SdkBody::from_body_1_x(Limited::new(body, most));
        Ok(())
    }
}
