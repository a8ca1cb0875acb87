//! Contours of the region where a function on a grid is positive, by marching squares.

/// A closed polyline, in grid coordinates.
pub(super) type Loop = Vec<[f64; 2]>;

const NONE: usize = usize::MAX;

/// The values on the grid, padded with negative ones whose positions are on the border, so that regions that reach the border
/// are closed.
struct Field<'a> {
    columns: usize,
    rows: usize,
    values: &'a [f64],
}

impl Field<'_> {
    /// The number of columns with padding.
    fn width(&self) -> usize {
        self.columns + 2
    }

    fn value(&self, x: usize, y: usize) -> f64 {
        let inside = (1..=self.columns).contains(&x) && (1..=self.rows).contains(&y);
        let value = if inside { self.values[(y - 1) * self.columns + x - 1] } else { -1.0 };
        if value.is_nan() { -1.0 } else { value.clamp(-1e100, 1e100) }
    }

    fn inside(&self, x: usize, y: usize) -> bool {
        self.value(x, y) > 0.0
    }

    fn position(&self, x: usize, y: usize) -> [f64; 2] {
        let on = |v: usize, n: usize| (v.max(1) - 1).min(n - 1) as f64;
        [on(x, self.columns), on(y, self.rows)]
    }

    /// The index of an edge, from its first node and whether it goes down.
    fn key(&self, x: usize, y: usize, down: bool) -> usize {
        2 * (y * self.width() + x) + usize::from(down)
    }

    /// The point on an edge where the function is 0.
    fn crossing(&self, key: usize) -> [f64; 2] {
        let (node, down) = (key / 2, key % 2);
        let (x, y) = (node % self.width(), node / self.width());
        let (x2, y2) = (x + 1 - down, y + down);
        let (a, b) = (self.value(x, y), self.value(x2, y2));
        let t = if a == b { 0.5 } else { a / (a - b) };
        let (p, q) = (self.position(x, y), self.position(x2, y2));
        [p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])]
    }
}

/// The contours of the region where `values` (by rows, at least 2 by 2) are positive, linear within each cell.
pub(super) fn positive(columns: usize, rows: usize, values: &[f64]) -> Vec<Loop> {
    if columns < 2 || rows < 2 || values.len() != columns * rows {
        return Vec::new();
    }
    let field = Field { columns, rows, values };
    // For each edge where a contour enters a cell, the edge where it leaves it.
    let mut next = vec![NONE; 2 * field.width() * (rows + 2)];
    for y in 0..=rows {
        for x in 0..=columns {
            cell(&field, x, y, &mut next);
        }
    }
    let mut loops = Vec::new();
    for start in 0..next.len() {
        let (mut at, mut line) = (start, Loop::new());
        while next[at] != NONE {
            line.push(field.crossing(at));
            at = std::mem::replace(&mut next[at], NONE);
        }
        if line.len() > 2 {
            loops.push(line);
        }
    }
    loops
}

/// Connects the edges of a cell: from each edge where the sign changes from positive to negative to the next one where it
/// changes back.
fn cell(field: &Field, x: usize, y: usize, next: &mut [usize]) {
    let corners = [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)];
    let edges = [field.key(x, y, false), field.key(x + 1, y, true), field.key(x, y + 1, false), field.key(x, y, true)];
    let inside = corners.map(|(x, y)| field.inside(x, y));
    let leaves = |e: usize| inside[e] && !inside[(e + 1) % 4];
    let comes = |e: usize| !inside[e] && inside[(e + 1) % 4];
    let saddle = (0..4).filter(|&e| leaves(e)).count() == 2;
    let middle: f64 = corners.iter().map(|&(x, y)| field.value(x, y)).sum();
    for e in (0..4).filter(|&e| leaves(e)) {
        // In a saddle the mean of the corners decides which two are connected.
        let turn = if saddle && middle <= 0.0 { 3 } else { 1 };
        if let Some(to) = (1..4).map(|i| (e + i * turn) % 4).find(|&to| comes(to)) {
            next[edges[e]] = edges[to];
        }
    }
}

