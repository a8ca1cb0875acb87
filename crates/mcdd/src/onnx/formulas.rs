//! Formulas that several heads and detectors share, in f64 on `[rows, columns]`.

use super::{Attribute, Builder, Type, Value};

impl Builder {
    /// The same numbers in another type.
    pub fn cast(&mut self, x: Value, to: Type) -> Value {
        self.op_with("Cast", &[x], &[("to", Attribute::Int(to as i64))])
    }

    /// Values side by side along an axis.
    pub fn concat(&mut self, values: &[Value], axis: i64) -> Value {
        match values {
            [only] => *only,
            _ => self.op_with("Concat", values, &[("axis", Attribute::Int(axis))]),
        }
    }

    /// A reduction (`ReduceSum`, `ReduceMax`, …) over the columns of each row: `[rows]`, or `[rows, 1]` if `keep`.
    pub fn reduce(&mut self, op: &str, x: Value, keep: bool) -> Value {
        let axis = self.constant_i64(&[1], &[1]);
        self.op_with(op, &[x, axis], &[("keepdims", Attribute::Int(i64::from(keep)))])
    }

    /// `factor x`.
    pub fn scale(&mut self, x: Value, factor: f64) -> Value {
        let factor = self.number(factor);
        self.op("Mul", &[x, factor])
    }

    /// `x + shift`.
    pub fn shift(&mut self, x: Value, shift: f64) -> Value {
        let shift = self.number(shift);
        self.op("Add", &[x, shift])
    }

    /// The larger of `x` and a number.
    pub fn at_least(&mut self, x: Value, least: f64) -> Value {
        let least = self.number(least);
        self.op("Max", &[x, least])
    }

    /// `x` with `limit` and `-limit` as bounds; `instead` of NaN.
    pub fn clamp(&mut self, x: Value, limit: f64, instead: f64) -> Value {
        let [low, high, instead] = [-limit, limit, instead].map(|v| self.number(v));
        let nan = self.op("IsNaN", &[x]);
        let clipped = self.op("Clip", &[x, low, high]);
        self.op("Where", &[nan, instead, clipped])
    }

    /// `x W^T` for a constant matrix `[outputs, inputs]`.
    pub fn times(&mut self, x: Value, matrix: &[f64], inputs: usize) -> Value {
        let rows = matrix.len() / inputs.max(1);
        let mut transposed = vec![0.0; matrix.len()];
        for (i, row) in matrix.chunks_exact(inputs.max(1)).enumerate() {
            row.iter().enumerate().for_each(|(j, &v)| transposed[j * rows + i] = v);
        }
        let transposed = self.constant(&[inputs, rows], &transposed);
        self.op("MatMul", &[x, transposed])
    }

    /// The sum of the squares of each row, `[rows]` or `[rows, 1]`.
    pub fn squares(&mut self, x: Value, keep: bool) -> Value {
        let squares = self.op("Mul", &[x, x]);
        self.reduce("ReduceSum", squares, keep)
    }

    /// The squared distance of each row to each of some points, `[points, width]`: `[rows, points]`.
    pub fn squared_distances(&mut self, x: Value, points: &[f64], width: usize) -> Value {
        let width = width.max(1);
        let count = points.len() / width;
        // Around the mean of the points, so that a common offset costs no digits.
        let mut center = vec![0.0; width];
        for point in points.chunks_exact(width) {
            center.iter_mut().zip(point).for_each(|(c, p)| *c += p / count as f64);
        }
        let moved: Vec<f64> = points.iter().zip(center.iter().cycle()).map(|(p, c)| p - c).collect();
        let center = self.constant(&[1, width], &center);
        let x = self.op("Sub", &[x, center]);
        let points = self.constant(&[count, width], &moved);
        let (x, points) = (self.with_squares(x), self.distance_matrix(points));
        self.distances(x, points)
    }

    /// `[x, 1, |x|^2]` of each row, for [`Builder::distances`].
    pub fn with_squares(&mut self, x: Value) -> Value {
        let squares = self.squares(x, true);
        let (pads, one) = (self.constant_i64(&[4], &[0, 0, 0, 1]), self.number(1.0));
        let padded = self.op("Pad", &[x, pads, one]);
        self.concat(&[padded, squares], 1)
    }

    /// `[-2 p, |p|^2, 1]` of each point, transposed: the product with rows of [`Builder::with_squares`] is the squared distance.
    pub fn distance_matrix(&mut self, points: Value) -> Value {
        let squares = self.squares(points, true);
        let twice = self.scale(points, -2.0);
        let both = self.concat(&[twice, squares], 1);
        let (pads, one) = (self.constant_i64(&[4], &[0, 0, 0, 1]), self.number(1.0));
        let padded = self.op("Pad", &[both, pads, one]);
        self.op("Transpose", &[padded])
    }

    /// The squared distances of rows of [`Builder::with_squares`] to the points of a [`Builder::distance_matrix`].
    pub fn distances(&mut self, x: Value, points: Value) -> Value {
        let product = self.op("MatMul", &[x, points]);
        self.at_least(product, 0.0)
    }

    /// The index of the largest value of each row, the first one of several: `[rows]`.
    pub fn argmax(&mut self, x: Value) -> Value {
        let attributes = [("axis", Attribute::Int(1)), ("keepdims", Attribute::Int(0))];
        self.op_with("ArgMax", &[x], &attributes)
    }

    /// Whether each of `count` columns is the one with this index: `[rows, count]`.
    pub fn is_column(&mut self, index: Value, count: usize) -> Value {
        let axis = self.constant_i64(&[1], &[1]);
        let index = self.op("Unsqueeze", &[index, axis]);
        let columns: Vec<i64> = (0..count as i64).collect();
        let columns = self.constant_i64(&[1, count], &columns);
        self.op("Equal", &[index, columns])
    }

