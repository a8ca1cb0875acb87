//! Sequential minimal optimization: pairs of weights are updated until no pair violates the optimality conditions by more
//! than a tolerance.
//!
//! The pair is chosen with second-order information (Fan, Chen, Lin: Working Set Selection Using Second Order
//! Information for Training Support Vector Machines, JMLR 2005). Kernel rows are kept in a cache of bounded size. Rows that
//! are likely to stay at a bound are left out temporarily (shrinking) and checked again at the end. The initial weights
//! are 1 for the rows with the lowest density under a sample of the rows: most of these end at the upper bound, so few
//! pairs are left to update.

use super::cache::Cache;
use super::rbf::Points;
use crate::compute::gemm::NR;
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd::{self, Kernel, Simd};

/// The largest violation of the optimality conditions, on the scale of the gradient. It is scaled down for a total below
/// 1, an upper bound of the gradient.
const TOLERANCE: f64 = 1e-3;
/// The smallest curvature; that of duplicate rows is 0.
const MIN_CURVATURE: f64 = 1e-12;
/// The size of the cache of kernel rows, in bytes.
const CACHE: usize = 256 << 20;
/// Rows of the sample for the initial weights.
const SAMPLE: usize = 512;
/// Steps between two attempts at shrinking.
const SHRINK_INTERVAL: usize = 1000;
/// The smallest number of multiplications for which a kernel row is computed on several threads.
const MIN_PARALLEL: usize = 1 << 16;
/// Rows that one thread takes at a time.
const BLOCK: usize = 192;
/// Vector lanes in the loops over all weights.
const LANES: usize = 8;

/// The weights `a` and the gradient `K a`.
#[derive(Debug)]
pub(super) struct Solution {
    pub(super) weights: Vec<f64>,
    pub(super) gradient: Vec<f64>,
    pub(super) steps: usize,
}

impl Solution {
    /// The gradient at the boundary: the mean over the weights strictly between the bounds; if there are none, the middle
    /// of the range that the optimality conditions allow.
    pub(super) fn level(&self) -> f64 {
        let pairs = || self.weights.iter().zip(&self.gradient);
        let free = pairs().filter(|(a, _)| **a > 0.0 && **a < 1.0);
        let (count, sum) = free.fold((0usize, 0.0), |(n, s), (_, g)| (n + 1, s + g));
        if count > 0 {
            return sum / count as f64;
        }
        let below = pairs().filter(|(a, _)| **a >= 1.0).map(|(_, g)| *g).reduce(f64::max);
        let above = pairs().filter(|(a, _)| **a <= 0.0).map(|(_, g)| *g).reduce(f64::min);
        match (below, above) {
            (Some(b), Some(a)) => 0.5 * (a + b),
            (one, other) => one.or(other).unwrap_or(0.0),
        }
    }
}

/// The rows of positive weight, and their weights, padded with zeros to whole panels.
pub(super) fn support(rows: &[f32], width: usize, weights: &[f64]) -> (Points, Vec<f64>) {
    let chosen: Vec<usize> = (0..weights.len()).filter(|&i| weights[i] > 0.0).collect();
    let mut kept: Vec<f64> = chosen.iter().map(|&i| weights[i]).collect();
    kept.resize(chosen.len().next_multiple_of(NR), 0.0);
    (Points::new(&gather(rows, width, &chosen), width), kept)
}

fn gather(rows: &[f32], width: usize, chosen: &[usize]) -> Vec<f32> {
    chosen.iter().flat_map(|&i| &rows[i * width..(i + 1) * width]).copied().collect()
}

/// `sum_j w_j K(x, x_j)` for all of `rows`, over those of `all` with a positive weight.
fn sums(rows: &[f32], all: &[f32], weights: &[f64], width: usize, pool: &Pool) -> Vec<f64> {
    let (points, weights) = support(all, width, weights);
    let mut out = vec![0.0; rows.len() / width];
    pool.split(chunks(&mut out, BLOCK), |i, out| {
        let rows = &rows[i * BLOCK * width..][..out.len() * width];
        points.sums(rows, &weights, out, &mut Vec::new());
    });
    out
}

