//! JSON Lines: an object on each line, whose keys are the columns.
//!
//! A key that a row lacks is a missing cell, as is null. Not every row needs to have every key, so the columns are those
//! of all rows: for training the whole file is looked through first, and for prediction as much of it as it takes to find
//! the columns of the model.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::cell::Cell;
use super::column::{ColumnBuilder, Want};
use super::delimited::{MAX_COLUMNS, newline_of};
use super::input::{Input, RowSource};
use super::libsvm::most_cells;
use super::lines::Lines;
use super::refused::RowLog;
use super::text::{Notices, count, list, quoted};
use crate::error::{Error, Result, Row};

/// How far into a stream columns are looked for.
const LOOK: usize = 1 << 24;

/// Whether a text is JSON, by its first characters.
pub(crate) fn looks_like(prefix: &[u8]) -> bool {
    let start = prefix.trim_ascii_start();
    match start.first() {
        Some(b'{') => matches!(start[1..].trim_ascii_start().first(), None | Some(b'"' | b'}')),
        Some(b'[') => start[1..].trim_ascii_start().first() == Some(&b'{'),
        _ => false,
    }
}

/// Rows of JSON Lines.
pub(crate) struct JsonLines {
    /// The content, until the first row is read.
    input: Option<Input>,
    skip: usize,
    lines: Lines,
    keys: Keys,
    /// Whether the keys are those of all rows; else other keys are left out.
    all: bool,
    rows: u64,
    written: u64,
    /// The row that last wrote each column.
    writer: Vec<u64>,
    /// A few of the keys that were left out, and how many there were.
    left_out: Vec<String>,
    log: RowLog,
}

/// The columns, in the order of their appearance.
#[derive(Default)]
struct Keys {
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl Keys {
    /// The place of a key, which is most often the one after the last.
    fn find(&self, key: &str, next: usize) -> Option<usize> {
        if self.names.get(next).is_some_and(|name| name == key) {
            return Some(next);
        }
        self.places.get(key).copied()
    }

    fn add(&mut self, key: &str) {
        if !self.places.contains_key(key) {
            self.places.insert(key.to_owned(), self.names.len());
            self.names.push(key.to_owned());
        }
    }
}

/// Opens JSON Lines whose content starts at byte `skip` (after a byte-order mark). The columns are those of the first
/// rows.
pub(crate) fn open(mut input: Input, skip: usize, log: RowLog) -> Result<JsonLines> {
    let file = Arc::clone(&input.file);
    // A few whole lines are needed, and lines can be long.
    input.lengthen(4, newline_of(&input.prefix), LOOK)?;
    if input.prefix[skip..].trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::data("it is a JSON array, and not a row on each line")
            .at_file(&file)
            .hint("write one object on each line (JSON Lines), e.g. with `jq -c '.[]'`"));
    }
    let nothing: Box<dyn std::io::Read + Send> = Box::new(std::io::empty());
    let mut rows = JsonLines {
        lines: Lines::new(nothing, file, b'\n'),
        input: Some(input),
        skip,
        keys: Keys::default(),
        all: false,
        rows: 0,
        written: 0,
        writer: Vec::new(),
        left_out: Vec::new(),
        log,
    };
    rows.scan_prefix()?;
    Ok(rows)
}

impl JsonLines {
    pub(crate) fn names(&self) -> &[String] {
        &self.keys.names
    }

