//! The routes, and what is done for every request: token, id, panics, metrics, log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::failure::Failure;
use crate::otlp::{Parent, Span, Subject};
use crate::{openapi, page, plain, protocol};

const REQUEST_ID: &str = "x-request-id";
/// Nothing from elsewhere, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Paths that need no token: what a browser loads, and what a platform asks before it sends requests.
const OPEN: [&str; 5] = ["/", "/page.js", "/page.css", "/v2/health/live", "/v2/health/ready"];

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    let routes = Router::new()
        .route("/", get(page::page))
        .route("/page.js", get(page::script))
        .route("/page.css", get(page::style))
        .route("/status", get(page::status))
        .route("/predict", post(plain::predict))
        .route("/models/{model}/restart", post(page::restart))
        .route("/openapi.json", get(openapi::document))
        .route("/metrics", get(page::metrics))
        .route("/v2", get(protocol::server))
        .route("/v2/", get(protocol::server))
        .route("/v2/health/live", get(protocol::live))
        .route("/v2/health/ready", get(protocol::ready))
        .route("/v2/repository/index", post(protocol::index))
        .route("/v2/models/{model}", get(protocol::metadata))
        .route("/v2/models/{model}/ready", get(protocol::model_ready))
        .route("/v2/models/{model}/infer", post(protocol::infer))
        .route("/v2/models/{model}/versions/{version}", get(protocol::version_metadata))
        .route("/v2/models/{model}/versions/{version}/ready", get(protocol::version_ready))
        .route("/v2/models/{model}/versions/{version}/infer", post(protocol::version_infer))
        .fallback(|| async {
            Failure::new(StatusCode::NOT_FOUND, "there is nothing here; / and /openapi.json say what there is")
        })
        .method_not_allowed_fallback(|| async {
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "not with this method; /openapi.json lists them")
        });
    #[cfg(test)]
    let routes = routes.route("/panic", get(|| async { assert!(std::hint::black_box(false), "a test") }));
    let inner = Arc::clone(&app);
    let panicked = move |_: Box<dyn std::any::Any + Send>| {
        inner.metrics.panicked();
        Failure::internal().into_response()
    };
    routes.layer(CatchPanicLayer::custom(panicked)).layer(from_fn_with_state(Arc::clone(&app), around)).with_state(app)
}

/// Whether a header has the token. All bytes are compared, so that the time says nothing about it.
fn authorized(header: Option<&HeaderValue>, token: &str) -> bool {
    let given = header.and_then(|h| h.to_str().ok()).and_then(|h| h.strip_prefix("Bearer ")).unwrap_or_default();
    let different = given.bytes().zip(token.bytes()).fold(0, |d, (a, b)| d | (a ^ b));
    given.len() == token.len() && different == 0
}

/// The id of a request: the client's if it is a short word.
fn request_id(app: &App, request: &Request) -> String {
    let fits = |id: &&str| {
        (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let given = request.headers().get(REQUEST_ID).and_then(|v| v.to_str().ok()).filter(fits);
    given.map_or_else(
        || format!("{:x}-{}", std::process::id(), app.next_id.fetch_add(1, Ordering::Relaxed)),
        str::to_owned,
    )
}

async fn around(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (began, at) = (Instant::now(), SystemTime::now());
    let id = request_id(&app, &request);
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    let parent = request.headers().get("traceparent").and_then(|v| Parent::parse(v.to_str().ok()?));
    let allowed = match &app.config.token {
        Some(token) => OPEN.contains(&path.as_str()) || authorized(request.headers().get(AUTHORIZATION), token),
        None => true,
    };
    let mut response = if allowed {
        next.run(request).await
    } else {
        let mut response =
            Failure::new(StatusCode::UNAUTHORIZED, "the server needs a token: send Authorization: Bearer …")
                .into_response();
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        response
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let (status, time) = (response.status().as_u16(), began.elapsed());
    app.metrics.answered(&path, status, time);
    if let Some(spans) = &app.spans {
        spans.add(Span {
            method: method.to_string(),
            path: path.clone(),
            status,
            began: at,
            took: time,
            request_id: id.clone(),
            parent,
            subject: response.extensions().get::<Subject>().cloned(),
        });
    }
    // Refusals are counted, not logged: an overload must not fill the log.
    let failed = status >= 500 && status != 503;
    if app.config.log_requests || failed {
        let ms = format!("{:.3}", time.as_secs_f64() * 1e3);
        let fields = [
            ("request", id.as_str()),
            ("method", method.as_str()),
            ("path", &path),
            ("status", &status.to_string()),
            ("ms", &ms),
        ];
        app.log.line(if failed { "error" } else { "info" }, &fields);
    }
    response
}