    /// The value of each row in the column that `mask` selects.
    pub fn select(&mut self, mask: Value, x: Value) -> Value {
        let zero = self.number(0.0);
        let only = self.op("Where", &[mask, x, zero]);
        self.reduce("ReduceSum", only, false)
    }

    /// `log(1 + x)` without loss of digits for a small `x`.
    pub fn log1p(&mut self, x: Value) -> Value {
        // log(u) / (u - 1) is accurate even where u = 1 + x is rounded.
        let one = self.number(1.0);
        let sum = self.op("Add", &[x, one]);
        let log = self.op("Log", &[sum]);
        let rounded = self.op("Sub", &[sum, one]);
        let ratio = self.op("Div", &[log, rounded]);
        let found = self.op("Mul", &[x, ratio]);
        let small = self.op("Equal", &[sum, one]);
        self.op("Where", &[small, x, found])
    }

    /// `T log sum_k exp(x_k / T)`: `[rows]`.
    pub fn log_sum_exp(&mut self, x: Value, temperature: f64) -> Value {
        let largest = self.reduce("ReduceMax", x, true);
        let below = self.op("Sub", &[x, largest]);
        let temperature = self.number(temperature);
        let below = self.op("Div", &[below, temperature]);
        let exp = self.op("Exp", &[below]);
        let sum = self.reduce("ReduceSum", exp, false);
        let log = self.op("Log", &[sum]);
        let log = self.op("Mul", &[log, temperature]);
        let largest = self.reduce("ReduceMax", x, false);
        self.op("Add", &[largest, log])
    }

    /// The differences of each row's values to its largest, -infinity for the largest itself.
    pub fn below_best(&mut self, x: Value, count: usize) -> Value {
        let best = self.argmax(x);
        let own = self.is_column(best, count);
        let largest = self.reduce("ReduceMax", x, true);
        let below = self.op("Sub", &[x, largest]);
        let none = self.number(f64::NEG_INFINITY);
        self.op("Where", &[own, none, below])
    }

    /// `log p - log(1 - p)` of the largest probability of each row of logits: `[rows]`.
    pub fn log_odds(&mut self, logits: Value, count: usize) -> Value {
        let below = self.below_best(logits, count);
        let others = self.log_sum_exp(below, 1.0);
        self.op("Neg", &[others])
    }

    /// The softmax of each row; equal probabilities for logits that overflowed.
    pub fn softmax(&mut self, logits: Value, count: usize) -> Value {
        let largest = self.reduce("ReduceMax", logits, true);
        let below = self.op("Sub", &[logits, largest]);
        let exp = self.op("Exp", &[below]);
        let sum = self.reduce("ReduceSum", exp, true);
        let found = self.op("Div", &[exp, sum]);
        let (zero, most) = (self.number(0.0), self.number(f64::MAX));
        let positive = self.op("Greater", &[sum, zero]);
        let finite = self.op("LessOrEqual", &[sum, most]);
        let valid = self.op("And", &[positive, finite]);
        let equal = self.number(1.0 / count as f64);
        self.op("Where", &[valid, found, equal])
    }

    /// `x`, or another number where it is not finite.
    pub fn finite_or(&mut self, x: Value, other: Value) -> Value {
        let size = self.op("Abs", &[x]);
        let most = self.number(f64::MAX);
        let finite = self.op("LessOrEqual", &[size, most]);
        self.op("Where", &[finite, x, other])
    }

    /// For each row the number of values of an ascending list that are at most `x`. There may be several lists of at most
    /// `longest` values, one after the other in a table of [`search_table`]; then `list` is the index of each row's own.
    pub fn count_at_most(&mut self, x: Value, table: Value, longest: usize, list: Option<Value>) -> Value {
        let size = table_size(longest);
        let own = list.map(|list| {
            let size = self.constant_i64(&[], &[size as i64]);
            self.op("Mul", &[list, size])
        });
        let mut found: Option<Value> = None;
        let mut step = size.div_ceil(2);
        while step > 0 {
            let reach = self.constant_i64(&[1], &[step as i64 - 1]);
            let parts: Vec<Value> = [found, own, Some(reach)].into_iter().flatten().collect();
            let at = match parts[..] {
                [a] => a,
                [a, b] => self.op("Add", &[a, b]),
                [a, b, c] => {
                    let sum = self.op("Add", &[a, b]);
                    self.op("Add", &[sum, c])
                }
                _ => break,
            };
            let value = self.op("Gather", &[table, at]);
            let below = self.op("LessOrEqual", &[value, x]);
            let below = self.cast(below, Type::I64);
            let step_value = self.constant_i64(&[1], &[step as i64]);
            let more = self.op("Mul", &[below, step_value]);
            found = Some(match found {
                Some(sum) => self.op("Add", &[sum, more]),
                None => more,
            });
            step /= 2;
        }
        found.unwrap_or(x)
    }
}

/// The number of places of a list in a table for [`Builder::count_at_most`]: `2^n - 1`, at least 1.
fn table_size(longest: usize) -> usize {
    (longest.max(1) + 1).next_power_of_two() - 1
}

/// Ascending lists as one table for [`Builder::count_at_most`], filled up with infinity.
pub fn search_table<'a>(lists: impl Iterator<Item = &'a [f64]>, longest: usize) -> Vec<f64> {
    let size = table_size(longest);
    let mut table = Vec::new();
    for list in lists {
        table.extend_from_slice(list);
        table.resize(table.len() + size - list.len(), f64::INFINITY);
    }
    table
}

/// Numbers in f64.
pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}