    /// The keys of the rows in the prefix. An error of the first row is returned, and others when their rows are read.
    fn scan_prefix(&mut self) -> Result<()> {
        let Some(input) = &self.input else { return Ok(()) };
        let prefix = &input.prefix[self.skip.min(input.prefix.len())..];
        let newline = newline_of(prefix);
        let end = match input.whole {
            true => prefix.len(),
            false => memchr::memrchr(newline, prefix).unwrap_or(prefix.len()),
        };
        let text = std::io::Cursor::new(prefix[..end].to_vec());
        let mut lines = Lines::new(Box::new(text), Arc::clone(&input.file), newline);
        match scan(&mut lines, &mut self.keys, None, self.log.passes_over()) {
            Err(error) if error.row() == Some(1) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Goes to the next line that is not blank.
fn next_line(lines: &mut Lines) -> Result<bool> {
    while lines.advance()? {
        if !lines.current().trim_ascii().is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds the keys of all rows, or until the `wanted` are there. `pass_over`: rows that cannot be used are passed over, unless
/// there are no others.
fn scan(lines: &mut Lines, keys: &mut Keys, wanted: Option<&[&str]>, pass_over: bool) -> Result<()> {
    let (mut row, mut first) = (0, None);
    while next_line(lines)? {
        row += 1;
        let at = Row::at_line(row, lines.line());
        let mut next = 0;
        let read = each(lines.current(), lines.file(), at, |key, _| {
            match keys.find(key, next) {
                Some(place) => next = place + 1,
                None if keys.names.len() == MAX_COLUMNS => {
                    return Err(Error::data(format!("there are more than {MAX_COLUMNS} keys"))
                        .hint("give the same keys in every row"));
                }
                None => keys.add(key),
            }
            Ok(())
        });
        match read {
            Err(error) if !pass_over => return Err(error),
            Err(error) => {
                first.get_or_insert(error);
            }
            Ok(()) => {}
        }
        if wanted.is_some_and(|wanted| wanted.iter().all(|name| keys.places.contains_key(*name))) {
            break;
        }
    }
    match first {
        Some(error) if keys.names.is_empty() => Err(error),
        _ => Ok(()),
    }
}

impl RowSource for JsonLines {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        if let Some(input) = self.input.take() {
            let (newline, file) = (newline_of(&input.prefix), Arc::clone(&input.file));
            self.lines = Lines::new(input.into_read(self.skip), file, newline);
            self.writer = vec![0; columns.len()];
        }
        self.log.clear();
        let mut rows = 0;
        while rows < max && next_line(&mut self.lines)? {
            self.rows += 1;
            if self.log.passes_over()
                && let Err(error) = check(&self.lines, self.rows)
            {
                self.log.refuse(error)?;
                continue;
            }
            self.log.lines.push(self.lines.line());
            self.append(columns)?;
            rows += 1;
        }
        Ok(rows)
    }

    fn log(&mut self) -> Option<&mut RowLog> {
        Some(&mut self.log)
    }

    fn look_for(&mut self, wanted: Option<&[&str]>) -> Result<Option<Vec<String>>> {
        let Some(input) = &mut self.input else { return Ok(None) };
        let found = wanted.is_some_and(|wanted| wanted.iter().all(|name| self.keys.places.contains_key(*name)));
        if !found && !input.whole {
            if input.again {
                let again = input.reopen()?.decoded()?;
                let newline = newline_of(&again.prefix);
                let mut lines = Lines::new(again.into_read(self.skip), Arc::clone(&input.file), newline);
                scan(&mut lines, &mut self.keys, wanted, self.log.passes_over())?;
            } else {
                input.lengthen(usize::MAX, b'\n', LOOK)?;
                self.scan_prefix()?;
            }
        }
        self.all = wanted.is_none();
        Ok(Some(self.keys.names.clone()))
    }

    fn notices(&self) -> Notices {
        if self.left_out.is_empty() {
            return Notices::new();
        }
        let keys = count(self.left_out.len(), "key");
        vec![format!("{keys} that no row of the start has ignored: {}", list(&self.left_out))]
    }
}

impl JsonLines {
    fn append(&mut self, columns: &mut [ColumnBuilder]) -> Result<()> {
        let (row, file) = (Row::at_line(self.rows, self.lines.line()), Arc::clone(self.lines.file()));
        let (keys, writer, left_out, all, number) =
            (&self.keys, &mut self.writer, &mut self.left_out, self.all, self.rows);
        let (mut next, mut written) = (0, 0);
        each(self.lines.current(), &file, row, |key, value| {
            let Some(place) = keys.find(key, next) else {
                if all {
                    return Err(Error::data(format!("the key is in none of the first {} MiB", LOOK >> 20))
                        .hint("give the file itself, not a stream; or every key in the first row, with null"));
                }
                if left_out.len() < MOST_LEFT_OUT && !left_out.iter().any(|k| k == key) {
                    left_out.push(key.to_owned());
                }
                return Ok(());
            };
            next = place + 1;
            written += 1;
            let (Some(column), Some(last)) = (columns.get_mut(place), writer.get_mut(place)) else { return Ok(()) };
            if std::mem::replace(last, number) == number {
                return Err(twice());
            }
            match value {
                Value::Nested(what) if column.want != Want::Skip => {
                    let error = Error::data(format!("the value is {what}"))
                        .hint(format!("give a number, a text, true, false or null; or give `drop` {}", quoted(key)));
                    column.refuse(error.at_file(&file).at_row(row).at_column(key))
                }
                value => column.push_cell(value.cell(), row),
            }
        })?;
        self.written += written;
        if self.all && self.rows.saturating_mul(columns.len() as u64) > most_cells(self.written) {
            return Err(Error::data(format!(
                "the rows so far have {} columns, and {} cells are written",
                columns.len(),
                self.written
            ))
            .at_file(&file)
            .at_row(row)
            .hint("data as sparse as this is not supported: give the same keys in every row"));
        }
        for (column, last) in columns.iter_mut().zip(&self.writer) {
            if *last != number {
                column.push_cell(Cell::Missing, row)?;
            }
        }
        Ok(())
    }
}

fn twice() -> Error {
    Error::data("the key is given twice").hint("give each key once in a row")
}

/// Checks that the current line is an object, before its cells go to the columns.
fn check(lines: &Lines, row: u64) -> Result<()> {
    let mut keys = HashSet::new();
    each(lines.current(), lines.file(), Row::at_line(row, lines.line()), |key, _| {
        if keys.insert(key.to_owned()) { Ok(()) } else { Err(twice()) }
    })
}

/// How many of the keys that are left out are shown.
const MOST_LEFT_OUT: usize = 50;

/// A value of an object.
enum Value<'a> {
    Missing,
    Bool(bool),
    Int(i64),
    Uint(u64),
    F64(f64),
    Text(Cow<'a, str>),
    Nested(&'static str),
}

impl Value<'_> {
    fn cell(&self) -> Cell<'_> {
        match self {
            Value::Missing | Value::Nested(_) => Cell::Missing,
            Value::Bool(value) => Cell::Bool(*value),
            Value::Int(value) => Cell::Int(*value),
            Value::Uint(value) => Cell::Uint(*value),
            Value::F64(value) => Cell::F64(*value),
            Value::Text(text) => Cell::Text(text),
        }
    }
}

/// Calls `cell` with each key and value of a line. Errors get their place.
fn each(line: &[u8], file: &Path, row: Row, cell: impl FnMut(&str, Value<'_>) -> Result<()>) -> Result<()> {
    let mut failed = None;
    let mut json = serde_json::Deserializer::from_slice(line);
    let read = json.deserialize_any(Object { cell, failed: &mut failed }).and_then(|()| json.end());
    match (read, failed) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(error)) => Err(error.at_file(file).at_row(row)),
        (Err(error), None) => {
            let nan = memchr::memmem::find(line, b"NaN").is_some();
            let what = match error.classify() {
                _ if line.trim_ascii_start().first() != Some(&b'{') => "the line is not a JSON object".to_owned(),
                serde_json::error::Category::Eof => "the line ends within its JSON object".to_owned(),
                _ => format!("the line is not a JSON object (at character {})", error.column()),
            };
            Err(Error::data(what).at_file(file).at_row(row).hint(if nan {
                "write null for a missing value: NaN is not JSON"
            } else {
                "write one object on each line, e.g. with `jq -c`; null is a missing cell"
            }))
        }
    }
}

/// Visits an object; the first error of `cell` goes to `failed`.
struct Object<'f, F> {
    cell: F,
    failed: &'f mut Option<Error>,
}

impl<'de, F: FnMut(&str, Value<'_>) -> Result<()>> Visitor<'de> for Object<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            let value = map.next_value::<Value<'de>>()?;
            let name = match key.trim() {
                "" => "\"\"",
                name => name,
            };
            if let Err(error) = (self.cell)(name, value) {
                *self.failed = Some(error.at_column(name));
                return Err(serde::de::Error::custom("a cell"));
            }
        }
        Ok(())
    }
}

