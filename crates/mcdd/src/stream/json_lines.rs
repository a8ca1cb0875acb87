//! Predictions as JSON Lines.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::writer::{Block, Entry, FAILED, Layout, Writer};
use crate::error::Result;

/// Writes a JSON object on each line.
pub struct JsonLines<'a, W: Write> {
    layout: Layout<'a>,
    to: W,
    /// A block is formatted here and written at once.
    buffer: Vec<u8>,
}

impl<'a, W: Write> JsonLines<'a, W> {
    /// Starts the output; nothing is written yet.
    pub fn new(layout: Layout<'a>, to: W) -> Self {
        JsonLines { layout, to, buffer: Vec::new() }
    }

    fn block(&mut self, block: Block<'_>) -> io::Result<()> {
        self.buffer.clear();
        let (p, classes, columns) = (block.predictions, self.layout.classes, self.layout.columns);
        for entry in block.entries(columns) {
            let mut row = Map::new();
            let i = match entry {
                Entry::Row(i) => i,
                Entry::Bad(image) => {
                    if columns.names {
                        row.insert("image".into(), image.name.clone().into());
                    }
                    row.insert("label".into(), Value::Null);
                    row.insert("verdict".into(), FAILED.into());
                    row.insert("confidence".into(), Value::Null);
                    row.insert("p_value".into(), Value::Null);
                    row.insert("error".into(), image.reason.clone().into());
                    serde_json::to_writer(&mut self.buffer, &row)?;
                    self.buffer.push(b'\n');
                    continue;
                }
            };
            let label = p.class.get(i).map(|&c| classes[c as usize].clone());
            if columns.names {
                row.insert("image".into(), block.names.get(i).cloned().into());
            }
            row.insert("label".into(), label.into());
            row.insert("verdict".into(), self.layout.verdict(p.confidence[i]).into());
            row.insert("confidence".into(), p.confidence[i].into());
            row.insert("p_value".into(), p.p_value[i].into());
            for (name, values) in self.layout.by_class(p, i) {
                let by_class: Map<_, _> = classes.iter().cloned().zip(values.iter().map(|&v| v.into())).collect();
                row.insert(name.into(), by_class.into());
            }
            if columns.errors {
                row.insert("error".into(), Value::Null);
            }
            serde_json::to_writer(&mut self.buffer, &row)?;
            self.buffer.push(b'\n');
        }
        self.to.write_all(&self.buffer)
    }
}

impl<W: Write> Writer for JsonLines<'_, W> {
    fn write(&mut self, block: Block<'_>) -> Result<()> {
        self.block(block).map_err(|e| self.layout.error(e))
    }

    fn finish(&mut self) -> Result<()> {
        self.to.flush().map_err(|e| self.layout.error(e))
    }
}
