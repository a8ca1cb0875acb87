//! `POST /predict`: rows in, predictions out, in the same format.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use mcdd::compute::pool::Pool;
use mcdd::data::Unseen;
use mcdd::model::{Model, Predictions, Threshold};
use mcdd::stream::{Block, Columns, Csv, Json, Layout, Writer, verdict};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use crate::app::{App, LARGE, MANY, Received};
use crate::aside::aside;
use crate::failure::{Answer, Failure, Refused};
use crate::otlp::Subject;
use crate::rows::{Binary, Kind, Row, Rows, read};

/// The query of a request.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Options {
    /// The model; needed if there are several
    #[param(nullable = false)]
    model: Option<String>,
    /// Fraction of known rows to keep
    #[param(nullable = false, exclusive_minimum = 0, exclusive_maximum = 1)]
    tpr: Option<f64>,
    /// 1 for the reasons of each verdict
    #[serde(default)]
    #[param(nullable = false)]
    explain: Option<String>,
    /// 1 for the probabilities of the classes
    #[serde(default)]
    #[param(nullable = false)]
    probs: Option<String>,
}

fn on(flag: Option<&String>) -> bool {
    flag.is_some_and(|v| !matches!(v.as_str(), "0" | "false" | "no"))
}

/// Predict rows or an image, answered in the same format
#[utoipa::path(
    post,
    path = "/predict",
    params(Options),
    request_body(content(
        (Vec<Row> = "application/json"),
        (String = "application/x-ndjson"),
        (String = "text/csv"),
        (Binary = "application/vnd.apache.arrow.stream"),
        (Binary = "image/png"),
        (Binary = "image/jpeg"),
    )),
    responses(
        (status = 200, description = "Predictions", content(
            (Vec<Value> = "application/json"),
            (String = "application/x-ndjson"),
            (String = "text/csv"),
            (Binary = "application/vnd.apache.arrow.stream"),
        )),
        Refused,
    )
)]
pub(crate) async fn predict(
    State(app): State<Arc<App>>,
    query: Result<Query<Options>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let Query(options) = query.map_err(|e| Failure::bad(e.body_text()))?;
    let served = app.model(options.model.as_deref())?;
    let threshold = served.model.threshold_at(options.tpr)?;
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok().map(str::to_owned));
    let (body, place) = app.body(&served, &headers, body).await?;
    let model = Arc::clone(&served);
    let (kind, rows, mut room) = aside(body.bytes.len() > LARGE, move || {
        let Received { bytes, mut room } = body;
        let kind = Kind::of(content_type.as_deref(), &bytes)?;
        let rows = read(&model.model, kind, bytes, model.limits.rows, &mut room)?;
        Ok((kind, rows, room))
    })
    .await?;
    let explain = on(options.explain.as_ref());
    let count = rows.x.len() / served.model.schema().width().max(1);
    if explain && count > app.config.limits.explained_rows {
        return Err(Failure::too_large(format!(
            "explanations are for at most {} rows",
            app.config.limits.explained_rows
        )));
    }
    if explain && !matches!(kind, Kind::Json | Kind::JsonLines | Kind::Image) {
        return Err(Failure::bad("explanations are answers in JSON; send the rows as JSON"));
    }
    let Rows { x, unseen, names } = rows;
    let copy = if explain { x.clone() } else { Vec::new() };
    let predictions = app.predict(&served, x, place, &mut room).await?;
    let subject = Subject { model: served.name.clone(), rows: count };
    let columns = Columns {
        probs: on(options.probs.as_ref()) && served.model.classifies(),
        names: !names.is_empty(),
        ..Columns::default()
    };
    aside(count > MANY || explain, move || {
        let (text, bytes) = match kind {
            _ if explain => {
                let rows = Rows { x: copy, unseen, names };
                explained(&served.model, threshold, &rows, &predictions, kind)?
            }
            Kind::Csv => ("text/csv", written(&served.model, threshold, columns, &predictions, &names, Form::Csv)?),
            Kind::JsonLines => {
                ("application/x-ndjson", written(&served.model, threshold, columns, &predictions, &names, Form::Lines)?)
            }
            Kind::Json | Kind::Image => {
                ("application/json", written(&served.model, threshold, columns, &predictions, &names, Form::Json)?)
            }
            Kind::Arrow => ("application/vnd.apache.arrow.stream", arrow(&served.model, threshold, &predictions)?),
        };
        Ok(([(CONTENT_TYPE, text)], Extension(subject), room.hold(bytes)).into_response())
    })
    .await
}

