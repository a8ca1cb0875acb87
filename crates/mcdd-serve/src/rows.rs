//! Rows of a request, as the network gets them.

use std::io::Write as _;
use std::sync::Arc;

use mcdd::data::{Batch, Cell, Reader, Schema, Unseen};
use mcdd::model::Model;
use mcdd::stream;
use serde_json::Value;

use crate::failure::{Answer, Failure};

/// Rows read at a time.
const BLOCK: usize = 4096;

/// Rows that are ready to be predicted.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub x: Vec<f32>,
    /// Categories that training did not have.
    pub unseen: Vec<Unseen>,
    /// For images their names.
    pub names: Vec<String>,
}

/// What the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    JsonLines,
    Csv,
    Arrow,
    Image,
}

impl Kind {
    /// By the content type, else by the first bytes.
    pub(crate) fn of(content_type: Option<&str>, body: &[u8]) -> Answer<Kind> {
        let named = content_type.and_then(|t| t.split(';').next()).map(|t| t.trim().to_ascii_lowercase());
        let kind = match named.as_deref() {
            Some("application/json") => Some(Kind::Json),
            Some("application/x-ndjson" | "application/jsonl" | "application/x-jsonlines") => Some(Kind::JsonLines),
            Some("text/csv") => Some(Kind::Csv),
            Some("application/vnd.apache.arrow.stream") => Some(Kind::Arrow),
            Some(t) if t.starts_with("image/") => Some(Kind::Image),
            _ => None,
        };
        let compressed: [&[u8]; 4] = [b"\x1f\x8b", b"\x1f\x9d", b"PK\x03\x04", b"PAR1"];
        if kind != Some(Kind::Image) && compressed.iter().any(|c| body.starts_with(c)) {
            let message = "compressed files, Parquet and Excel are not read from requests; send CSV, JSON, JSON Lines or an Arrow stream";
            return Err(Failure::new(axum::http::StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let images: [&[u8]; 6] = [b"\x89PNG", b"\xff\xd8\xff", b"RIFF", b"GIF8", b"II*\0", b"MM\0*"];
        let first = body.iter().find(|b| !b.is_ascii_whitespace());
        Ok(kind.unwrap_or(match first {
            _ if images.iter().any(|i| body.starts_with(i)) => Kind::Image,
            _ if body.starts_with(b"\xff\xff\xff\xff") => Kind::Arrow,
            Some(b'[') => Kind::Json,
            // A single object, over several lines or not; else a line for each row.
            Some(b'{') if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() => Kind::Json,
            Some(b'{') => Kind::JsonLines,
            _ => Kind::Csv,
        }))
    }
}

/// Reads the body of a request.
pub(crate) fn read(model: &Model, kind: Kind, body: Vec<u8>, most: usize) -> Answer<Rows> {
    let schema = model.schema();
    if schema.image.is_some() {
        return image(model, kind, &body);
    }
    let options = mcdd::data::ReadOptions::default();
    let body = match kind {
        Kind::Image => return Err(Failure::bad("the model reads tables, and this is an image")),
        Kind::Json => match json_lines(&body)? {
            Lines::Objects(lines) => lines,
            Lines::Arrays(rows) => return positional(schema, &rows, most),
        },
        _ => body,
    };
    let reader = schema.reader_from_bytes(body, "request", &options)?;
    all(reader, most)
}

/// All rows of a reader, up to a limit.
fn all(mut reader: Reader, most: usize) -> Answer<Rows> {
    let (mut rows, mut count) = (Rows::default(), 0);
    let mut batch = Batch::default();
    while reader.next(BLOCK, &mut batch)? {
        let moved = batch.unseen_cells.drain(..).map(|cell| Unseen { row: cell.row + count, ..cell });
        rows.unseen.extend(moved);
        count += batch.rows;
        if count > most {
            return Err(Failure::too_large(format!("more than {most} rows; send them in several requests")));
        }
        rows.x.extend_from_slice(&batch.x);
        rows.names.append(&mut batch.names);
    }
    Ok(rows)
}

/// An image goes through a file, as the command reads it.
fn image(model: &Model, kind: Kind, body: &[u8]) -> Answer<Rows> {
    if kind != Kind::Image {
        return Err(Failure::bad(
            "the model reads images; send one image file with its content type, such as image/png",
        ));
    }
    let write = || {
        let mut file = tempfile::Builder::new().prefix("mcdd-").tempfile()?;
        file.write_all(body)?;
        file.flush()?;
        Ok::<_, std::io::Error>(file)
    };
    let file = write().map_err(|_| Failure::internal())?;
    let options = stream::without_labels(model, mcdd::data::ReadOptions::default());
    // The name of the file is no one's business.
    let plain = |e: mcdd::Error| Failure::bad(e.message());
    let reader = model.schema().reader(file.path(), &options).map_err(plain)?;
    let mut rows = all(reader, 1)
        .map_err(|e| Failure { message: e.message.replace(&*file.path().to_string_lossy(), "image"), ..e })?;
    rows.names = vec!["request".into(); rows.x.len() / model.schema().width().max(1)];
    Ok(rows)
}

/// JSON rows in another shape.
enum Lines {
    /// Objects, a line each.
    Objects(Vec<u8>),
    Arrays(Vec<Vec<Value>>),
}

/// A JSON array of objects or of arrays, one object, or `{"rows": […]}`.
fn json_lines(body: &[u8]) -> Answer<Lines> {
    let invalid = |e: serde_json::Error| Failure::bad(format!("not valid JSON: {e}"));
    let expected =
        || Failure::bad("expected an array of rows: objects with the columns, or arrays of values in their order");
    let rows = match serde_json::from_slice(body).map_err(invalid)? {
        Value::Array(rows) => rows,
        Value::Object(mut object) => match object.remove("rows") {
            Some(Value::Array(rows)) if object.is_empty() => rows,
            Some(other) => {
                object.insert("rows".into(), other);
                vec![Value::Object(object)]
            }
            None => vec![Value::Object(object)],
        },
        _ => return Err(expected()),
    };
    if rows.iter().all(Value::is_array) {
        let cells = |row: Value| match row {
            Value::Array(cells) => cells,
            _ => Vec::new(),
        };
        return Ok(Lines::Arrays(rows.into_iter().map(cells).collect()));
    }
    if !rows.iter().all(Value::is_object) {
        return Err(expected());
    }
    let mut lines = Vec::with_capacity(body.len());
    for row in &rows {
        serde_json::to_writer(&mut lines, row).map_err(invalid)?;
        lines.push(b'\n');
    }
    Ok(Lines::Objects(lines))
}

/// A JSON value as a cell.
pub(crate) fn cell(value: &Value) -> Answer<Cell<'_>> {
    Ok(match value {
        Value::Null => Cell::Missing,
        Value::Bool(b) => Cell::Bool(*b),
        Value::String(text) => Cell::Text(text),
        Value::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(i), ..) => Cell::Int(i),
            (_, Some(u), _) => Cell::Uint(u),
            (.., Some(f)) => Cell::F64(f),
            _ => return Err(Failure::bad(format!("{n} is out of range"))),
        },
        _ => return Err(Failure::bad("a cell is a number, a text, true, false or null")),
    })
}