/// The initial weights: 1 for the rows of the lowest density, as many as `total` allows, and the rest for the next row.
fn initial_weights(rows: &[f32], width: usize, total: f64, pool: &Pool) -> Vec<f64> {
    let n = rows.len() / width;
    let mut sampled = vec![0.0; n];
    sampled.iter_mut().step_by(n.div_ceil(SAMPLE)).for_each(|w| *w = 1.0);
    let density = sums(rows, rows, &sampled, width, pool);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| density[i].total_cmp(&density[j]));
    let mut weights = vec![0.0; n];
    for (rank, i) in order.into_iter().enumerate() {
        weights[i] = (total - rank as f64).clamp(0.0, 1.0);
    }
    weights
}

/// Solves `min 1/2 a'Ka`, `0 <= a <= 1`, `sum a = total`, for rows of `width` features. `total` is at most the number of
/// rows.
pub(super) fn solve(rows: &[f32], width: usize, total: f64, pool: &Pool) -> Solution {
    let mut solver = Solver::new(rows, width, total, pool);
    let n = rows.len() / width;
    // Never reached in practice; the result would still be valid weights.
    let max_steps = (100 * n).max(1_000_000);
    let mut steps = 0;
    let mut due = SHRINK_INTERVAL.min(n);
    while steps < max_steps {
        match solver.step() {
            Step::Updated => steps += 1,
            Step::Optimal if solver.is_complete() => break,
            Step::Optimal => solver.unshrink(),
        }
        due -= 1;
        if due == 0 {
            solver.shrink();
            due = SHRINK_INTERVAL.min(n);
        }
    }
    solver.unshrink();
    let mut solution = solver.solution;
    solution.steps = steps;
    solution
}

/// The result of a step.
enum Step {
    /// A pair was updated.
    Updated,
    /// No pair violates the optimality conditions.
    Optimal,
}

/// The state of the optimization.
struct Solver<'a> {
    rows: &'a [f32],
    width: usize,
    pool: &'a Pool,
    /// The solution for all rows; outdated for the active ones.
    solution: Solution,
    /// The rows that are not left out.
    active: Vec<usize>,
    points: Points,
    /// The weights of the active rows, padded to whole panels with values that are never chosen.
    a: Vec<f64>,
    /// The gradient of the active rows, padded in the same way.
    g: Vec<f64>,
    /// The row with the lowest gradient among those whose weight can increase.
    lowest: Option<usize>,
    cache: Cache,
    tolerance: f64,
}