/// The loop with fewer points, to within `tolerance` (Douglas and Peucker).
pub(super) fn simplified(line: &[[f64; 2]], tolerance: f64) -> Loop {
    let n = line.len();
    if n < 4 {
        return line.to_vec();
    }
    let square = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]);
    let furthest = |line: &[[f64; 2]]| {
        (0..n).fold(0, |best, i| if square(line[i], line[0]) > square(line[best], line[0]) { i } else { best })
    };
    // The point that is furthest from another is a corner, a good start.
    let mut line = line.to_vec();
    let corner = furthest(&line);
    line.rotate_left(corner);
    let far = furthest(&line);
    let mut keep = vec![false; n];
    (keep[0], keep[far]) = (true, true);
    let mut open = vec![(0, far), (far, n)];
    while let Some((from, to)) = open.pop() {
        let (a, b) = (line[from], line[to % n]);
        let length = square(a, b);
        let away = |p: [f64; 2]| {
            let t = if length > 0.0 {
                (((p[0] - a[0]) * (b[0] - a[0]) + (p[1] - a[1]) * (b[1] - a[1])) / length).clamp(0.0, 1.0)
            } else {
                0.0
            };
            square(p, [a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])])
        };
        let worst = (from + 1..to).fold(None, |best: Option<(usize, f64)>, i| {
            let d = away(line[i]);
            if best.is_none_or(|(_, most)| d > most) { Some((i, d)) } else { best }
        });
        if let Some((i, d)) = worst.filter(|(_, d)| *d > tolerance * tolerance) {
            debug_assert!(d.is_finite());
            keep[i] = true;
            open.extend([(from, i), (i, to)]);
        }
    }
    let mut kept: Loop = line.iter().zip(keep).filter(|(_, k)| *k).map(|(p, _)| *p).collect();
    // If several points are equally far away, one in the middle of a straight piece may have been kept.
    let mut i = 0;
    while kept.len() > 3 && i < kept.len() {
        let (a, p, b) = (kept[(i + kept.len() - 1) % kept.len()], kept[i], kept[(i + 1) % kept.len()]);
        let double_area = (p[0] - a[0]) * (b[1] - a[1]) - (p[1] - a[1]) * (b[0] - a[0]);
        if double_area.abs() <= 0.1 * tolerance * libm::sqrt(square(a, b)) {
            kept.remove(i);
        } else {
            i += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid(n: usize, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        (0..n * n).map(|i| f((i % n) as f64, (i / n) as f64)).collect()
    }

    /// Twice the area inside, with its sign.
    fn area(line: &[[f64; 2]]) -> f64 {
        (0..line.len())
            .map(|i| (line[i], line[(i + 1) % line.len()]))
            .map(|(p, q)| p[0] * q[1] - q[0] * p[1])
            .sum::<f64>()
            / 2.0
    }

    #[test]
    fn a_half_plane_has_four_corners() {
        let loops = positive(11, 11, &grid(11, |x, y| x + y - 9.7));
        assert_eq!(loops.len(), 1);
        let line = simplified(&loops[0], 1e-6);
        assert_eq!(line.len(), 5, "{line:?}");
        assert!((area(&line) - (100.0 - 9.7 * 9.7 / 2.0)).abs() < 1e-9);
    }

    #[test]
    fn a_ring_is_two_loops_and_nothing_is_none() {
        let ring = grid(41, |x, y| {
            let r = ((x - 20.0) * (x - 20.0) + (y - 20.0) * (y - 20.0)).sqrt();
            (r - 6.0) * (15.0 - r)
        });
        let loops = positive(41, 41, &ring);
        assert_eq!(loops.len(), 2);
        let total: f64 = loops.iter().map(|l| area(l)).sum();
        assert!((total / (std::f64::consts::PI * (225.0 - 36.0)) - 1.0).abs() < 0.01);
        assert!(positive(5, 5, &[-1.0; 25]).is_empty());
        assert_eq!(area(&simplified(&positive(5, 5, &[1.0; 25])[0], 1e-9)), 16.0);
    }

    proptest! {
        /// Whatever the values: loops are closed, inside the grid, and hold about the positive nodes.
        #[test]
        fn random_fields_are_traced(values in prop::collection::vec(-1.0..1.0f64, 64)) {
            let loops = positive(8, 8, &values);
            for line in &loops {
                prop_assert!(line.len() > 2);
                prop_assert!(line.iter().flatten().all(|v| (0.0..=7.0).contains(v)));
                for i in 0..line.len() {
                    let (p, q) = (line[i], line[(i + 1) % line.len()]);
                    prop_assert!((p[0] - q[0]).abs() <= 1.0 && (p[1] - q[1]).abs() <= 1.0);
                }
            }
            let total: f64 = loops.iter().map(|l| area(l)).sum();
            prop_assert!((0.0..=49.0 + 1e-9).contains(&total));
        }
    }
}
