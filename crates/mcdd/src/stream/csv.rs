//! Predictions as comma-separated values.

use std::io::{self, Write};

use super::writer::{Block, Entry, FAILED, Layout, Writer};
use crate::error::Result;

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

    fn block(&mut self, block: Block<'_>) -> io::Result<()> {
        self.buffer.clear();
        let (p, columns) = (block.predictions, self.layout.columns);
        for entry in block.entries(columns) {
            let i = match entry {
                Entry::Row(i) => i,
                Entry::Bad(image) => {
                    if columns.names {
                        write!(self.buffer, "{},", csv_cell(&image.name))?;
                    }
                    let by_class = self.cells.len() * (usize::from(columns.probs) + usize::from(columns.distances));
                    let empty = ",".repeat(by_class);
                    writeln!(self.buffer, ",{FAILED},,{empty},{}", csv_cell(&image.reason))?;
                    continue;
                }
            };
            let verdict = self.layout.verdict(p.confidence[i]);
            let label = p.class.get(i).map_or("", |&c| &self.cells[c as usize]);
            if columns.names {
                write!(self.buffer, "{},", csv_cell(block.names.get(i).map_or("", String::as_str)))?;
            }
            write!(self.buffer, "{label},{verdict},{},{}", p.confidence[i], p.p_value[i])?;
            for (_, values) in self.layout.by_class(p, i) {
                for v in values {
                    write!(self.buffer, ",{v}")?;
                }
            }
            self.buffer.extend_from_slice(if columns.errors { b",\n" } else { b"\n" });
        }
        self.to.write_all(&self.buffer)
    }
}

impl<W: Write> Writer for Csv<'_, W> {
    fn write(&mut self, block: Block<'_>) -> Result<()> {
        self.block(block).map_err(|e| self.layout.error(e))
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
