//! Predictions as JSON: an object on each line, or an array of objects.

use std::io::{self, Write};

use serde::Serialize;

use super::writer::{Block, Entry, FAILED, Layout, Writer};
use crate::data::KeptCell;
use crate::error::Result;

/// Writes a JSON object for each row, in the order of the columns.
pub struct Json<'a, W: Write> {
    layout: Layout<'a>,
    /// Whether the objects are the elements of an array; else each is a line.
    array: bool,
    /// Whether an object has been written.
    begun: bool,
    to: W,
    /// A block is formatted here and written at once.
    buffer: Vec<u8>,
}

impl<'a, W: Write> Json<'a, W> {
    /// JSON Lines: a line for each row.
    pub fn lines(layout: Layout<'a>, to: W) -> Self {
        Json { layout, array: false, begun: false, to, buffer: Vec::new() }
    }

    /// One array of all rows.
    pub fn array(layout: Layout<'a>, to: W) -> Self {
        Json { layout, array: true, begun: false, to, buffer: Vec::new() }
    }

    fn block(&mut self, block: Block<'_>) -> io::Result<()> {
        self.buffer.clear();
        let Json { layout, buffer, .. } = self;
        let (p, classes, columns) = (block.predictions, layout.classes, layout.columns);
        for entry in block.entries(columns) {
            if self.array {
                buffer.extend_from_slice(if self.begun { b",\n" } else { b"[\n" });
                self.begun = true;
            }
            let mut object = Object::new(buffer);
            match entry {
                Entry::Row(i) => {
                    for (field, column) in layout.kept.iter().zip(block.kept) {
                        object.cell(&field.name, &column.cell(i))?;
                    }
                    if columns.names {
                        object.put("image", &block.names.get(i))?;
                    }
                    object.put("label", &p.class.get(i).map(|&c| &classes[c as usize]))?;
                    object.put("verdict", layout.verdict(p.confidence[i]))?;
                    object.put("confidence", &p.confidence[i])?;
                    object.put("p_value", &p.p_value[i])?;
                    for (name, values) in layout.by_class(p, i) {
                        let mut inner = object.open(name)?;
                        for (class, value) in classes.iter().zip(values) {
                            inner.put(class, value)?;
                        }
                        inner.close();
                    }
                    if columns.errors {
                        object.put("error", &())?;
                    }
                }
                Entry::Bad(image) => {
                    if columns.names {
                        object.put("image", &image.name)?;
                    }
                    object.put("label", &())?;
                    object.put("verdict", FAILED)?;
                    object.put("confidence", &())?;
                    object.put("p_value", &())?;
                    object.put("error", &image.reason)?;
                }
            }
            object.close();
            if !self.array {
                buffer.push(b'\n');
            }
        }
        self.to.write_all(&self.buffer)
    }
}

/// An object that is being written.
struct Object<'b> {
    to: &'b mut Vec<u8>,
    first: bool,
}

impl<'b> Object<'b> {
    fn new(to: &'b mut Vec<u8>) -> Self {
        to.push(b'{');
        Object { to, first: true }
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.to.push(b',');
        }
        serde_json::to_writer(&mut *self.to, key)?;
        self.to.push(b':');
        Ok(())
    }

    fn put<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> io::Result<()> {
        self.key(key)?;
        Ok(serde_json::to_writer(&mut *self.to, value)?)
    }

    /// A cell of the input. A number that JSON cannot write is null.
    fn cell(&mut self, key: &str, cell: &KeptCell<'_>) -> io::Result<()> {
        match cell {
            KeptCell::Text(text) => self.put(key, text.as_ref()),
            KeptCell::Literal(text) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
                self.key(key)?;
                self.to.extend_from_slice(text.as_bytes());
                Ok(())
            }
            KeptCell::Null | KeptCell::Literal(_) => self.put(key, &()),
        }
    }

    fn open(&mut self, key: &str) -> io::Result<Object<'_>> {
        self.key(key)?;
        Ok(Object::new(self.to))
    }

    fn close(self) {
        self.to.push(b'}');
    }
}

impl<W: Write> Writer for Json<'_, W> {
    fn write(&mut self, block: Block<'_>) -> Result<()> {
        self.block(block).map_err(|e| self.layout.error(e))
    }

    fn finish(&mut self) -> Result<()> {
        let end: &[u8] = match (self.array, self.begun) {
            (false, _) => b"",
            (true, true) => b"\n]\n",
            (true, false) => b"[]\n",
        };
        self.to.write_all(end).and_then(|()| self.to.flush()).map_err(|e| self.layout.error(e))
    }
}