enum Form {
    Csv,
    Lines,
    Json,
}

/// The predictions as `mcdd predict` writes them.
fn written(
    model: &Model,
    threshold: Threshold,
    columns: Columns,
    predictions: &Predictions,
    names: &[String],
    form: Form,
) -> Answer<Vec<u8>> {
    let classes = if model.classifies() { model.classes() } else { &[] };
    let layout = Layout { kept: Vec::new(), classes, threshold, columns, destination: Path::new("answer") };
    let mut out = Vec::new();
    {
        let mut writer: Box<dyn Writer + '_> = match form {
            Form::Csv => Box::new(Csv::new(layout, &mut out)?),
            Form::Lines => Box::new(Json::lines(layout, &mut out)),
            Form::Json => Box::new(Json::array(layout, &mut out)),
        };
        writer.write(Block { predictions, names, bad: &[], kept: &[] })?;
        writer.finish()?;
    }
    Ok(out)
}

/// The predictions as an Arrow stream.
fn arrow(model: &Model, threshold: Threshold, predictions: &Predictions) -> Answer<Vec<u8>> {
    let label = |i: usize| predictions.class.get(i).and_then(|&c| model.classes().get(c as usize)).map(String::as_str);
    let labels: StringArray = (0..predictions.rows()).map(label).collect();
    let verdicts: StringArray = predictions.confidence.iter().map(|&c| Some(verdict(threshold.known(c)))).collect();
    let columns: [(&str, ArrayRef); 4] = [
        ("label", Arc::new(labels)),
        ("verdict", Arc::new(verdicts)),
        ("confidence", Arc::new(Float64Array::from(predictions.confidence.clone()))),
        ("p_value", Arc::new(Float64Array::from(predictions.p_value.clone()))),
    ];
    let write = || {
        let batch = RecordBatch::try_from_iter(columns)?;
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema())?;
        writer.write(&batch)?;
        writer.into_inner()
    };
    write().map_err(|_: arrow_schema::ArrowError| Failure::internal())
}

/// Why each row has its confidence, as JSON.
pub(crate) fn explanations(model: &Model, rows: &Rows) -> Answer<Vec<Value>> {
    let width = model.schema().width().max(1);
    let pool = Pool::shared();
    let one = |(i, x): (usize, &[f32])| {
        if let Some(spec) = &model.schema().image {
            let areas = model.explain_image(x, pool)?.areas([spec.height, spec.width]);
            return Ok(json!(areas));
        }
        let why = model.explain(x, Unseen::of_row(&rows.unseen, i), 5, pool)?;
        Ok(json!(why.columns))
    };
    rows.x.chunks_exact(width).enumerate().map(one).collect()
}

/// Predictions with their explanations.
fn explained(
    model: &Model,
    threshold: Threshold,
    rows: &Rows,
    predictions: &Predictions,
    kind: Kind,
) -> Answer<(&'static str, Vec<u8>)> {
    let part = if model.schema().image.is_some() { "areas" } else { "columns" };
    let reasons = explanations(model, rows)?;
    let object = |(i, reasons): (usize, Value)| {
        let label = predictions.class.get(i).and_then(|&c| model.classes().get(c as usize));
        json!({
            "label": label,
            "verdict": verdict(threshold.known(predictions.confidence[i])),
            "confidence": predictions.confidence[i],
            "p_value": predictions.p_value[i],
            part: reasons,
        })
    };
    let objects: Vec<Value> = reasons.into_iter().enumerate().map(object).collect();
    Ok(if kind == Kind::JsonLines {
        let lines: String = objects.iter().map(|o| format!("{o}\n")).collect();
        ("application/x-ndjson", lines.into_bytes())
    } else {
        ("application/json", Value::from(objects).to_string().into_bytes())
    })
}
