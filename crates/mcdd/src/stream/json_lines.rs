//! Predictions as JSON Lines.

use std::io::{self, Write};

use serde_json::Map;

use super::writer::{Layout, Writer};
use crate::error::Result;
use crate::model::Predictions;

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

    fn block(&mut self, p: &Predictions, names: &[String]) -> io::Result<()> {
        self.buffer.clear();
        let classes = self.layout.classes;
        for i in 0..p.rows() {
            let mut row = Map::new();
            let label = p.class.get(i).map(|&c| classes[c as usize].clone());
            if self.layout.columns.names {
                row.insert("image".into(), names.get(i).cloned().into());
            }
            row.insert("label".into(), label.into());
            row.insert("verdict".into(), self.layout.verdict(p.confidence[i]).into());
            row.insert("confidence".into(), p.confidence[i].into());
            row.insert("p_value".into(), p.p_value[i].into());
            for (name, values) in self.layout.by_class(p, i) {
                let by_class: Map<_, _> = classes.iter().cloned().zip(values.iter().map(|&v| v.into())).collect();
                row.insert(name.into(), by_class.into());
            }
            serde_json::to_writer(&mut self.buffer, &row)?;
            self.buffer.push(b'\n');
        }
        self.to.write_all(&self.buffer)
    }
}

impl<W: Write> Writer for JsonLines<'_, W> {
    fn write(&mut self, predictions: &Predictions, names: &[String]) -> Result<()> {
        self.block(predictions, names).map_err(|e| self.layout.error(e))
    }

    fn finish(&mut self) -> Result<()> {
        self.to.flush().map_err(|e| self.layout.error(e))
    }
}