impl<'a> Solver<'a> {
    fn new(rows: &'a [f32], width: usize, total: f64, pool: &'a Pool) -> Solver<'a> {
        let weights = initial_weights(rows, width, total, pool);
        let gradient = sums(rows, rows, &weights, width, pool);
        let mut solver = Solver {
            rows,
            width,
            pool,
            active: (0..weights.len()).collect(),
            points: Points::new(rows, width),
            solution: Solution { weights, gradient, steps: 0 },
            a: Vec::new(),
            g: Vec::new(),
            lowest: None,
            cache: Cache::new(CACHE),
            tolerance: TOLERANCE * total.min(1.0),
        };
        solver.load_active();
        solver
    }

    /// Copies weights and gradients of the active rows from the solution.
    fn load_active(&mut self) {
        let n = self.active.len();
        let padded = n.next_multiple_of(NR);
        self.a = self.active.iter().map(|&i| self.solution.weights[i]).collect();
        self.g = self.active.iter().map(|&i| self.solution.gradient[i]).collect();
        self.lowest = (0..n).filter(|&i| self.a[i] < 1.0).min_by(|&i, &j| self.g[i].total_cmp(&self.g[j]));
        // A weight that cannot increase, with a gradient for which a decrease has no gain.
        self.a.resize(padded, 1.0);
        self.g.resize(padded, f64::NEG_INFINITY);
    }

    /// Copies weights and gradients of the active rows to the solution.
    fn store_active(&mut self) {
        for ((&i, &a), &g) in self.active.iter().zip(&self.a).zip(&self.g) {
            self.solution.weights[i] = a;
            self.solution.gradient[i] = g;
        }
    }

    /// Whether all rows are active.
    fn is_complete(&self) -> bool {
        self.active.len() == self.solution.weights.len()
    }

    /// The slot of the kernel row of active row `i` in the cache.
    fn row(&mut self, i: usize) -> usize {
        let Solver { rows, width, pool, active, points, cache, .. } = self;
        let row = &rows[active[i] * *width..][..*width];
        cache.get(i, active.len().next_multiple_of(NR), |out| {
            let chunk = if out.len() * *width < MIN_PARALLEL { out.len() } else { pool.chunk(out.len(), 4 * NR) };
            pool.split(chunks(out, chunk), |c, out| points.kernel_row(row, c * chunk / NR, out));
        })
    }

    /// Updates the pair with the largest gain.
    fn step(&mut self) -> Step {
        let Some(i) = self.lowest else { return Step::Optimal };
        let at_i = self.row(i);
        let second = second(&self.g, &self.a, &self.cache.rows[at_i], self.g[i]);
        if second.highest - self.g[i] < self.tolerance {
            return Step::Optimal;
        }
        let j = second.at;
        let at_j = self.row(j);
        let (ki, kj) = (&self.cache.rows[at_i], &self.cache.rows[at_j]);
        let (more, less) = (1.0 - self.a[i], self.a[j]);
        let wanted = (self.g[j] - self.g[i]) / (2.0 - 2.0 * f64::from(ki[j])).max(MIN_CURVATURE);
        let by = wanted.min(more).min(less);
        self.a[i] = if by == more { 1.0 } else { self.a[i] + by };
        self.a[j] = if by == less { 0.0 } else { self.a[j] - by };
        let best = advance(&mut self.g, &self.a, ki, kj, by);
        self.lowest = (best.value > f64::NEG_INFINITY).then_some(best.at);
        Step::Updated
    }

    /// Leaves out rows at a bound that are likely to stay there, if these are at least a fifth of the active rows.
    fn shrink(&mut self) {
        let n = self.active.len();
        let up = self.lowest.map_or(f64::INFINITY, |i| self.g[i]);
        let down = (0..n).filter(|&i| self.a[i] > 0.0).map(|i| self.g[i]).fold(f64::NEG_INFINITY, f64::max);
        let at_bound = |i: &usize| {
            let (a, g) = (self.a[*i], self.g[*i]);
            (a <= 0.0 && g > down) || (a >= 1.0 && g < up)
        };
        let kept: Vec<usize> = (0..n).filter(|i| !at_bound(i)).collect();
        if 5 * kept.len() > 4 * n || kept.is_empty() {
            return;
        }
        self.store_active();
        self.cache.keep(&kept);
        self.active = kept.into_iter().map(|i| self.active[i]).collect();
        self.points = Points::new(&gather(self.rows, self.width, &self.active), self.width);
        self.load_active();
    }

    /// Makes all rows active again and recomputes the gradients of those that were left out.
    fn unshrink(&mut self) {
        self.store_active();
        if self.is_complete() {
            return;
        }
        let n = self.solution.weights.len();
        let mut active = self.active.iter().peekable();
        let left: Vec<usize> = (0..n).filter(|i| active.next_if_eq(&i).is_none()).collect();
        let rows = gather(self.rows, self.width, &left);
        let fresh = sums(&rows, self.rows, &self.solution.weights, self.width, self.pool);
        for (i, g) in left.into_iter().zip(fresh) {
            self.solution.gradient[i] = g;
        }
        self.active = (0..n).collect();
        self.points = Points::new(self.rows, self.width);
        self.cache = Cache::new(CACHE);
        self.load_active();
    }
}

/// The largest of some values and its first index.
struct Best {
    value: f64,
    at: usize,
}

