//! Errors of requests, in the form of the Open Inference Protocol: a status, and `{"error": "…"}`.

use std::collections::BTreeMap;

use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::openapi::{Ref, RefOr, Response as Described};
use utoipa::{IntoResponses, ToSchema};

/// What is wrong, and what to do.
#[derive(Serialize, ToSchema)]
pub(crate) struct Message {
    error: String,
}

/// Why a request is not answered.
#[derive(Debug)]
pub(crate) struct Failure {
    pub status: StatusCode,
    pub message: String,
    /// Whether the connection ends with it, because a part of the request is unread.
    pub close: bool,
}

pub(crate) type Answer<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into(), close: false }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    pub(crate) fn busy() -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "the server has too much to do; try again in a second")
    }

    pub(crate) fn internal() -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed inside the server; its log says why")
    }
}

/// Answers to requests that have rows, in the description of the routes.
pub(crate) struct Refused;
/// Answers to other requests.
pub(crate) struct Missing;

fn described(status: &[u16]) -> BTreeMap<String, RefOr<Described>> {
    status.iter().map(|s| (s.to_string(), Ref::from_response_name("Failure").into())).collect()
}

impl IntoResponses for Refused {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        described(&[400, 401, 404, 408, 413, 415, 422, 500, 503])
    }
}

impl IntoResponses for Missing {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        described(&[401, 404])
    }
}

/// An error about the rows that were sent. Settings are query parameters.
impl From<mcdd::Error> for Failure {
    fn from(error: mcdd::Error) -> Failure {
        let plain = |setting: &str| Some(setting.to_owned());
        let mut message = error.message_with(plain);
        if let Some(hint) = error.hint_with(plain) {
            message.push_str(&format!("; {hint}"));
        }
        Failure::bad(message)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&Message { error: self.message }).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.close {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
