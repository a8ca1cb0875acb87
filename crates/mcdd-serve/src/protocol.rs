//! The Open Inference Protocol, version 2, over REST.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use mcdd::data::{Cell, ColumnKind, ImageSpec, Schema};
use mcdd::model::{Model, Predictions, Threshold};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::app::{App, LARGE, MANY, Received};
use crate::aside::aside;
use crate::failure::{Answer, Failure, Missing, Refused};
use crate::models::Served;
use crate::otlp::Subject;
use crate::plain::explanations;
use crate::room::Room;
use crate::rows::{Binary, Encoder, Own, Rows};
use crate::tensor::{Datatype, Input, Output, Parameters, Values};

type Server = State<Arc<App>>;
const HEADER_LENGTH: &str = "inference-header-content-length";

/// The server
#[utoipa::path(get, path = "/v2", responses((status = 200, description = "The answer", body = Value), Missing))]
pub(crate) async fn server() -> Json<Value> {
    Json(json!({ "name": "mcdd", "version": env!("CARGO_PKG_VERSION"), "extensions": ["binary_tensor_data"] }))
}

/// Whether the server runs
#[utoipa::path(get, path = "/v2/health/live", responses((status = 200, description = "It runs", body = Value)))]
pub(crate) async fn live() -> Json<Value> {
    Json(json!({ "live": true }))
}

/// Whether requests are welcome
#[utoipa::path(get, path = "/v2/health/ready", responses(
    (status = 200, description = "Ready", body = Value),
    (status = 503, description = "Not ready", body = Value),
))]
pub(crate) async fn ready(State(app): Server) -> Response {
    let status = if app.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": app.is_ready() }))).into_response()
}

/// The models, as Triton's clients ask for them
#[utoipa::path(post, path = "/v2/repository/index", responses((status = 200, description = "The answer", body = Value), Missing))]
pub(crate) async fn index(State(app): Server) -> Json<Value> {
    let models = app.models.all();
    let one =
        |m: &Arc<Served>| json!({ "name": m.name, "version": m.version.to_string(), "state": "READY", "reason": "" });
    Json(models.values().map(one).collect())
}

/// A model, by its name and perhaps its version.
fn find(app: &App, path: &[(String, String)]) -> Answer<Arc<Served>> {
    let get = |key: &str| path.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    let served = app.model(get("model"))?;
    match get("version") {
        Some(version) if version != served.version.to_string() => Err(Failure::new(
            StatusCode::NOT_FOUND,
            format!("model {} has version {} now, not {version:?}", served.name, served.version),
        )),
        _ => Ok(served),
    }
}

/// Whether a model is ready
#[utoipa::path(get, path = "/v2/models/{model}/ready", params(("model" = String, Path, description = "A model")), responses((status = 200, description = "The answer", body = Value), Missing))]
pub(crate) async fn model_ready(State(app): Server, Path(path): Path<Vec<(String, String)>>) -> Answer<Json<Value>> {
    let served = find(&app, &path)?;
    Ok(Json(json!({ "name": served.name, "ready": true })))
}

/// Whether a version of a model is ready
#[utoipa::path(get, path = "/v2/models/{model}/versions/{version}/ready", params(("model" = String, Path, description = "A model"), ("version" = String, Path, description = "Its version: how often its file was read")), responses((status = 200, description = "The answer", body = Value), Missing))]
pub(crate) async fn version_ready(app: Server, path: Path<Vec<(String, String)>>) -> Answer<Json<Value>> {
    model_ready(app, path).await
}

/// What a version of a model reads and answers
#[utoipa::path(get, path = "/v2/models/{model}/versions/{version}", params(("model" = String, Path, description = "A model"), ("version" = String, Path, description = "Its version: how often its file was read")), responses((status = 200, description = "The answer", body = Value), Missing))]
pub(crate) async fn version_metadata(app: Server, path: Path<Vec<(String, String)>>) -> Answer<Json<Value>> {
    metadata(app, path).await
}