impl Best {
    /// Combines the largest value of each lane and the first block that has it.
    #[inline(always)]
    fn of(values: &[f64; LANES], blocks: &[u64; LANES]) -> Best {
        let mut best = Best { value: f64::NEG_INFINITY, at: usize::MAX };
        for (lane, (&value, &block)) in values.iter().zip(blocks).enumerate() {
            let at = block as usize * LANES + lane;
            if value > best.value || (value == best.value && at < best.at) {
                best = Best { value, at };
            }
        }
        best
    }
}

/// Updates the gradient and finds its minimum among the weights that can increase.
fn advance(g: &mut [f64], a: &[f64], ki: &[f32], kj: &[f32], by: f64) -> Best {
    struct Advance<'a> {
        g: &'a mut [f64],
        a: &'a [f64],
        ki: &'a [f32],
        kj: &'a [f32],
        by: f64,
        best: &'a mut Best,
    }
    impl Kernel for Advance<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, _: S) {
            let (g, a) = (self.g.as_chunks_mut::<LANES>().0, self.a.as_chunks::<LANES>().0);
            let (ki, kj) = (self.ki.as_chunks::<LANES>().0, self.kj.as_chunks::<LANES>().0);
            let (mut values, mut blocks) = ([f64::NEG_INFINITY; LANES], [0u64; LANES]);
            for (block, (((g, a), ki), kj)) in (0u64..).zip(g.iter_mut().zip(a).zip(ki).zip(kj)) {
                for l in 0..LANES {
                    g[l] += self.by * (f64::from(ki[l]) - f64::from(kj[l]));
                    let value = if a[l] < 1.0 { -g[l] } else { f64::NEG_INFINITY };
                    let better = value > values[l];
                    values[l] = if better { value } else { values[l] };
                    blocks[l] = if better { block } else { blocks[l] };
                }
            }
            *self.best = Best::of(&values, &blocks);
        }
    }
    let mut best = Best { value: f64::NEG_INFINITY, at: 0 };
    simd::dispatch(Advance { g, a, ki, kj, by, best: &mut best });
    best
}

/// The second row of a pair.
struct Second {
    at: usize,
    /// The highest gradient among the weights that can decrease.
    highest: f64,
}

