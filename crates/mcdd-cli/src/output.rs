//! Predictions as CSV, JSON lines or Parquet, block by block.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use clap::ValueEnum;
use mcdd::model::{Predictions, Threshold};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Csv,
    Jsonl,
    Parquet,
}

/// Which columns there are besides label, verdict, confidence and p_value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns {
    pub probs: bool,
    pub distances: bool,
    /// Where each row is from: `image`, before the others.
    pub names: bool,
}

/// Writes predictions in one of the formats.
pub struct Writer<'a, W: Write + Send> {
    classes: &'a [String],
    /// The classes as CSV cells.
    cells: Vec<String>,
    threshold: Threshold,
    columns: Columns,
    sink: Sink<W>,
    /// A block is made here and written at once.
    buffer: Vec<u8>,
}

enum Sink<W: Write + Send> {
    Csv(W),
    Jsonl(W),
    Parquet(Box<ArrowWriter<W>>, Arc<Schema>),
}

/// The word of the verdict column.
pub fn verdict(known: bool) -> &'static str {
    if known { "known" } else { "unknown" }
}

impl<'a, W: Write + Send> Writer<'a, W> {
    /// Starts the output: the header, where the format has one.
    /// `classes` are the names of the classes that rows are put in; none where they are put in none.
    pub fn new(
        classes: &'a [String],
        threshold: Threshold,
        format: Format,
        columns: Columns,
        mut to: W,
    ) -> Result<Self> {
        let names = names(classes, columns);
        let sink = match format {
            Format::Csv => {
                let quoted: Vec<String> = names.iter().map(|n| csv_cell(n)).collect();
                writeln!(to, "{}", quoted.join(","))?;
                Sink::Csv(to)
            }
            Format::Jsonl => Sink::Jsonl(to),
            Format::Parquet => {
                let texts = 2 + usize::from(columns.names);
                let kind = |i: usize| if i < texts { DataType::Utf8 } else { DataType::Float64 };
                let fields: Vec<Field> =
                    names.iter().enumerate().map(|(i, n)| Field::new(n, kind(i), i + 1 < texts)).collect();
                let schema = Arc::new(Schema::new(fields));
                let properties = WriterProperties::builder()
                    .set_compression(Compression::SNAPPY)
                    .set_max_row_group_row_count(Some(1 << 16))
                    .build();
                Sink::Parquet(Box::new(ArrowWriter::try_new(to, Arc::clone(&schema), Some(properties))?), schema)
            }
        };
        let cells = classes.iter().map(|c| csv_cell(c)).collect();
        Ok(Writer { classes, cells, threshold, columns, sink, buffer: Vec::new() })
    }

    /// Adds a block of rows, with their names where they are wanted.
    pub fn write(&mut self, p: &Predictions, named: &[String]) -> Result<()> {
        self.buffer.clear();
        match &mut self.sink {
            Sink::Csv(to) => {
                for i in 0..p.rows() {
                    let verdict = verdict(self.threshold.known(p.confidence[i]));
                    let label = p.class.get(i).map_or("", |&c| &self.cells[c as usize]);
                    if self.columns.names {
                        write!(self.buffer, "{},", csv_cell(named.get(i).map_or("", String::as_str)))?;
                    }
                    write!(self.buffer, "{label},{verdict},{},{}", p.confidence[i], p.p_value[i])?;
                    for (_, values) in extras(p, i, self.columns) {
                        for v in values {
                            write!(self.buffer, ",{v}")?;
                        }
                    }
                    self.buffer.push(b'\n');
                }
                to.write_all(&self.buffer)?;
            }
            Sink::Jsonl(to) => {
                for i in 0..p.rows() {
                    let mut row = serde_json::Map::new();
                    let label = p.class.get(i).map(|&c| self.classes[c as usize].clone());
                    if self.columns.names {
                        row.insert("image".into(), named.get(i).cloned().into());
                    }
                    row.insert("label".into(), label.into());
                    row.insert("verdict".into(), verdict(self.threshold.known(p.confidence[i])).into());
                    row.insert("confidence".into(), p.confidence[i].into());
                    row.insert("p_value".into(), p.p_value[i].into());
                    for (name, values) in extras(p, i, self.columns) {
                        let of: serde_json::Map<_, _> =
                            self.classes.iter().cloned().zip(values.iter().map(|&v| v.into())).collect();
                        row.insert(name.into(), of.into());
                    }
                    serde_json::to_writer(&mut self.buffer, &row)?;
                    self.buffer.push(b'\n');
                }
                to.write_all(&self.buffer)?;
            }
            Sink::Parquet(writer, schema) => {
                let rows = 0..p.rows();
                let label = rows.clone().map(|i| p.class.get(i).map(|&c| self.classes[c as usize].as_str()));
                let verdicts = rows.clone().map(|i| verdict(self.threshold.known(p.confidence[i])));
                let mut arrays: Vec<ArrayRef> = Vec::new();
                if self.columns.names {
                    arrays.push(Arc::new(StringArray::from_iter(rows.clone().map(|i| named.get(i)))));
                }
                let usual: [ArrayRef; 4] = [
                    Arc::new(StringArray::from_iter(label)),
                    Arc::new(StringArray::from_iter_values(verdicts)),
                    Arc::new(Float64Array::from(p.confidence.clone())),
                    Arc::new(Float64Array::from(p.p_value.clone())),
                ];
                arrays.extend(usual);
                let wide = [(self.columns.probs, &p.posterior), (self.columns.distances, &p.distance)];
                for (_, values) in wide.iter().filter(|(wanted, _)| *wanted) {
                    for k in 0..self.classes.len() {
                        let column = values.iter().skip(k).step_by(self.classes.len());
                        arrays.push(Arc::new(Float64Array::from_iter_values(column.copied())));
                    }
                }
                writer.write(&RecordBatch::try_new(Arc::clone(schema), arrays)?)?;
            }
        }
        Ok(())
    }

    /// Ends the output.
    pub fn finish(self) -> Result<()> {
        match self.sink {
            Sink::Csv(mut to) | Sink::Jsonl(mut to) => to.flush()?,
            Sink::Parquet(writer, _) => {
                writer.into_inner()?.flush()?;
            }
        }
        Ok(())
    }
}

fn names(classes: &[String], columns: Columns) -> Vec<String> {
    let mut names: Vec<String> = columns.names.then(|| "image".to_owned()).into_iter().collect();
    names.extend(["label", "verdict", "confidence", "p_value"].map(String::from));
    for (prefix, wanted) in [("prob", columns.probs), ("distance", columns.distances)] {
        if wanted {
            names.extend(classes.iter().map(|c| format!("{prefix}:{c}")));
        }
    }
    names
}

fn extras(p: &Predictions, row: usize, columns: Columns) -> impl Iterator<Item = (&'static str, &[f64])> {
    let probs = columns.probs.then(|| ("probs", p.posterior(row)));
    let distances = if columns.distances { p.distance(row).map(|d| ("distances", d)) } else { None };
    probs.into_iter().chain(distances)
}

/// A cell, quoted where it must be.
pub fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
