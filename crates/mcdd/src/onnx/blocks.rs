//! Rows in blocks, so that a table of all pairs of rows and stored rows is never in memory.

use super::wire::Message;
use super::{Builder, Dim, Type, Value};
use crate::error::Result;

/// The largest number of values that a block computes for all its rows together, 4 MB: about what fits into a cache.
const BLOCK_VALUES: usize = 1 << 19;
/// The type of an attribute that is a graph.
const GRAPH: i64 = 5;
/// The largest number of rows of a block.
const BLOCK_ROWS: usize = 1024;

impl Builder {
    /// Applies `body` to blocks of the rows of `x`, `[rows, width]` in f64, one after the other. It gets `[n, width]` and must
    /// return a number in f64 for each row, `[n]`; it computes about `each` values for a row. Gives `[rows]`.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn by_blocks(
        &mut self,
        x: Value,
        width: usize,
        each: usize,
        body: impl FnOnce(&mut Builder, Value) -> Result<Value>,
    ) -> Result<Value> {
        let size = (BLOCK_VALUES / each.max(1)).clamp(1, BLOCK_ROWS);
        // The rows are filled up to whole blocks with zeros, at least to one.
        let shape = self.op("Shape", &[x]);
        let (zero, one) = (self.constant_i64(&[1], &[0]), self.constant_i64(&[1], &[1]));
        let rows = self.op("Slice", &[shape, zero, one]);
        let (block, rest) = (self.constant_i64(&[1], &[size as i64]), self.constant_i64(&[1], &[size as i64 - 1]));
        let up = self.op("Add", &[rows, rest]);
        let count = self.op("Div", &[up, block]);
        let count = self.op("Max", &[count, one]);
        let whole = self.op("Mul", &[count, block]);
        let missing = self.op("Sub", &[whole, rows]);
        let before = self.constant_i64(&[2], &[0, 0]);
        let pads = self.concat(&[before, missing, zero], 0);
        let fill = self.number(0.0);
        let padded = self.op("Pad", &[x, pads, fill]);
        let sides = self.constant_i64(&[2], &[size as i64, width as i64]);
        let shape = self.concat(&[count, sides], 0);
        let blocks = self.op("Reshape", &[padded, shape]);

        // A loop over the blocks, whose results are put together. Its body sees the values outside of it.
        self.nodes.push(Message::default());
        let [index, go_on] = [self.fresh(), self.fresh()];
        let own = self.op("Gather", &[blocks, index]);
        let result = body(self, own);
        let again = self.op("Identity", &[go_on]);
        let mut inner = self.nodes.pop().unwrap_or_default();
        let result = result?;
        inner.bytes(2, b"block");
        inner.message(11, &self.described(index, Type::I64, &[]));
        inner.message(11, &self.described(go_on, Type::Bool, &[]));
        inner.message(12, &self.described(again, Type::Bool, &[]));
        inner.message(12, &self.described(result, Type::F64, &[Dim::Size(size)]));
        let mut graph = Message::default();
        graph.bytes(1, b"body");
        graph.message(6, &inner);
        graph.int(20, GRAPH);
        let results = self.fresh();
        let times = self.op("Squeeze", &[count, zero]);
        let yes = self.raw(Type::Bool, &[], vec![1]);
        self.encoded_node("Loop", "", &[times, yes], &[results], &[graph]);

        let line = self.constant_i64(&[1], &[-1]);
        let flat = self.op("Reshape", &[results, line]);
        Ok(self.op("Slice", &[flat, zero, rows]))
    }
}
