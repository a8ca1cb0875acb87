//! Sequential minimal optimization: pairs of weights are moved until no pair violates the conditions of the optimum by
//! more than a tolerance.
//!
//! The pair is chosen with second-order information (Fan, Chen, Lin: Working Set Selection Using Second Order
//! Information for Training Support Vector Machines, JMLR 2005). Kernel rows are kept in a cache of bounded size, and
//! rows that seem settled at a bound are left out for a while (shrinking) and looked at again at the end.
//! The start is not arbitrary: the rows with the lowest density under a sample of the others are those that end at the
//! upper bound for the most part, so few pairs are left to move.

use super::rbf::Points;
use crate::compute::gemm::NR;
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd;

/// Violation of the conditions that is let pass, on the scale of the gradient; less for a total below 1, which no
/// gradient is above.
const TOLERANCE: f64 = 1e-3;
/// Instead of a curvature of 0, which copies of a row have.
const FLAT: f64 = 1e-12;
/// Bytes of kernel rows that are kept.
const CACHE: usize = 256 << 20;
/// Features of the sample for the start.
const SAMPLE: usize = 512;
/// Steps between two looks at what can be left out.
const SHRINK: usize = 1000;
/// Multiplications for a kernel row from which on it is computed on several threads.
const LONG: usize = 1 << 16;
/// Features of a gradient that one thread takes at a time.
const BLOCK: usize = 192;
/// Numbers side by side in the loops over all weights.
const LANES: usize = 8;

/// Weights and `K a`.
#[derive(Debug)]
pub(super) struct Solution {
    pub(super) weights: Vec<f64>,
    pub(super) gradient: Vec<f64>,
    pub(super) steps: usize,
}

impl Solution {
    /// The gradient at the boundary: that of the weights strictly between the bounds; where there are none, the middle
    /// of what the conditions allow.
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

/// Those of positive weight, and the weights, filled up with zeros to whole panels.
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

/// Weight 1 for as many rows as `total` says, those of the lowest density, and the rest of `total` for the next.
fn start(rows: &[f32], width: usize, total: f64, pool: &Pool) -> Vec<f64> {
    let n = rows.len() / width;
    let mut sampled = vec![0.0; n];
    sampled.iter_mut().step_by(n.div_ceil(SAMPLE)).for_each(|w| *w = 1.0);
    let density = sums(rows, rows, &sampled, width, pool);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| density[i].total_cmp(&density[j]));
    let mut weights = vec![0.0; n];
    for (place, i) in order.into_iter().enumerate() {
        weights[i] = (total - place as f64).clamp(0.0, 1.0);
    }
    weights
}

/// Solves `min 1/2 a'Ka`, `0 <= a <= 1`, `sum a = total`, for rows of `width` features and a total of at most their
/// number.
pub(super) fn solve(rows: &[f32], width: usize, total: f64, pool: &Pool) -> Solution {
    let mut solver = Solver::new(rows, width, total, pool);
    let n = rows.len() / width;
    // Never reached by what is in its right mind; what there is then is still a description of the rows.
    let most = (100 * n).max(1_000_000);
    let mut steps = 0;
    let mut due = SHRINK.min(n);
    while steps < most {
        match solver.step() {
            Step::Moved => steps += 1,
            Step::Settled if solver.is_whole() => break,
            Step::Settled => solver.take_back(),
        }
        due -= 1;
        if due == 0 {
            solver.leave_out();
            due = SHRINK.min(n);
        }
    }
    solver.take_back();
    let mut solution = solver.solution;
    solution.steps = steps;
    solution
}

enum Step {
    Moved,
    Settled,
}

/// The weights that are still moved, and what is known about them.
struct Solver<'a> {
    rows: &'a [f32],
    width: usize,
    pool: &'a Pool,
    /// Of all rows; what it has of the active ones is old.
    solution: Solution,
    /// The rows that are not left out.
    active: Vec<usize>,
    points: Points,
    /// Of the active rows, filled up to whole panels with what is never chosen.
    a: Vec<f64>,
    g: Vec<f64>,
    /// Where the weight can grow and the gradient is lowest.
    lowest: Option<usize>,
    cache: Cache,
    tolerance: f64,
}

