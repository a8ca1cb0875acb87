//! The description of the routes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::app::App;

pub(crate) async fn document(State(app): State<Arc<App>>) -> Json<Value> {
    let models = app.models.all();
    Json(describe(app.config.token.is_some(), &models.keys().map(String::as_str).collect::<Vec<_>>()))
}

/// An answer in JSON.
fn answer(description: &str) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": {} } } })
}

/// An operation with its answers; all of them may fail.
fn operation(summary: &str, parameters: &[&str], good: Value, failures: &[u16]) -> Value {
    let named = |name: &&str| match *name {
        "model" => json!({ "$ref": "#/components/parameters/Model" }),
        "version" => json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }),
        "tpr" => json!({ "name": name, "in": "query", "description": "Fraction of known rows to keep",
            "schema": { "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 } }),
        "?model" => {
            json!({ "name": "model", "in": "query", "description": "The model; needed if there are several", "schema": { "type": "string" } })
        }
        name => json!({ "name": name, "in": "query", "schema": { "type": "string" } }),
    };
    let mut responses = json!({ "200": good });
    for status in failures {
        responses[status.to_string()] = json!({ "$ref": "#/components/responses/Failure" });
    }
    json!({ "summary": summary, "parameters": parameters.iter().map(named).collect::<Vec<_>>(), "responses": responses })
}

fn body(content: Value) -> Value {
    json!({ "required": true, "content": content })
}

/// The document, as OpenAPI 3.1, with the models of now.
fn describe(token: bool, models: &[&str]) -> Value {
    let read = |summary: &str, parameters: &[&str]| json!({ "get": operation(summary, parameters, answer("The answer"), &[401, 404]) });
    let sent = [400, 401, 404, 408, 413, 415, 422, 500, 503];
    let rows = json!({ "type": "array", "items": { "anyOf": [{ "type": "object" }, { "type": "array" }] } });
    let text = json!({ "schema": { "type": "string" } });
    let mut predict = operation(
        "Predict rows or an image, answered in the same format",
        &["?model", "tpr", "explain", "probs"],
        answer("Predictions"),
        &sent,
    );
    predict["requestBody"] = body(json!({
        "application/json": { "schema": rows },
        "application/x-ndjson": text, "text/csv": text,
        "application/vnd.apache.arrow.stream": {}, "image/png": {}, "image/jpeg": {},
    }));
    let infer = |parameters: &[&str]| {
        let mut infer = operation("Infer (Open Inference Protocol)", parameters, answer("Tensors"), &sent);
        infer["requestBody"] =
            body(json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Inference" } } }));
        json!({ "post": infer })
    };
    let restart = operation("Start the monitor of a model again", &["model"], answer("The monitor"), &[400, 401, 404]);
    let index = operation("The models (Triton's list)", &[], answer("The models"), &[401]);
    let mut ready = operation("Whether requests are welcome", &[], answer("Ready"), &[]);
    ready["responses"]["503"] = answer("Not ready");
    let mut document = json!({
        "openapi": "3.1.0",
        "info": { "title": "mcdd", "version": env!("CARGO_PKG_VERSION"), "description": "Classes, or unknown" },
        "paths": {
            "/predict": { "post": predict },
            "/status": read("Models, recent rows, alarms", &[]),
            "/metrics": { "get": operation("Metrics for Prometheus", &[], json!({ "description": "Metrics" }), &[401]) },
            "/openapi.json": read("This document", &[]),
            "/models/{model}/restart": { "post": restart },
            "/v2": read("The server", &[]),
            "/v2/health/live": { "get": operation("Whether the server runs", &[], answer("It runs"), &[]) },
            "/v2/health/ready": { "get": ready },
            "/v2/repository/index": { "post": index },
            "/v2/models/{model}": read("A model's inputs and outputs", &["model"]),
            "/v2/models/{model}/ready": read("Whether a model is ready", &["model"]),
            "/v2/models/{model}/infer": infer(&["model"]),
            "/v2/models/{model}/versions/{version}": read("A model's inputs and outputs", &["model", "version"]),
            "/v2/models/{model}/versions/{version}/ready": read("Whether a model is ready", &["model", "version"]),
            "/v2/models/{model}/versions/{version}/infer": infer(&["model", "version"]),
        },
        "components": {
            "parameters": { "Model": {
                "name": "model", "in": "path", "required": true, "schema": { "type": "string", "enum": models },
            } },
            "responses": { "Failure": {
                "description": "What is wrong, and what to do",
                "content": { "application/json": { "schema": {
                    "type": "object", "required": ["error"], "properties": { "error": { "type": "string" } },
                } } },
            } },
            "schemas": { "Inference": {
                "type": "object",
                "required": ["inputs"],
                "properties": {
                    "id": { "type": "string" },
                    "parameters": { "type": "object" },
                    "inputs": { "type": "array", "items": {
                        "type": "object",
                        "required": ["name", "shape", "datatype"],
                        "properties": {
                            "name": { "type": "string" },
                            "shape": { "type": "array", "items": { "type": "integer", "minimum": 0 } },
                            "datatype": { "enum": ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64", "BYTES"] },
                            "parameters": { "type": "object" },
                            "data": { "type": "array" },
                        },
                    } },
                    "outputs": { "type": "array", "items": {
                        "type": "object", "required": ["name"],
                        "properties": { "name": { "type": "string" }, "parameters": { "type": "object" } },
                    } },
                },
            } },
        },
    });
    if token {
        document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
        document["security"] = json!([{ "token": [] }]);
    }
    document
}
