//! A cache of kernel rows of bounded size.

use crate::compute::gemm::NR;

/// A least-recently-used cache of kernel rows.
pub(super) struct Cache {
    /// The largest size; two rows are always kept.
    bytes: usize,
    /// The kernel row in each slot.
    pub(super) rows: Vec<Vec<f32>>,
    /// The active row in each slot.
    owners: Vec<usize>,
    /// The time of the last use of each slot.
    used: Vec<u64>,
    /// The slot of each active row, if it is cached.
    pub(super) slots: Vec<Option<usize>>,
    clock: u64,
}

impl Cache {
    /// An empty cache of `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Cache {
        Cache { bytes, rows: vec![], owners: vec![], used: vec![], slots: vec![], clock: 0 }
    }

    /// The slot of row `i`, which is computed if it is not cached. The slot that was returned last stays valid.
    pub(super) fn get(&mut self, i: usize, length: usize, compute: impl FnOnce(&mut [f32])) -> usize {
        self.clock += 1;
        if self.slots.len() < length {
            self.slots.resize(length, None);
        }
        let slot = match self.slots[i] {
            Some(slot) => slot,
            None => {
                let slot = self.free_slot(length);
                self.owners[slot] = i;
                self.slots[i] = Some(slot);
                compute(&mut self.rows[slot]);
                slot
            }
        };
        self.used[slot] = self.clock;
        slot
    }

    /// A free slot, or the least recently used one.
    fn free_slot(&mut self, length: usize) -> usize {
        if self.rows.len() < (self.bytes / (4 * length)).max(2) {
            self.rows.push(vec![0.0; length]);
            self.owners.push(0);
            self.used.push(0);
            return self.rows.len() - 1;
        }
        let oldest = (0..self.used.len()).min_by_key(|&p| self.used[p]).unwrap_or(0);
        self.slots[self.owners[oldest]] = None;
        oldest
    }

    /// Drops all but some of the active rows, which are renumbered.
    pub(super) fn keep(&mut self, kept: &[usize]) {
        let length = kept.len().next_multiple_of(NR);
        let old = std::mem::replace(self, Cache::new(self.bytes));
        let mut rows: Vec<Option<Vec<f32>>> = old.rows.into_iter().map(Some).collect();
        self.clock = old.clock;
        self.slots = vec![None; length];
        for (new, &i) in kept.iter().enumerate() {
            let Some(slot) = old.slots.get(i).copied().flatten() else { continue };
            let Some(mut row) = rows[slot].take() else { continue };
            // In place: kept elements only move forward.
            for (to, &from) in kept.iter().enumerate() {
                row[to] = row[from];
            }
            row.truncate(length);
            row[kept.len()..].fill(0.0);
            row.shrink_to_fit();
            self.slots[new] = Some(self.rows.len());
            self.rows.push(row);
            self.owners.push(new);
            self.used.push(old.used[slot]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_drops_the_least_recently_used() {
        // The cache holds two rows.
        let length = 64;
        let mut cache = Cache::new(2 * 4 * length);
        let get = |cache: &mut Cache, i: usize| {
            let mut computed = false;
            let slot = cache.get(i, length, |row| {
                row[0] = i as f32;
                computed = true;
            });
            assert_eq!(cache.rows[slot][0], i as f32);
            computed
        };
        let order = [(0, true), (1, true), (0, false), (2, true), (0, false), (1, true), (2, true)];
        for (i, computed) in order {
            assert_eq!(get(&mut cache, i), computed);
        }
        assert_eq!(cache.rows.len(), 2);
    }
}
