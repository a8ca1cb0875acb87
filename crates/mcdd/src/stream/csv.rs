//! Predictions as comma-separated values.

use std::io::{self, Write};

use super::writer::{Layout, Writer};
use crate::error::Result;
use crate::model::Predictions;

/// Writes comma-separated values with a header.
pub struct Csv<'a, W: Write> {
    layout: Layout<'a>,
    /// The class names as cells.
    cells: Vec<String>,
    to: W,
    /// A block is formatted here and written at once.
    buffer: Vec<u8>,
}

impl<'a, W: Write> Csv<'a, W> {
    /// Writes the header.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(layout: Layout<'a>, mut to: W) -> Result<Self> {
        let names: Vec<String> = layout.names().iter().map(|n| csv_cell(n)).collect();
        writeln!(to, "{}", names.join(",")).map_err(|e| layout.error(e))?;
        let cells = layout.classes.iter().map(|c| csv_cell(c)).collect();
        Ok(Csv { layout, cells, to, buffer: Vec::new() })
    }

    fn block(&mut self, p: &Predictions, names: &[String]) -> io::Result<()> {
        self.buffer.clear();
        for i in 0..p.rows() {
            let verdict = self.layout.verdict(p.confidence[i]);
            let label = p.class.get(i).map_or("", |&c| &self.cells[c as usize]);
            if self.layout.columns.names {
                write!(self.buffer, "{},", csv_cell(names.get(i).map_or("", String::as_str)))?;
            }
            write!(self.buffer, "{label},{verdict},{},{}", p.confidence[i], p.p_value[i])?;
            for (_, values) in self.layout.by_class(p, i) {
                for v in values {
                    write!(self.buffer, ",{v}")?;
                }
            }
            self.buffer.push(b'\n');
        }
        self.to.write_all(&self.buffer)
    }
}

impl<W: Write> Writer for Csv<'_, W> {
    fn write(&mut self, predictions: &Predictions, names: &[String]) -> Result<()> {
        self.block(predictions, names).map_err(|e| self.layout.error(e))
    }

    fn finish(&mut self) -> Result<()> {
        self.to.flush().map_err(|e| self.layout.error(e))
    }
}

/// A CSV cell, quoted if necessary.
pub fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
