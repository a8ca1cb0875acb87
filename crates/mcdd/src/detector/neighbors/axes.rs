//! Rows in the directions in which they differ most.
//!
//! The boxes of a [tree](super::tree) are tight along the axes and loose across them. Latent vectors lie near surfaces of few
//! dimensions that are not parallel to their features, so rows are turned into their principal axes first. Of a thousand
//! boxes a query then visits about four instead of twenty, and the first axes are enough for the boxes.
//!
//! # The bound
//! Rows are turned by a matrix `V` in f32, which need not be exactly orthogonal: if `f` is the Frobenius norm of `V^T V - I`, no
//! distance grows by more than the factor `s = sqrt(1 + f)`, or shrinks by more than `sqrt(1 - f)`. Centering and the product in
//! f32 change the turned row of `a` by at most `e |a - c|`, with `e = s (u + sqrt(w) gamma)` and `gamma = w u / (1 - w u)` for
//! the unit roundoff `u` and the width `w`. So two rows at a distance `d` are turned into rows at a distance of at most
//! `s d + e (|a - c| + |b - c|)`, and at least `sqrt(1 - f) d - e (|a - c| + |b - c|)`, up to underflow.

use super::{MAX_SQUARED_NORM, U, UNDERFLOW, inner_product};
use crate::compute::gemm::{self, Line, Panels, Then, ZERO};
use crate::compute::pool::Pool;
use crate::stats::eigen::Eigen;
use crate::stats::moments::scatter;

/// The largest width; the time to find the axes grows with its cube.
const MAX_WIDTH: usize = 64;
/// The first axes have all but this fraction of the variance.
const REST: f64 = 0.002;

/// The principal axes of stored rows.
#[derive(Debug)]
pub(super) struct Axes {
    center: Vec<f32>,
    /// The axes as columns, packed.
    lines: Vec<Line>,
    /// How many axes have almost all of the variance.
    pub(super) first: usize,
    /// The largest factor by which a distance grows.
    pub(super) stretch: f64,
    /// The smallest factor by which one shrinks.
    pub(super) shrink: f64,
    /// The largest change of a turned row, relative to its distance from the center.
    error: f64,
    /// The largest change of a stored row.
    stored: f64,
}

/// Rows in the directions of the axes.
pub(super) struct Turned {
    pub(super) rows: Vec<f32>,
    /// Of each row, how much its distance to a stored row may have changed; infinite if the row is too long.
    pub(super) errors: Vec<f64>,
}

impl Axes {
    /// The axes of rows of `width` features around their center, and the rows in their directions. There are none for rows that
    /// are very wide or very long.
    pub(super) fn of(rows: &[f32], width: usize, center: &[f32], pool: &Pool) -> Option<(Axes, Vec<f32>)> {
        if width > MAX_WIDTH {
            return None;
        }
        let scatter = scatter(rows, width, &|_, to: &mut [f32]| to.copy_from_slice(center), pool);
        if !scatter.iter().all(|v| v.is_finite()) {
            return None;
        }
        let eigen = Eigen::of(&scatter, width);
        // One axis after the other, which are the columns of the matrix.
        let axes: Vec<f32> = eigen.vectors.iter().map(|&v| v as f32).collect();
        let mut lines = vec![ZERO; Panels::lines(width, width)];
        gemm::pack_transposed(&mut lines, &axes, width, width, 0);
        let axis = |i: usize| &axes[i * width..(i + 1) * width];
        let excess = |(i, j): (usize, usize)| inner_product(axis(i), axis(j)) - f64::from(u8::from(i == j));
        let pairs = (0..width).flat_map(|i| (0..width).map(move |j| (i, j)));
        let norm = libm::sqrt(pairs.map(|p| excess(p) * excess(p)).sum());
        let (stretch, shrink) = (libm::sqrt(1.0 + norm) + 1e-12, libm::sqrt((1.0 - norm).max(0.0)) - 1e-12);
        if shrink < 0.5 {
            return None;
        }
        let rounding = width as f64 * U;
        let error = 1.1 * stretch * (U + libm::sqrt(width as f64) * rounding / (1.0 - rounding));
        let total: f64 = eigen.values.iter().map(|v| v.max(0.0)).sum();
        let mut rest = total;
        let enough = eigen.values.iter().position(|v| {
            rest -= v.max(0.0);
            rest <= REST * total
        });
        let first = enough.map_or(width, |i| i + 1);
        let mut axes = Axes { center: center.to_vec(), lines, first, stretch, shrink, error, stored: 0.0 };
        let Turned { rows, errors } = axes.turn(rows);
        axes.stored = errors.into_iter().fold(0.0, f64::max);
        (axes.stored < f64::INFINITY).then_some((axes, rows))
    }

    /// Turns rows.
    pub(super) fn turn(&self, rows: &[f32]) -> Turned {
        let width = self.center.len();
        let mut centered = Vec::with_capacity(rows.len());
        for row in rows.chunks_exact(width) {
            centered.extend(row.iter().zip(&self.center).map(|(v, c)| v - c));
        }
        let error = |row: &[f32]| match inner_product(row, row) {
            squares if squares <= MAX_SQUARED_NORM => {
                self.error * libm::sqrt(squares) * (1.0 + 1e-6) + self.stored + (2 * width) as f64 * UNDERFLOW
            }
            _ => f64::INFINITY,
        };
        let errors = centered.chunks_exact(width).map(error).collect();
        let mut rows = vec![0.0; centered.len()];
        gemm::product(&centered, Panels::new(&self.lines, width, width), &mut rows, Then::Keep);
        Turned { rows, errors }
    }
}