/// Rows whose cells stand in the order of the model's columns.
fn positional(schema: &Schema, rows: &[Vec<Value>], most: usize) -> Answer<Rows> {
    let cells = |row: &Vec<Value>| row.iter().map(|v| cell(v).map(Own::from)).collect::<Answer<Vec<Own>>>();
    let rows = rows.iter().map(cells).collect::<Answer<Vec<_>>>()?;
    ordered(schema, &rows, most)
}

/// A cell that owns its text.
#[derive(Clone, Debug)]
pub(crate) enum Own {
    Plain(Cell<'static>),
    Text(Arc<str>),
}

impl From<Cell<'_>> for Own {
    fn from(cell: Cell<'_>) -> Own {
        match cell {
            Cell::Text(text) => Own::Text(text.into()),
            Cell::Missing => Own::Plain(Cell::Missing),
            Cell::Bool(v) => Own::Plain(Cell::Bool(v)),
            Cell::Int(v) => Own::Plain(Cell::Int(v)),
            Cell::Uint(v) => Own::Plain(Cell::Uint(v)),
            Cell::F32(v) => Own::Plain(Cell::F32(v)),
            Cell::F64(v) => Own::Plain(Cell::F64(v)),
        }
    }
}

impl Own {
    pub(crate) fn cell(&self) -> Cell<'_> {
        match self {
            Own::Plain(cell) => *cell,
            Own::Text(text) => Cell::Text(text),
        }
    }
}

