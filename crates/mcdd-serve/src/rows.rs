//! Rows of a request, as the network gets them.

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use mcdd::data::{Batch, Cell, Reader, Schema, Unseen};
use mcdd::model::Model;
use mcdd::stream;
use serde::Deserializer;
use serde::de::{self, DeserializeSeed, SeqAccess, Visitor};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, KnownFormat, Schema as Described, SchemaFormat, Type};
use utoipa::openapi::{ObjectBuilder, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::failure::{Answer, Failure};
use crate::room::Room;

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

/// A row in JSON, in the description of the routes: an object with the columns, or an array of values in their order.
pub(crate) struct Row;

impl PartialSchema for Row {
    fn schema() -> RefOr<Described> {
        let object = ObjectBuilder::new().schema_type(Type::Object);
        AnyOfBuilder::new().item(object).item(ArrayBuilder::new()).into()
    }
}

impl ToSchema for Row {}

/// Bytes, in the description of the routes.
pub(crate) struct Binary;

impl PartialSchema for Binary {
    fn schema() -> RefOr<Described> {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for Binary {}

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
pub(crate) fn read(model: &Model, kind: Kind, body: Vec<u8>, most: usize, room: &mut Room) -> Answer<Rows> {
    let schema = model.schema();
    if schema.image.is_some() {
        return image(model, kind, &body, room);
    }
    let options = mcdd::data::ReadOptions::default();
    let body = match kind {
        Kind::Image => return Err(Failure::bad("the model reads tables, and this is an image")),
        Kind::Json => {
            // The text of the rows and where each begins.
            room.take(body.len().saturating_mul(8))?;
            match json_lines(&body)? {
                Lines::Objects(lines) => lines,
                Lines::Arrays(rows) => return positional(schema, &rows, most, room),
            }
        }
        _ => body,
    };
    let reader = schema.reader_from_bytes(body, "request", &options)?;
    all(reader, most, room)
}

/// All rows of a reader, up to a limit.
fn all(mut reader: Reader, most: usize, room: &mut Room) -> Answer<Rows> {
    let (mut rows, mut count) = (Rows::default(), 0);
    let mut batch = Batch::default();
    while reader.next(BLOCK, &mut batch)? {
        let moved = batch.unseen_cells.drain(..).map(|cell| Unseen { row: cell.row + count, ..cell });
        rows.unseen.extend(moved);
        count += batch.rows;
        if count > most {
            return Err(Failure::too_large(format!("more than {most} rows; send them in several requests")));
        }
        room.take(4 * batch.x.len())?;
        rows.x.extend_from_slice(&batch.x);
        rows.names.append(&mut batch.names);
    }
    Ok(rows)
}

/// An image goes through a file, as the command reads it.
fn image(model: &Model, kind: Kind, body: &[u8], room: &mut Room) -> Answer<Rows> {
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
    let mut rows = all(reader, 1, room)
        .map_err(|e| Failure { message: e.message.replace(&*file.path().to_string_lossy(), "image"), ..e })?;
    rows.names = vec!["request".into(); rows.x.len() / model.schema().width().max(1)];
    Ok(rows)
}

/// JSON rows in another shape.
enum Lines<'a> {
    /// Objects, a line each.
    Objects(Vec<u8>),
    Arrays(Vec<&'a RawValue>),
}

/// A JSON array of objects or of arrays, one object, or `{"rows": […]}`. Rows stay text, which takes the least memory.
fn json_lines(body: &[u8]) -> Answer<Lines<'_>> {
    let invalid = |e: serde_json::Error| Failure::bad(format!("not valid JSON: {e}"));
    let expected =
        || Failure::bad("expected an array of rows: objects with the columns, or arrays of values in their order");
    let whole: &RawValue = serde_json::from_slice(body).map_err(invalid)?;
    let first = |row: &RawValue| row.get().as_bytes().first().copied();
    let rows: Vec<&RawValue> = match first(whole) {
        Some(b'[') => serde_json::from_str(whole.get()).map_err(invalid)?,
        Some(b'{') => {
            let fields: Result<Wrapped, _> = serde_json::from_str(whole.get());
            match fields {
                Ok(Wrapped { rows }) if first(rows) == Some(b'[') => {
                    serde_json::from_str(rows.get()).map_err(invalid)?
                }
                _ => vec![whole],
            }
        }
        _ => return Err(expected()),
    };
    if rows.iter().all(|row| first(row) == Some(b'[')) {
        return Ok(Lines::Arrays(rows));
    }
    if !rows.iter().all(|row| first(row) == Some(b'{')) {
        return Err(expected());
    }
    let mut lines = Vec::with_capacity(body.len());
    for row in &rows {
        // Line breaks of valid JSON are between its tokens.
        lines.extend(row.get().bytes().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }));
        lines.push(b'\n');
    }
    Ok(Lines::Objects(lines))
}

/// `{"rows": […]}`, and nothing else.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped<'a> {
    #[serde(borrow)]
    rows: &'a RawValue,
}