/// A key, without a copy where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Value::deserialize(from)? {
            Value::Text(text) => Ok(Key(text)),
            _ => Err(serde::de::Error::custom("a key is not a text")),
        }
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Value<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value<'de>, E> {
                Ok(Value::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Value<'de>, E> {
                Ok(Value::Int(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Value<'de>, E> {
                Ok(Value::Uint(value))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Value<'de>, E> {
                Ok(Value::F64(value))
            }

            fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
                Ok(Value::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
                Ok(Value::Text(Cow::Borrowed(text)))
            }

            fn visit_unit<E>(self) -> Result<Value<'de>, E> {
                Ok(Value::Missing)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value<'de>, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Value::Nested("a list"))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Value::Nested("an object"))
            }
        }

        from.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognized() {
        for (text, want) in [
            ("{\"a\":1}\n", true),
            ("\n  {\n", true),
            ("{}\n", true),
            ("[{\"a\":1}]", true),
            ("[ \n{", true),
            ("{a},{b}\n", false),
            ("[1,2]\n", false),
            ("a,{\"b\"\n", false),
            ("", false),
        ] {
            assert_eq!(looks_like(text.as_bytes()), want, "{text:?}");
        }
    }

    #[test]
    fn values_and_mistakes() {
        let cells = |line: &str| {
            let mut all = Vec::new();
            each(line.as_bytes(), Path::new("a.jsonl"), Row::at_line(2, 3), |key, value| {
                if let Value::Nested(what) = value {
                    return Err(Error::data(what));
                }
                all.push(format!("{key}={:?}", value.cell()));
                Ok(())
            })
            .map(|()| all.join(" "))
        };
        let line = r#" {"a":1,"b":-2,"c":1.5,"d\n":"x\ty","e":null,"f":true, " g ":"", "":18446744073709551615} "#;
        let want = "a=Uint(1) b=Int(-2) c=F64(1.5) d=Text(\"x\\ty\") e=Missing f=Bool(true) g=Text(\"\") \
                    \"\"=Uint(18446744073709551615)";
        assert_eq!(cells(line).unwrap(), want);
        for (line, column, part) in [
            ("{\"a\":[1,{\"b\":2}]}", Some("a"), "a list"),
            ("{\"x\":1,\"a\":{}}", Some("a"), "an object"),
            ("{\"a\":1", None, "ends within"),
            ("{\"a\":1,}", None, "at character"),
            ("{\"a\":1} 2", None, "at character"),
            ("3", None, "not a JSON object"),
            ("{\"a\":NaN}", None, "not a JSON object"),
        ] {
            let e = cells(line).unwrap_err();
            assert!(e.to_string().contains(part), "{e}");
            assert_eq!((e.row(), e.line(), e.column()), (Some(2), Some(3), column), "{e}");
        }
        assert!(cells("{\"a\":NaN}").unwrap_err().hint_text().unwrap().contains("null"));
        assert!(cells(&"[".repeat(100_000)).is_err());
        assert!(cells(&format!("{{\"a\":{}", "[".repeat(100_000))).is_err());
    }
}