/// What a model reads and answers
#[utoipa::path(get, path = "/v2/models/{model}", params(("model" = String, Path, description = "A model")), responses((status = 200, description = "The answer", body = Value), Missing))]
pub(crate) async fn metadata(State(app): Server, Path(path): Path<Vec<(String, String)>>) -> Answer<Json<Value>> {
    let served = find(&app, &path)?;
    let model = &served.model;
    let tensor =
        |name: &str, datatype: &str, shape: Value| json!({ "name": name, "datatype": datatype, "shape": shape });
    let inputs: Vec<Value> = match &model.schema().image {
        Some(image) => vec![tensor("image", "UINT8", json!([-1, image.height, image.width, image.channels]))],
        None => used(model.schema())
            .map(|c| {
                let texts = c.form.is_some() || matches!(c.kind, ColumnKind::Categorical { .. });
                tensor(&c.name, if texts { "BYTES" } else { "FP64" }, json!([-1]))
            })
            .collect(),
    };
    let mut outputs = vec![
        tensor("known", "BOOL", json!([-1])),
        tensor("confidence", "FP64", json!([-1])),
        tensor("p_value", "FP64", json!([-1])),
    ];
    if model.classifies() {
        outputs.insert(0, tensor("label", "BYTES", json!([-1])));
        outputs.push(tensor("probabilities", "FP64", json!([-1, model.classes().len()])));
    }
    outputs.push(tensor("explanation", "BYTES", json!([-1])));
    Ok(Json(json!({
        "name": served.name,
        "versions": [served.version.to_string()],
        "platform": "mcdd",
        "inputs": inputs,
        "outputs": outputs,
        "parameters": { "classes": model.classes(), "calibration_rows": model.calibration().scores().len() },
    })))
}

fn used(schema: &Schema) -> impl Iterator<Item = &mcdd::data::SchemaColumn> {
    schema.columns.iter().filter(|c| c.kind.width() > 0)
}

/// An inference request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Inference)]
pub(crate) struct Request<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: Settings,
    #[serde(borrow)]
    inputs: Vec<Input<'a>>,
    #[serde(default)]
    outputs: Option<Vec<Wanted>>,
}

/// The parameters of a request that mean something here; others are not read.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct Settings {
    #[serde(default)]
    tpr: Option<f64>,
    /// Whether all outputs have bytes after the JSON.
    #[serde(default)]
    binary_data_output: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct Wanted {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

/// What is asked about the rows of a request.
struct Question {
    id: Option<String>,
    threshold: Threshold,
    wanted: Vec<(&'static str, bool)>,
}

/// An answer.
#[derive(Serialize)]
struct Inferred<'a> {
    model_name: &'a str,
    model_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    outputs: Vec<Output>,
}

/// Reads a request.
fn parse(
    model: &Model,
    body: &[u8],
    split: Option<Option<usize>>,
    most: usize,
    room: &mut Room,
) -> Answer<(Question, Rows)> {
    let (text, binary) = match split {
        None => (body, &[][..]),
        Some(at) => at.and_then(|at| body.split_at_checked(at)).ok_or_else(|| {
            Failure::bad("Inference-Header-Content-Length is not the length of the JSON at the start of the request")
        })?,
    };
    // Names and shapes of many small tensors.
    room.take(4 * text.len())?;
    let request: Request<'_> =
        serde_json::from_slice(text).map_err(|e| Failure::bad(format!("not an inference request: {e}")))?;
    let wanted = wanted(model, &request)?;
    let threshold = model.threshold_at(request.parameters.tpr)?;
    let rows = rows(model.schema(), &request, binary, most, room)?;
    Ok((Question { id: request.id, threshold, wanted }, rows))
}

/// Infer with a version of a model (Open Inference Protocol)
#[utoipa::path(
    post,
    path = "/v2/models/{model}/versions/{version}/infer",
    params(("model" = String, Path, description = "A model"), ("version" = String, Path, description = "Its version: how often its file was read")),
    request_body = Request<'_>,
    responses(
        (status = 200, description = "Tensors", content((Value = "application/json"), (Binary = "application/octet-stream"))),
        Refused,
    )
)]
pub(crate) async fn version_infer(
    app: Server,
    path: Path<Vec<(String, String)>>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    infer(app, path, headers, body).await
}