/// Rows of cells in the order of the columns: of all of them, or of those that the model uses.
pub(crate) fn ordered<R: AsRef<[Own]>>(schema: &Schema, rows: &[R], most: usize) -> Answer<Rows> {
    if rows.len() > most {
        return Err(Failure::too_large(format!("more than {most} rows; send them in several requests")));
    }
    let width = schema.width();
    let used = schema.columns.iter().filter(|c| c.kind.width() > 0).count();
    let mut x = vec![0.0; rows.len() * width];
    for (i, (row, out)) in rows.iter().zip(x.chunks_exact_mut(width.max(1))).enumerate() {
        let mut given = row.as_ref().iter().map(Own::cell);
        let cells: Vec<Cell> = if row.as_ref().len() == used && used != schema.columns.len() {
            let mut next = |c: &mcdd::data::SchemaColumn| if c.kind.width() > 0 { given.next() } else { None };
            schema.columns.iter().map(|c| next(c).unwrap_or(Cell::Missing)).collect()
        } else {
            given.collect()
        };
        schema.encode_row(&cells, out).map_err(|e| e.at_row(i as u64 + 1))?;
    }
    Ok(Rows { x, ..Rows::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_type_and_content() {
        let kind = |t: Option<&str>, body: &[u8]| Kind::of(t, body).unwrap();
        assert_eq!(kind(Some("application/json; charset=utf-8"), b"a,b"), Kind::Json);
        assert_eq!(kind(Some("application/x-www-form-urlencoded"), b"a,b\n1,2"), Kind::Csv);
        assert_eq!(kind(None, b" [1]"), Kind::Json);
        assert_eq!(kind(None, b"{\"a\":\n1}"), Kind::Json);
        assert_eq!(kind(None, b"{\"a\":1}\n{\"a\":2}\n"), Kind::JsonLines);
        assert_eq!(kind(None, b"\x89PNG\r\n"), Kind::Image);
        assert_eq!(kind(None, b"\xff\xff\xff\xff\0"), Kind::Arrow);
        assert!(Kind::of(None, b"\x1f\x8b..").is_err() && Kind::of(Some("text/csv"), b"PK\x03\x04").is_err());
    }

    #[test]
    fn json_of_any_shape_becomes_lines() {
        let lines = |text: &str| match json_lines(text.as_bytes()).map_err(|e| e.message)? {
            Lines::Objects(lines) => Ok::<_, String>(String::from_utf8(lines).unwrap()),
            Lines::Arrays(rows) => Ok(format!("{}", rows.len())),
        };
        assert_eq!(lines(r#"[{"a": 0.1},{"a":null}]"#).unwrap(), "{\"a\":0.1}\n{\"a\":null}\n");
        assert_eq!(lines(r#"{"rows":[{"a":1}]}"#).unwrap(), "{\"a\":1}\n");
        assert_eq!(lines(r#"{"rows":3,"b":1}"#).unwrap(), "{\"b\":1,\"rows\":3}\n");
        assert_eq!(lines("[[1,2],[3,4]]").unwrap(), "2");
        for bad in ["", "3", "[1]", "[{},[]]", "[", &"[".repeat(10_000)] {
            assert!(lines(bad).is_err(), "{}", &bad[..bad.len().min(20)]);
        }
    }
}