/// The elements of a JSON array, one by one into `out`: no more than there is room for, whatever the text has.
pub(crate) struct Elements<'o> {
    pub out: &'o mut Vec<Own>,
    /// An element that is not of the right type is an error with this text.
    pub fits: &'o dyn Fn(Cell<'_>) -> Result<Own, String>,
    pub most: usize,
    /// Whether arrays may be in arrays.
    pub nested: bool,
    pub depth: usize,
}

impl Elements<'_> {
    /// Reads a text.
    pub(crate) fn read(mut self, text: &RawValue) -> Answer<()> {
        let mut source = serde_json::Deserializer::from_str(text.get());
        DeserializeSeed::deserialize(&mut self, &mut source).map_err(|e| Failure::bad(e.to_string()))
    }

    fn push<E: de::Error>(&mut self, cell: Cell<'_>) -> Result<(), E> {
        if self.depth == 0 {
            return Err(E::custom("expected an array"));
        }
        if self.out.len() == self.most {
            return Err(E::custom(format!("more than {} elements", self.most)));
        }
        self.out.push((self.fits)(cell).map_err(E::custom)?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a cell: a number, a text, true, false or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.push(Cell::Missing)
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<(), E> {
        self.push(Cell::Bool(v))
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<(), E> {
        self.push(Cell::Int(v))
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<(), E> {
        self.push(i64::try_from(v).map_or(Cell::Uint(v), Cell::Int))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<(), E> {
        self.push(Cell::F64(v))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<(), E> {
        self.push(Cell::Text(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.depth > 0 && !self.nested {
            return Err(de::Error::custom("a cell is a number, a text, true, false or null"));
        }
        self.depth += 1;
        while list.next_element_seed(&mut *self)?.is_some() {}
        self.depth -= 1;
        Ok(())
    }
}

/// Rows whose cells stand in the order of the model's columns.
fn positional(schema: &Schema, rows: &[&RawValue], most: usize, room: &mut Room) -> Answer<Rows> {
    let mut encoder = Encoder::new(schema, rows.len(), most, room)?;
    let mut cells = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        cells.clear();
        let own = |cell: Cell<'_>| Ok(Own::from(cell));
        // One more than there are columns is read, so that the error names their number.
        let most = schema.columns.len() + 1;
        Elements { out: &mut cells, fits: &own, most, nested: false, depth: 0 }
            .read(row)
            .map_err(|e| Failure::bad(format!("row {}: {}", i + 1, e.message)))?;
        encoder.row(cells.iter().map(Own::cell).collect())?;
    }
    Ok(encoder.rows())
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

/// Encodes rows of cells in the order of the columns: of all of them, or of those that the model uses.
pub(crate) struct Encoder<'a> {
    schema: &'a Schema,
    used: usize,
    done: usize,
    x: Vec<f32>,
}

impl<'a> Encoder<'a> {
    /// For so many rows.
    pub(crate) fn new(schema: &'a Schema, rows: usize, most: usize, room: &mut Room) -> Answer<Encoder<'a>> {
        if rows > most {
            return Err(Failure::too_large(format!("more than {most} rows; send them in several requests")));
        }
        let values = rows.saturating_mul(schema.width());
        room.take(values.saturating_mul(4))?;
        let used = schema.columns.iter().filter(|c| c.kind.width() > 0).count();
        Ok(Encoder { schema, used, done: 0, x: vec![0.0; values] })
    }

    /// The next row.
    pub(crate) fn row(&mut self, cells: Vec<Cell<'_>>) -> Answer<()> {
        let cells = if cells.len() == self.used && self.used != self.schema.columns.len() {
            let mut given = cells.into_iter();
            let mut next = |c: &mcdd::data::SchemaColumn| if c.kind.width() > 0 { given.next() } else { None };
            self.schema.columns.iter().map(|c| next(c).unwrap_or(Cell::Missing)).collect()
        } else {
            cells
        };
        let width = self.schema.width();
        let out = self.x.get_mut(self.done * width..(self.done + 1) * width).ok_or_else(Failure::internal)?;
        self.done += 1;
        self.schema.encode_row(&cells, out).map_err(|e| e.at_row(self.done as u64))?;
        Ok(())
    }

    pub(crate) fn rows(self) -> Rows {
        Rows { x: self.x, ..Rows::default() }
    }
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
        assert_eq!(lines("[{\"a\":\n0.1},{\"a\":null}]").unwrap(), "{\"a\": 0.1}\n{\"a\":null}\n");
        assert_eq!(lines(r#"{"rows":[{"a":1}]}"#).unwrap(), "{\"a\":1}\n");
        assert_eq!(lines(r#"{"rows":3,"b":1}"#).unwrap(), "{\"rows\":3,\"b\":1}\n");
        assert_eq!(lines(r#"{"rows":3}"#).unwrap(), "{\"rows\":3}\n");
        assert_eq!(lines("[[1,2],[3,4]]").unwrap(), "2");
        for bad in ["", "3", "[1]", "[{},[]]", "[", &"[".repeat(10_000)] {
            assert!(lines(bad).is_err(), "{}", &bad[..bad.len().min(20)]);
        }
    }
}