impl<'a> Solver<'a> {
    fn new(rows: &'a [f32], width: usize, total: f64, pool: &'a Pool) -> Solver<'a> {
        let weights = start(rows, width, total, pool);
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
        solver.set_up();
        solver
    }

    /// Takes weights and gradients of the active rows from the solution.
    fn set_up(&mut self) {
        let n = self.active.len();
        let padded = n.next_multiple_of(NR);
        self.a = self.active.iter().map(|&i| self.solution.weights[i]).collect();
        self.g = self.active.iter().map(|&i| self.solution.gradient[i]).collect();
        self.lowest = (0..n).filter(|&i| self.a[i] < 1.0).min_by(|&i, &j| self.g[i].total_cmp(&self.g[j]));
        // A weight that cannot grow, with a gradient that nothing gains from lowering.
        self.a.resize(padded, 1.0);
        self.g.resize(padded, f64::NEG_INFINITY);
    }

    /// Puts weights and gradients of the active rows into the solution.
    fn put_back(&mut self) {
        for ((&i, &a), &g) in self.active.iter().zip(&self.a).zip(&self.g) {
            self.solution.weights[i] = a;
            self.solution.gradient[i] = g;
        }
    }

    /// Whether no row is left out.
    fn is_whole(&self) -> bool {
        self.active.len() == self.solution.weights.len()
    }

    /// The place of the kernel row of active row `i` in the cache.
    fn row(&mut self, i: usize) -> usize {
        let Solver { rows, width, pool, active, points, cache, .. } = self;
        let row = &rows[active[i] * *width..][..*width];
        cache.get(i, active.len().next_multiple_of(NR), |out| {
            let chunk = if out.len() * *width < LONG { out.len() } else { pool.chunk(out.len(), 4 * NR) };
            pool.split(chunks(out, chunk), |c, out| points.against(row, c * chunk / NR, out));
        })
    }

    /// Moves the best pair.
    fn step(&mut self) -> Step {
        let Some(i) = self.lowest else { return Step::Settled };
        let at_i = self.row(i);
        let second = second(&self.g, &self.a, &self.cache.rows[at_i], self.g[i]);
        if second.highest - self.g[i] < self.tolerance {
            return Step::Settled;
        }
        let j = second.at;
        let at_j = self.row(j);
        let (ki, kj) = (&self.cache.rows[at_i], &self.cache.rows[at_j]);
        let (more, less) = (1.0 - self.a[i], self.a[j]);
        let wanted = (self.g[j] - self.g[i]) / (2.0 - 2.0 * f64::from(ki[j])).max(FLAT);
        let by = wanted.min(more).min(less);
        self.a[i] = if by == more { 1.0 } else { self.a[i] + by };
        self.a[j] = if by == less { 0.0 } else { self.a[j] - by };
        let best = advance(&mut self.g, &self.a, ki, kj, by);
        self.lowest = (best.value > f64::NEG_INFINITY).then_some(best.at);
        Step::Moved
    }

    /// Leaves out rows at a bound whose gradient says that they stay there, if that is worth it.
    fn leave_out(&mut self) {
        let n = self.active.len();
        let up = self.lowest.map_or(f64::INFINITY, |i| self.g[i]);
        let down = (0..n).filter(|&i| self.a[i] > 0.0).map(|i| self.g[i]).fold(f64::NEG_INFINITY, f64::max);
        let settled = |i: &usize| {
            let (a, g) = (self.a[*i], self.g[*i]);
            (a <= 0.0 && g > down) || (a >= 1.0 && g < up)
        };
        let kept: Vec<usize> = (0..n).filter(|i| !settled(i)).collect();
        if 5 * kept.len() > 4 * n || kept.is_empty() {
            return;
        }
        self.put_back();
        self.cache.keep(&kept);
        self.active = kept.into_iter().map(|i| self.active[i]).collect();
        self.points = Points::new(&gather(self.rows, self.width, &self.active), self.width);
        self.set_up();
    }

    /// Takes all rows back in, with the gradients of those left out computed anew.
    fn take_back(&mut self) {
        self.put_back();
        if self.is_whole() {
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
        self.set_up();
    }
}

/// The largest of some values and the first place that has it.
struct Best {
    value: f64,
    at: usize,
}

