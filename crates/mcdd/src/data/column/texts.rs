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

    /// Forgets texts that no row has any more, if they are many. Returns the places that the others had, in order, if it did.
    pub(super) fn prune(&mut self) -> Option<Vec<usize>> {
        let mut used = vec![false; self.names.len()];
        for &code in &self.codes {
            if let Some(used) = used.get_mut(code as usize) {
                *used = true;
            }
        }
        let kept: Vec<usize> = (0..used.len()).filter(|&code| used[code]).collect();
        if used.len() < 2 * kept.len() + 1000 {
            return None;
        }
        let mut new = vec![u32::MAX; used.len()];
        kept.iter().zip(0..).for_each(|(&old, code)| new[old] = code);
        for code in self.codes.iter_mut().filter(|code| (**code as usize) < new.len()) {
            *code = new[*code as usize];
        }
        self.names = kept.iter().map(|&old| std::mem::take(&mut self.names[old])).collect();
        self.seen = self.names.iter().zip(0..).map(|(name, code)| (name.as_bytes().into(), code)).collect();
        self.last.0.clear();
        Some(kept)
    }

    pub(super) fn clear(&mut self) {
        self.codes.clear();
        self.names.clear();
        self.seen.clear();
        self.last.0.clear();
    }
}
