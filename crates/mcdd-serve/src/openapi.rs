//! The description of the routes, from the functions that answer them and the types that they read.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use utoipa::openapi::{Content, Ref, ResponseBuilder};
use utoipa::{OpenApi, ToSchema as _};

use crate::app::App;
use crate::failure::{Message, Missing};
use crate::{page, plain, protocol};

#[derive(OpenApi)]
#[openapi(
    info(title = "mcdd", description = "Classes, or unknown"),
    paths(
        plain::predict,
        page::status,
        page::restart,
        page::metrics,
        document,
        protocol::server,
        protocol::live,
        protocol::ready,
        protocol::index,
        protocol::metadata,
        protocol::model_ready,
        protocol::infer,
        protocol::version_metadata,
        protocol::version_ready,
        protocol::version_infer,
    ),
    components(schemas(Message))
)]
struct Description;

/// This document
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "The answer", body = Value), Missing))]
pub(crate) async fn document(State(app): State<Arc<App>>) -> Json<Value> {
    let models = app.models.all();
    Json(describe(app.config.token.is_some(), &models.keys().map(String::as_str).collect::<Vec<_>>()))
}

/// The document, with the models of now.
fn describe(token: bool, models: &[&str]) -> Value {
    let mut all = Description::openapi();
    let failure = ResponseBuilder::new()
        .description("What is wrong, and what to do")
        .content("application/json", Content::new(Some(Ref::from_schema_name(Message::name()))))
        .build();
    all.components.get_or_insert_default().responses.insert("Failure".into(), failure.into());
    let mut document = json!(all);
    let operations = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = operations.filter_map(Value::as_object_mut).flat_map(|methods| methods.values_mut());
    let parameters = operations.filter_map(|o| o.get_mut("parameters")?.as_array_mut()).flatten();
    for parameter in parameters.filter(|p| p["name"] == "model" && p["in"] == "path") {
        parameter["schema"]["enum"] = json!(models);
    }
    if token {
        document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
        document["security"] = json!([{ "token": [] }]);
    }
    document
}