impl Best {
    /// Of lanes that each have the first block with their largest value.
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

/// Moves the gradient along and finds where it is lowest among the weights that can grow.
fn advance(g: &mut [f64], a: &[f64], ki: &[f32], kj: &[f32], by: f64) -> Best {
    struct Advance<'a> {
        g: &'a mut [f64],
        a: &'a [f64],
        ki: &'a [f32],
        kj: &'a [f32],
        by: f64,
        best: &'a mut Best,
    }
    impl simd::Kernel for Advance<'_> {
        #[inline(always)]
        fn run(self) {
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

/// The other half of a pair.
struct Second {
    at: usize,
    /// The highest gradient among the weights that can fall.
    highest: f64,
}

/// The weight that can fall with the largest gain `(g_j - g_i)^2 / (2 - 2 K_ij)`.
fn second(g: &[f64], a: &[f64], ki: &[f32], gi: f64) -> Second {
    struct Find<'a> {
        g: &'a [f64],
        a: &'a [f64],
        ki: &'a [f32],
        gi: f64,
        found: &'a mut Second,
    }
    impl simd::Kernel for Find<'_> {
        #[inline(always)]
        fn run(self) {
            let (g, a, ki) =
                (self.g.as_chunks::<LANES>().0, self.a.as_chunks::<LANES>().0, self.ki.as_chunks::<LANES>().0);
            let (mut values, mut blocks) = ([f64::NEG_INFINITY; LANES], [0u64; LANES]);
            let mut highest = [f64::NEG_INFINITY; LANES];
            for (block, ((g, a), ki)) in (0u64..).zip(g.iter().zip(a).zip(ki)) {
                for l in 0..LANES {
                    let falls = if a[l] > 0.0 { g[l] } else { f64::NEG_INFINITY };
                    highest[l] = if falls > highest[l] { falls } else { highest[l] };
                    let gap = if falls > self.gi { falls - self.gi } else { 0.0 };
                    let curvature = 2.0 - 2.0 * f64::from(ki[l]);
                    let curvature = if curvature > FLAT { curvature } else { FLAT };
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

/// Kernel rows; when there is no more room, the one goes that was not used for the longest time.
struct Cache {
    /// Their size at most, but for two rows, which always have room.
    bytes: usize,
    rows: Vec<Vec<f32>>,
    /// Of each place: whose row it has, and when it was used.
    owners: Vec<usize>,
    used: Vec<u64>,
    /// Of each active row: where it is, if anywhere.
    places: Vec<Option<usize>>,
    clock: u64,
}

impl Cache {
    fn new(bytes: usize) -> Cache {
        Cache { bytes, rows: vec![], owners: vec![], used: vec![], places: vec![], clock: 0 }
    }

    /// The place of row `i`, which is `compute`d if it is not there. The place that was given out last stays as it is.
    fn get(&mut self, i: usize, length: usize, compute: impl FnOnce(&mut [f32])) -> usize {
        self.clock += 1;
        if self.places.len() < length {
            self.places.resize(length, None);
        }
        let place = match self.places[i] {
            Some(place) => place,
            None => {
                let place = self.room(length);
                self.owners[place] = i;
                self.places[i] = Some(place);
                compute(&mut self.rows[place]);
                place
            }
        };
        self.used[place] = self.clock;
        place
    }

    /// A place to write to.
    fn room(&mut self, length: usize) -> usize {
        if self.rows.len() < (self.bytes / (4 * length)).max(2) {
            self.rows.push(vec![0.0; length]);
            self.owners.push(0);
            self.used.push(0);
            return self.rows.len() - 1;
        }
        let oldest = (0..self.used.len()).min_by_key(|&p| self.used[p]).unwrap_or(0);
        self.places[self.owners[oldest]] = None;
        oldest
    }

    /// Drops all but some of the active rows, which are numbered anew.
    fn keep(&mut self, kept: &[usize]) {
        let length = kept.len().next_multiple_of(NR);
        let old = std::mem::replace(self, Cache::new(self.bytes));
        let mut rows: Vec<Option<Vec<f32>>> = old.rows.into_iter().map(Some).collect();
        self.clock = old.clock;
        self.places = vec![None; length];
        for (new, &i) in kept.iter().enumerate() {
            let Some(place) = old.places.get(i).copied().flatten() else { continue };
            let Some(mut row) = rows[place].take() else { continue };
            // In place: what is kept only moves forward.
            for (to, &from) in kept.iter().enumerate() {
                row[to] = row[from];
            }
            row.truncate(length);
            row[kept.len()..].fill(0.0);
            row.shrink_to_fit();
            self.places[new] = Some(self.rows.len());
            self.rows.push(row);
            self.owners.push(new);
            self.used.push(old.used[place]);
        }
    }
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

    /// All kernels, as the solver has them.
    fn kernels(rows: &[f32], width: usize) -> Vec<Vec<f64>> {
        let points = Points::new(rows, width);
        let mut out = vec![0.0; points.count().next_multiple_of(NR)];
        rows.chunks(width)
            .map(|row| {
                points.against(row, 0, &mut out);
                out[..points.count()].iter().map(|&k| f64::from(k)).collect()
            })
            .collect()
    }

    /// The conditions of the optimum, from the definition.
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
        // At most so many are outside, and at least so many are support vectors.
        let outside = gradient.iter().filter(|&&g| g < level - 1e-3 * total.min(1.0)).count();
        assert!(outside as f64 <= total + 1e-9, "{outside} {total}");
        assert!(weights.iter().filter(|&&a| a > 0.0).count() as f64 >= total - 1e-9);
    }

    fn objective(kernels: &[Vec<f64>], a: &[f64]) -> f64 {
        kernels.iter().zip(a).map(|(k, x)| x * k.iter().zip(a).map(|(k, y)| k * y).sum::<f64>()).sum::<f64>() / 2.0
    }

    /// The nearest weights within the bounds that have the sum.
    fn project(v: &[f64], total: f64) -> Vec<f64> {
        let (mut low, mut high) = (-1e3, 1e3);
        for _ in 0..100 {
            let shift = 0.5 * (low + high);
            let sum: f64 = v.iter().map(|x| (x + shift).clamp(0.0, 1.0)).sum();
            if sum < total { low = shift } else { high = shift }
        }
        v.iter().map(|x| (x + low).clamp(0.0, 1.0)).collect()
    }

    /// Projected gradient descent.
    fn slow(kernels: &[Vec<f64>], total: f64) -> Vec<f64> {
        let n = kernels.len();
        let mut a = vec![total / n as f64; n];
        // No step may be longer than the largest eigenvalue allows, which no row sum is below.
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
    fn the_objective_is_that_of_a_slow_method() {
        for (n, width, nu, scale) in [(40, 2, 0.1, 0.5), (60, 3, 0.5, 0.3), (50, 5, 0.25, 2.0), (30, 1, 0.9, 1.0)] {
            let rows = normal(n, width, scale, n as u64);
            let total = nu * n as f64;
            let k = kernels(&rows, width);
            let found = objective(&k, &solve(&rows, width, total, &Pool::new(1)).weights);
            let expected = objective(&k, &slow(&k, total));
            assert!((found - expected).abs() < 1e-3 * expected, "{n}: {found} {expected}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn the_conditions_of_the_optimum_hold(
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
        // Every weight at its bound.
        let rows = normal(40, 3, 1.0, 1);
        let all = solve(&rows, 3, 40.0, &pool);
        check(&rows, 3, 40.0, &all);
        // Nothing near anything.
        let apart: Vec<f32> = (0..33).map(|i| 1e14 * i as f32).collect();
        let solution = solve(&apart, 1, 3.3, &pool);
        check(&apart, 1, 3.3, &solution);
        assert!(solution.weights.iter().all(|a| (a - 0.1).abs() < 1e-2));
    }

    #[test]
    fn many_steps_with_rows_left_out_and_any_number_of_threads() {
        let rows = normal(3000, 8, 0.9, 3);
        let solution = solve(&rows, 8, 1000.0, &Pool::new(1));
        assert!(solution.steps > 2 * SHRINK, "{}", solution.steps);
        check(&rows, 8, 1000.0, &solution);
        let again = solve(&rows, 8, 1000.0, &Pool::new(3));
        assert!(again.weights == solution.weights && again.gradient == solution.gradient);
    }

    #[test]
    fn leaving_out_and_taking_back_changes_nothing() {
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
            if let Some(place) = cache.places[new] {
                let row = &rows[old * 3..old * 3 + 3];
                let mut expected = vec![0.0; 512];
                solver.points.against(row, 0, &mut expected);
                assert!(kept.iter().enumerate().all(|(to, &from)| cache.rows[place][to] == expected[from]));
            }
        }
        assert!(!cache.rows.is_empty());
        solver.leave_out();
        assert!(!solver.is_whole());
        solver.take_back();
        assert!(solver.is_whole() && solver.a[..500] == before.0);
        assert!(solver.g.iter().zip(&before.1).all(|(a, b)| (a - b).abs() < 1e-6));
    }

    #[test]
    fn the_cache_forgets_the_oldest() {
        // Only two have room.
        let length = 64;
        let mut cache = Cache::new(2 * 4 * length);
        let get = |cache: &mut Cache, i: usize| {
            let mut computed = false;
            let place = cache.get(i, length, |row| {
                row[0] = i as f32;
                computed = true;
            });
            assert_eq!(cache.rows[place][0], i as f32);
            computed
        };
        let order = [(0, true), (1, true), (0, false), (2, true), (0, false), (1, true), (2, true)];
        for (i, computed) in order {
            assert_eq!(get(&mut cache, i), computed);
        }
        assert_eq!(cache.rows.len(), 2);
    }
}