/// Infer (Open Inference Protocol)
#[utoipa::path(
    post,
    path = "/v2/models/{model}/infer",
    params(("model" = String, Path, description = "A model")),
    request_body = Request<'_>,
    responses(
        (status = 200, description = "Tensors", content((Value = "application/json"), (Binary = "application/octet-stream"))),
        Refused,
    )
)]
pub(crate) async fn infer(
    State(app): Server,
    Path(path): Path<Vec<(String, String)>>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let served = find(&app, &path)?;
    let (body, place) = app.body(&served, &headers, body).await?;
    let split = headers.get(HEADER_LENGTH).map(|v| v.to_str().ok().and_then(|v| v.parse::<usize>().ok()));
    let model = Arc::clone(&served);
    let (question, rows, mut room) = aside(body.bytes.len() > LARGE, move || {
        let Received { bytes, mut room } = body;
        let (question, rows) = parse(&model.model, &bytes, split, model.limits.rows, &mut room)?;
        Ok((question, rows, room))
    })
    .await?;
    let explain = question.wanted.iter().any(|(name, _)| *name == "explanation");
    let count = rows.x.len() / served.model.schema().width().max(1);
    if explain && count > app.config.limits.explained_rows {
        return Err(Failure::too_large(format!(
            "explanations are for at most {} rows",
            app.config.limits.explained_rows
        )));
    }
    let copy = if explain { rows.x.clone() } else { Vec::new() };
    let predictions = app.predict(&served, rows.x, place, &mut room).await?;
    let subject = Subject { model: served.name.clone(), rows: count };
    aside(count > MANY || explain, move || {
        let reasons =
            if explain { explanations(&served.model, &Rows { x: copy, ..Rows::default() })? } else { Vec::new() };
        let (bytes, length) = answer(&served, question, &predictions, &reasons)?;
        let mut response = (Extension(subject), room.hold(bytes)).into_response();
        let text = if length.is_some() { "application/octet-stream" } else { "application/json" };
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(text));
        if let Some(length) = length {
            response.headers_mut().insert(HEADER_LENGTH, length.into());
        }
        Ok(response)
    })
    .await
}

/// The bytes of an answer, and the length of its JSON if there are other bytes.
fn answer(
    served: &Served,
    question: Question,
    predictions: &Predictions,
    reasons: &[Value],
) -> Answer<(Vec<u8>, Option<usize>)> {
    let known: Vec<bool> = predictions.confidence.iter().map(|&c| question.threshold.known(c)).collect();
    let mut binary = Vec::new();
    let outputs = question
        .wanted
        .into_iter()
        .map(|(name, bytes)| output(&served.model, name, predictions, &known, reasons, bytes.then_some(&mut binary)))
        .collect();
    let whole =
        Inferred { model_name: &served.name, model_version: served.version.to_string(), id: question.id, outputs };
    let mut text = serde_json::to_vec(&whole).map_err(|_| Failure::internal())?;
    let length = (!binary.is_empty()).then_some(text.len());
    text.append(&mut binary);
    Ok((text, length))
}

