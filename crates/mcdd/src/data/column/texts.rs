//! The different texts of a column.

use std::collections::HashMap;

/// Distinct texts and their codes.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    pub codes: Vec<u32>,
    pub names: Vec<String>,
    /// By the bytes of the cell, so that a cell that was seen before is neither checked nor normalized again; and by the
    /// normalized text.
    seen: HashMap<Box<[u8]>, u32>,
    last: (Vec<u8>, u32),
}

impl Texts {
    #[inline]
    pub(super) fn known(&mut self, cell: &[u8]) -> Option<u32> {
        if !cell.is_empty() && self.last.0 == cell {
            return Some(self.last.1);
        }
        let code = *self.seen.get(cell)?;
        self.remember(cell, code);
        Some(code)
    }

    fn remember(&mut self, cell: &[u8], code: u32) {
        self.last.0.clear();
        self.last.0.extend_from_slice(cell);
        self.last.1 = code;
    }

    pub(super) fn add(&mut self, cell: &[u8], name: &str) -> u32 {
        let code = match self.seen.get(name.as_bytes()) {
            Some(&code) => code,
            None => {
                // 2^32 - 1 distinct texts do not fit a machine's memory before they fill the codes.
                let code = self.names.len() as u32;
                self.names.push(name.to_owned());
                self.seen.insert(name.as_bytes().into(), code);
                code
            }
        };
        if cell != name.as_bytes() {
            self.seen.insert(cell.into(), code);
        }
        self.remember(cell, code);
        code
    }

    pub(super) fn clear(&mut self) {
        self.codes.clear();
        self.names.clear();
        self.seen.clear();
        self.last.0.clear();
    }
}
