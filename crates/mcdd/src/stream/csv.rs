//! Predictions as comma-separated or tab-separated values.

use std::io::{self, Write};

use super::writer::{Block, Entry, FAILED, Layout, Writer};
use crate::error::Result;

/// Writes separated values with a header.
pub struct Csv<'a, W: Write> {
    layout: Layout<'a>,
    separator: char,
    /// The class names as cells.
    cells: Vec<String>,
    to: W,
    /// A block is formatted here and written at once.
    buffer: Vec<u8>,
}

impl<'a, W: Write> Csv<'a, W> {
    /// Writes the header; values are separated by commas.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(layout: Layout<'a>, to: W) -> Result<Self> {
        Self::with_separator(layout, ',', to)
    }

    /// Writes the header; values are separated by `separator`.
    ///
    /// # Errors
    /// If writing fails.
    pub fn with_separator(layout: Layout<'a>, separator: char, mut to: W) -> Result<Self> {
        let kept = layout.kept.iter().map(|field| field.name.clone());
        let names: Vec<String> = kept.chain(layout.names()).map(|n| quoted(&n, separator)).collect();
        writeln!(to, "{}", names.join(&separator.to_string())).map_err(|e| layout.error(e))?;
        let cells = layout.classes.iter().map(|c| quoted(c, separator)).collect();
        Ok(Csv { layout, separator, cells, to, buffer: Vec::new() })
    }

    fn block(&mut self, block: Block<'_>) -> io::Result<()> {
        self.buffer.clear();
        let s = self.separator;
        let separators = |n: usize| s.to_string().repeat(n);
        let (p, columns) = (block.predictions, self.layout.columns);
        let mut separator = [0; 4];
        for entry in block.entries(columns) {
            let i = match entry {
                Entry::Row(i) => i,
                Entry::Bad(image) => {
                    self.buffer.extend_from_slice(separators(block.kept.len()).as_bytes());
                    if columns.names {
                        write!(self.buffer, "{}{s}", quoted(&image.name, s))?;
                    }
                    let by_class = self.cells.len() * (usize::from(columns.probs) + usize::from(columns.distances));
                    let empty = separators(3 + by_class);
                    writeln!(self.buffer, "{s}{FAILED}{empty}{}", quoted(&image.reason, s))?;
                    continue;
                }
            };
            let separator = s.encode_utf8(&mut separator).as_bytes();
            for column in block.kept {
                self.buffer.extend_from_slice(quoted(column.cell(i).text(), s).as_bytes());
                self.buffer.extend_from_slice(separator);
            }
            if columns.names {
                let name = block.names.get(i).map_or("", String::as_str);
                self.buffer.extend_from_slice(quoted(name, s).as_bytes());
                self.buffer.extend_from_slice(separator);
            }
            let label = p.class.get(i).map_or("", |&c| &self.cells[c as usize]);
            self.buffer.extend_from_slice(label.as_bytes());
            self.buffer.extend_from_slice(separator);
            self.buffer.extend_from_slice(self.layout.verdict(p.confidence[i]).as_bytes());
            let by_class = self.layout.by_class(p, i).flat_map(|(_, values)| values);
            for &value in [&p.confidence[i], &p.p_value[i]].into_iter().chain(by_class) {
                self.buffer.extend_from_slice(separator);
                write_number(&mut self.buffer, value)?;
            }
            if columns.errors {
                self.buffer.extend_from_slice(separator);
            }
            self.buffer.push(b'\n');
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

/// Writes a number as `{value}` would, but faster.
fn write_number(out: &mut Vec<u8>, value: f64) -> io::Result<()> {
    // Outside of this range ryu writes an exponent.
    if (1e-5..1e15).contains(&value.abs()) {
        let mut digits = ryu::Buffer::new();
        let text = digits.format_finite(value);
        out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
        return Ok(());
    }
    write!(out, "{value}")
}

/// A CSV cell, quoted if necessary.
pub fn csv_cell(text: &str) -> String {
    quoted(text, ',')
}

fn quoted(text: &str, separator: char) -> String {
    if text.contains([separator, '"', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_written_as_by_the_standard_library(bits in any::<u64>(), scale in -20i32..20, digits in any::<i32>()) {
            for value in [f64::from_bits(bits), f64::from(digits) * 10f64.powi(scale), f64::from(digits) / 8.0, f64::from(digits)] {
                let mut out = Vec::new();
                write_number(&mut out, value).unwrap();
                prop_assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
            }
        }
    }
}
