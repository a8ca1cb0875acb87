//! The page at `/`, and the numbers that it shows.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use mcdd::data::ColumnKind;
use mcdd::data::SchemaColumn;
use serde_json::{Value, json};

use crate::app::App;
use crate::failure::{Answer, Failure, Missing, Refused};
use crate::models::Served;
use crate::otlp::Spans;

pub(crate) async fn page() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], include_str!("page.html"))
}

pub(crate) async fn script() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("page.js"))
}

pub(crate) async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("page.css"))
}

/// Models, what they know, recent rows and alarms
#[utoipa::path(get, path = "/status", responses((status = 200, description = "The answer", body = Value), Missing))]
pub(crate) async fn status(State(app): State<Arc<App>>) -> Json<Value> {
    let models = app.models.all();
    let problems: Vec<Value> =
        app.models.problems().into_iter().map(|(model, error)| json!({ "model": model, "error": error })).collect();
    Json(json!({
        "ready": app.is_ready(),
        "queued_rows": app.queue.rows(),
        "models": models.values().map(|m| about(m)).collect::<Vec<_>>(),
        "not_loaded": problems,
    }))
}

fn about(served: &Served) -> Value {
    let model = &served.model;
    let mut watch = served.watch();
    let (rows, unknown) = watch.recent.sums();
    let minutes = watch.recent.minutes();
    json!({
        "name": served.name,
        "version": served.version,
        "classes": model.classes(),
        "images": model.schema().image.is_some(),
        "columns": model.schema().columns.iter().filter(|c| c.kind.width() > 0).map(column).collect::<Vec<_>>(),
        "training_rows": model.training_rows(),
        "last_hour": { "rows": rows, "unknown": unknown, "minutes": minutes },
        "monitor": watch.monitor.as_ref().map(|m| json!({
            "rows": m.rows(), "evidence": m.evidence(), "limit": m.limit(), "alarm": m.alarm(),
        })),
    })
}

/// A column, and a value that the form begins with.
fn column(column: &SchemaColumn) -> Value {
    match &column.kind {
        ColumnKind::Categorical { categories, .. } => {
            json!({ "name": column.name, "categories": categories.iter().take(500).collect::<Vec<_>>() })
        }
        ColumnKind::Numeric { mean, std, .. } if column.form.is_none() => {
            // As many digits as say something.
            let digits = (1.0 - std.max(1e-12).log10().floor()).clamp(0.0, 9.0) as usize;
            let text = format!("{mean:.digits$}");
            // Without the sign of -0.0.
            let example = if text.parse() == Ok(0.0) { "0".to_owned() } else { text };
            json!({ "name": column.name, "example": example })
        }
        _ => json!({ "name": column.name }),
    }
}

/// Start the monitor of a model again, after an alarm
#[utoipa::path(
    post,
    path = "/models/{model}/restart",
    params(("model" = String, Path, description = "A model")),
    responses((status = 200, description = "The monitor", body = Value), Refused)
)]
pub(crate) async fn restart(State(app): State<Arc<App>>, Path(model): Path<String>) -> Answer<Json<Value>> {
    let served = app.model(Some(&model))?;
    let mut watch = served.watch();
    let monitor =
        watch.monitor.as_mut().ok_or_else(|| Failure::bad("the model has too few calibration rows for a monitor"))?;
    monitor.restart();
    Ok(Json(json!({ "model": served.name, "evidence": monitor.evidence(), "alarm": monitor.alarm() })))
}

/// Metrics for Prometheus
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "Metrics", body = String, content_type = "application/openmetrics-text"),
    Missing,
))]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let models = app.models.all();
    let dropped = app.spans.as_ref().map_or(0, Spans::dropped);
    let text = app.metrics.text(app.queue.rows(), dropped, models.values().map(|m| &**m));
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