/// The weight that can decrease with the largest gain, `(g_j - g_i)^2 / (2 - 2 K_ij)`.
fn second(g: &[f64], a: &[f64], ki: &[f32], gi: f64) -> Second {
    struct Find<'a> {
        g: &'a [f64],
        a: &'a [f64],
        ki: &'a [f32],
        gi: f64,
        found: &'a mut Second,
    }
    impl Kernel for Find<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, _: S) {
            let (g, a, ki) =
                (self.g.as_chunks::<LANES>().0, self.a.as_chunks::<LANES>().0, self.ki.as_chunks::<LANES>().0);
            let (mut values, mut blocks) = ([f64::NEG_INFINITY; LANES], [0u64; LANES]);
            let mut highest = [f64::NEG_INFINITY; LANES];
            for (block, ((g, a), ki)) in (0u64..).zip(g.iter().zip(a).zip(ki)) {
                for l in 0..LANES {
                    let decreasing = if a[l] > 0.0 { g[l] } else { f64::NEG_INFINITY };
                    highest[l] = if decreasing > highest[l] { decreasing } else { highest[l] };
                    let gap = if decreasing > self.gi { decreasing - self.gi } else { 0.0 };
                    let curvature = 2.0 - 2.0 * f64::from(ki[l]);
                    let curvature = if curvature > MIN_CURVATURE { curvature } else { MIN_CURVATURE };
                    let value = gap * gap / curvature;
                    let better = value > values[l];
                    values[l] = if better { value } else { values[l] };
                    blocks[l] = if better { block } else { blocks[l] };
                }
            }
            let highest = highest.into_iter().fold(f64::NEG_INFINITY, f64::max);
            *self.found = Second { at: Best::of(&values, &blocks).at, highest };
        }
    }
    let mut found = Second { at: 0, highest: f64::NEG_INFINITY };
    simd::dispatch(Find { g, a, ki, gi, found: &mut found });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;
    use proptest::prelude::*;

    fn normal(n: usize, width: usize, scale: f64, seed: u64) -> Vec<f32> {
        let mut s = Stream::new(seed, "solver");
        (0..n * width).map(|_| (scale * s.normal()) as f32).collect()
    }

    /// The kernel matrix as the solver computes it.
    fn kernels(rows: &[f32], width: usize) -> Vec<Vec<f64>> {
        let points = Points::new(rows, width);
        let mut out = vec![0.0; points.count().next_multiple_of(NR)];
        rows.chunks(width)
            .map(|row| {
                points.kernel_row(row, 0, &mut out);
                out[..points.count()].iter().map(|&k| f64::from(k)).collect()
            })
            .collect()
    }

    /// Checks the optimality conditions by definition.
    fn check(rows: &[f32], width: usize, total: f64, solution: &Solution) {
        let Solution { weights, gradient, .. } = solution;
        assert!(weights.iter().all(|a| (0.0..=1.0).contains(a)));
        assert!((weights.iter().sum::<f64>() - total).abs() < 1e-9 * total.max(1.0));
        for (k, g) in kernels(rows, width).iter().zip(gradient) {
            let exact: f64 = k.iter().zip(weights).map(|(k, a)| k * a).sum();
            assert!((exact - g).abs() < 1e-6 * total.max(1.0), "{exact} {g}");
        }
        let of =
            |chosen: fn(f64) -> bool| weights.iter().zip(gradient).filter(move |(a, _)| chosen(**a)).map(|(_, g)| *g);
        let up = of(|a| a < 1.0).fold(f64::INFINITY, f64::min);
        let down = of(|a| a > 0.0).fold(f64::NEG_INFINITY, f64::max);
        assert!(down - up < 1.01e-3 * total.min(1.0), "{down} {up}");
        let level = solution.level();
        assert!(
            level.is_finite() && (up == f64::INFINITY || (level - up).abs().min((level - down).abs()) < 0.1 * total)
        );
        // At most `total` rows are outside, and at least `total` rows are support vectors.
        let outside = gradient.iter().filter(|&&g| g < level - 1e-3 * total.min(1.0)).count();
        assert!(outside as f64 <= total + 1e-9, "{outside} {total}");
        assert!(weights.iter().filter(|&&a| a > 0.0).count() as f64 >= total - 1e-9);
    }

    fn objective(kernels: &[Vec<f64>], a: &[f64]) -> f64 {
        kernels.iter().zip(a).map(|(k, x)| x * k.iter().zip(a).map(|(k, y)| k * y).sum::<f64>()).sum::<f64>() / 2.0
    }

    /// The projection onto the weights within the bounds that sum to `total`.
    fn project(v: &[f64], total: f64) -> Vec<f64> {
        let (mut low, mut high) = (-1e3, 1e3);
        for _ in 0..100 {
            let shift = 0.5 * (low + high);
            let sum: f64 = v.iter().map(|x| (x + shift).clamp(0.0, 1.0)).sum();
            if sum < total { low = shift } else { high = shift }
        }
        v.iter().map(|x| (x + low).clamp(0.0, 1.0)).collect()
    }

    /// The solution by projected gradient descent.
    fn gradient_descent(kernels: &[Vec<f64>], total: f64) -> Vec<f64> {
        let n = kernels.len();
        let mut a = vec![total / n as f64; n];
        // The step size is limited by the largest eigenvalue, which is at most the largest row sum.
        let largest = kernels.iter().map(|k| k.iter().sum::<f64>()).fold(1.0, f64::max);
        for _ in 0..4000 {
            let moved: Vec<f64> = kernels
                .iter()
                .zip(&a)
                .map(|(k, x)| x - k.iter().zip(&a).map(|(k, y)| k * y).sum::<f64>() / largest)
                .collect();
            a = project(&moved, total);
        }
        a
    }

    #[test]
    fn objective_matches_gradient_descent() {
        for (n, width, nu, scale) in [(40, 2, 0.1, 0.5), (60, 3, 0.5, 0.3), (50, 5, 0.25, 2.0), (30, 1, 0.9, 1.0)] {
            let rows = normal(n, width, scale, n as u64);
            let total = nu * n as f64;
            let k = kernels(&rows, width);
            let found = objective(&k, &solve(&rows, width, total, &Pool::new(1)).weights);
            let expected = objective(&k, &gradient_descent(&k, total));
            assert!((found - expected).abs() < 1e-3 * expected, "{n}: {found} {expected}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn optimality_conditions_hold(
            n in 1usize..120,
            width in 1usize..9,
            nu in 0.001f64..=1.0,
            scale in prop::sample::select(vec![1e-4, 0.05, 0.3, 1.0, 30.0]),
            copies in 1usize..6,
            seed in 0u64..1000,
        ) {
            let mut rows = normal(n, width, scale, seed);
            for i in n / copies..n {
                rows.copy_within((i / copies) * width..(i / copies + 1) * width, i * width);
            }
            let total = nu * n as f64;
            let solution = solve(&rows, width, total, &Pool::new(1));
            check(&rows, width, total, &solution);
        }
    }

    #[test]
    fn special_cases() {
        let pool = Pool::new(1);
        let one = solve(&[3.0, 4.0], 2, 0.1, &pool);
        assert_eq!((&one.weights[..], one.level()), (&[0.1][..], 0.1));
        let equal = vec![2.0f32; 50];
        let solution = solve(&equal, 1, 5.0, &pool);
        check(&equal, 1, 5.0, &solution);
        assert_eq!(solution.level(), 5.0);
        // Every weight is at its upper bound.
        let rows = normal(40, 3, 1.0, 1);
        let all = solve(&rows, 3, 40.0, &pool);
        check(&rows, 3, 40.0, &all);
        // All rows are far from each other.
        let apart: Vec<f32> = (0..33).map(|i| 1e14 * i as f32).collect();
        let solution = solve(&apart, 1, 3.3, &pool);
        check(&apart, 1, 3.3, &solution);
        assert!(solution.weights.iter().all(|a| (a - 0.1).abs() < 1e-2));
    }

    #[test]
    fn shrinking_and_threads() {
        let rows = normal(3000, 8, 0.9, 3);
        let solution = solve(&rows, 8, 1000.0, &Pool::new(1));
        assert!(solution.steps > 2 * SHRINK_INTERVAL, "{}", solution.steps);
        check(&rows, 8, 1000.0, &solution);
        let again = solve(&rows, 8, 1000.0, &Pool::new(3));
        assert!(again.weights == solution.weights && again.gradient == solution.gradient);
    }

    #[test]
    fn shrink_and_unshrink_change_nothing() {
        let rows = normal(500, 3, 0.5, 4);
        let pool = Pool::new(1);
        let mut solver = Solver::new(&rows, 3, 100.0, &pool);
        for _ in 0..60 {
            solver.step();
        }
        let before = (solver.a[..500].to_vec(), solver.g[..500].to_vec());
        let kept: Vec<usize> = (0..500).filter(|i| i % 3 != 0).collect();
        let mut cache = std::mem::replace(&mut solver.cache, Cache::new(CACHE));
        cache.keep(&kept);
        for (new, &old) in kept.iter().enumerate() {
            if let Some(slot) = cache.slots[new] {
                let row = &rows[old * 3..old * 3 + 3];
                let mut expected = vec![0.0; 512];
                solver.points.kernel_row(row, 0, &mut expected);
                assert!(kept.iter().enumerate().all(|(to, &from)| cache.rows[slot][to] == expected[from]));
            }
        }
        assert!(!cache.rows.is_empty());
        solver.shrink();
        assert!(!solver.is_complete());
        solver.unshrink();
        assert!(solver.is_complete() && solver.a[..500] == before.0);
        assert!(solver.g.iter().zip(&before.1).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}