/// Images of the model's size as one tensor of bytes: images, rows of pixels, pixels, channels.
fn pixels(image: &ImageSpec, request: &Request<'_>, mut binary: &[u8], most: usize, room: &mut Room) -> Answer<Rows> {
    let size = [image.height, image.width, image.channels];
    let wrong = || {
        Failure::bad(format!(
            "the model reads one UINT8 tensor of the shape [images, {}, {}, {}]; files of any size go to /predict",
            size[0], size[1], size[2]
        ))
    };
    let [input] = &request.inputs[..] else { return Err(wrong()) };
    let fits = input.shape.get(1..).is_some_and(|s| s.iter().copied().eq(size.map(|d| d as u64)));
    if !fits || input.datatype != Datatype::U8 {
        return Err(wrong());
    }
    if input.rows()?.0 > most {
        return Err(Failure::too_large(format!("more than {most} images; send them in several requests")));
    }
    let byte = |cell: &Own| match cell.cell() {
        Cell::Int(v) => u8::try_from(v).ok(),
        Cell::Uint(v) => u8::try_from(v).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = input.cells(&mut binary, room)?.iter().map(byte).collect();
    let bytes = bytes.ok_or_else(wrong)?;
    room.take(5 * bytes.len())?;
    let mut x = vec![0.0; bytes.len()];
    image.transform_into(&bytes, &mut x);
    Ok(Rows { x, ..Rows::default() })
}

/// The rows of a request: one tensor a column, or one matrix with all columns.
fn rows(schema: &Schema, request: &Request<'_>, mut binary: &[u8], most: usize, room: &mut Room) -> Answer<Rows> {
    if let Some(image) = &schema.image {
        return pixels(image, request, binary, most, room);
    }
    let used: Vec<&str> = used(schema).map(|c| c.name.as_str()).collect();
    let mut tensors: Vec<(&str, usize, usize, Vec<Own>)> = Vec::new();
    for input in &request.inputs {
        let (rows, columns) = input.rows()?;
        if rows > most {
            return Err(Failure::too_large(format!("more than {most} rows; send them in several requests")));
        }
        tensors.push((&input.name, rows, columns, input.cells(&mut binary, room)?));
    }
    if !binary.is_empty() {
        return Err(Failure::bad(format!("{} bytes after the tensors belong to none", binary.len())));
    }
    match &tensors[..] {
        [] => Err(Failure::bad("the request has no inputs")),
        // One matrix; a column by its name is the other case.
        [(name, rows, columns, cells)] if !(used.len() == 1 && used[0] == *name) => {
            if *columns != used.len() && *columns != schema.columns.len() {
                return Err(Failure::bad(format!(
                    "input {name} has {columns} columns, and the model reads {}: {}",
                    used.len(),
                    used.join(", ")
                )));
            }
            let mut encoder = Encoder::new(schema, *rows, most, room)?;
            for row in cells.chunks((*columns).max(1)).take(*rows) {
                encoder.row(row.iter().map(Own::cell).collect())?;
            }
            Ok(encoder.rows())
        }
        _ => {
            let rows = tensors[0].1;
            let column = |name: &str| {
                let found = tensors.iter().find(|t| t.0 == name).ok_or_else(|| {
                    Failure::bad(format!("there is no input {name:?}; the model reads {}", used.join(", ")))
                })?;
                if found.1 != rows || found.2 != 1 {
                    return Err(Failure::bad(format!(
                        "input {name:?} does not have the shape [{rows}] of the first one"
                    )));
                }
                Ok(&found.3)
            };
            let columns = used.iter().map(|name| column(name)).collect::<Answer<Vec<_>>>()?;
            let mut encoder = Encoder::new(schema, rows, most, room)?;
            for i in 0..rows {
                encoder.row(columns.iter().map(|c| c.get(i).map_or(Cell::Missing, Own::cell)).collect())?;
            }
            Ok(encoder.rows())
        }
    }
}

/// The outputs that are asked for, and whether they are binary.
fn wanted(model: &Model, request: &Request<'_>) -> Answer<Vec<(&'static str, bool)>> {
    let all = request.parameters.binary_data_output.unwrap_or(false);
    let names: &[&'static str] = if model.classifies() {
        &["label", "known", "confidence", "p_value", "probabilities"]
    } else {
        &["known", "confidence", "p_value"]
    };
    let Some(wanted) = &request.outputs else { return Ok(names.iter().map(|n| (*n, all)).collect()) };
    let mut found: Vec<(&'static str, bool)> = Vec::new();
    for w in wanted {
        let name = names.iter().chain(&["explanation"]).find(|n| **n == w.name);
        let name = name.ok_or_else(|| {
            Failure::bad(format!("there is no output {:?}; the outputs are {}, explanation", w.name, names.join(", ")))
        })?;
        if found.iter().any(|(other, _)| other == name) {
            return Err(Failure::bad(format!("the output {name} is asked for twice")));
        }
        found.push((name, w.parameters.binary_data.unwrap_or(all)));
    }
    Ok(found)
}

fn output(
    model: &Model,
    name: &'static str,
    predictions: &Predictions,
    known: &[bool],
    reasons: &[Value],
    binary: Option<&mut Vec<u8>>,
) -> Output {
    let rows = predictions.rows();
    let class = |c: &u32| model.classes().get(*c as usize).cloned().unwrap_or_default();
    let (shape, values) = match name {
        "label" => (vec![rows], Values::Texts(predictions.class.iter().map(class).collect())),
        "known" => (vec![rows], Values::Bools(known.to_vec())),
        "confidence" => (vec![rows], Values::Numbers(predictions.confidence.clone())),
        "p_value" => (vec![rows], Values::Numbers(predictions.p_value.clone())),
        "probabilities" => (vec![rows, model.classes().len()], Values::Numbers(predictions.posterior.clone())),
        _ => (vec![rows], Values::Texts(reasons.iter().map(Value::to_string).collect())),
    };
    Output::new(name, shape, values, binary)
}
