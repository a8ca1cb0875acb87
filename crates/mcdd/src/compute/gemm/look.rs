//! A product that is looked at and not stored.

use super::tile::add;
use super::{Line, MR, NR, Panels, ZERO, block};
use crate::compute::simd::{self, Kernel, Simd};

/// A visitor of the elements of a product that are small.
pub(crate) trait Look {
    /// The largest element of a row that matters. Mark it `#[inline(always)]`.
    fn limit(&self, row: usize) -> f32;

    /// Called with sixteen elements of a row, those of panel `panel`, unless all are above the row's limit.
    fn look(&mut self, row: usize, panel: usize, line: &Line);
}

/// Computes `start + a b` on the calling thread and passes the elements that are not above a limit to `look`. `a` is m x k and
/// row-major, and `start` is one line per panel. For any row, panels come in ascending order.
pub(crate) fn look(a: &[f32], b: Panels, start: &[Line], look: &mut impl Look) {
    let m = a.len().checked_div(b.k).unwrap_or(0);
    assert!(a.len() == m * b.k && start.len() == b.n.div_ceil(NR));
    simd::dispatch(Looking { a, b, start, look, m });
}

struct Looking<'a, L> {
    a: &'a [f32],
    b: Panels<'a>,
    start: &'a [Line],
    look: &'a mut L,
    m: usize,
}

impl<L: Look> Kernel for Looking<'_, L> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let mut panel = 0;
        if self.m == 1 {
            // One row needs several panels to keep the multipliers busy.
            self.all::<S, 1, 4>(simd, &mut panel);
            self.all::<S, 1, 1>(simd, &mut panel);
            return;
        }
        if S::WIDE {
            self.all::<S, MR, 2>(simd, &mut panel);
        }
        self.all::<S, MR, 1>(simd, &mut panel);
    }
}

impl<L: Look> Looking<'_, L> {
    /// Passes the panels from `panel` on, `P` at a time, as long as there are so many, in tiles of `R` rows.
    #[inline(always)]
    fn all<S: Simd, const R: usize, const P: usize>(&mut self, simd: S, panel: &mut usize) {
        // Sums of all rows between inner blocks; none if there is only one block.
        let blocks = if block(self.b.k) < self.b.k { self.m.div_ceil(R) } else { 0 };
        let mut waiting = vec![[[ZERO; P]; R]; blocks];
        while *panel + P <= self.start.len() {
            self.panels::<S, R, P>(simd, *panel, &mut waiting);
            *panel += P;
        }
    }

    #[inline(always)]
    fn panels<S: Simd, const R: usize, const P: usize>(
        &mut self,
        simd: S,
        panel: usize,
        waiting: &mut [[[Line; P]; R]],
    ) {
        let (k, m) = (self.b.k, self.m);
        let block = block(k);
        for from in (0..k).step_by(block) {
            let to = (from + block).min(k);
            let mut lines: [&[Line]; P] = [&[]; P];
            for j in 0..P {
                lines[j] = &self.b.panel(panel + j)[from..to];
            }
            for (t, row) in (0..m).step_by(R).enumerate() {
                let rows = R.min(m - row);
                let mut pointers = [self.a.as_ptr(); R];
                for r in 0..R {
                    // A tile at the lower edge repeats its last row and drops the results.
                    pointers[r] = self.a[(row + r.min(rows - 1)) * k + from..][..to - from].as_ptr();
                }
                let mut sums = [[simd.splat(0.0); P]; R];
                // SAFETY: a line is sixteen numbers, and each row of A is as long as the lines.
                unsafe {
                    for r in 0..R {
                        for j in 0..P {
                            let begin = if from == 0 { &self.start[panel + j] } else { &waiting[t][r][j] };
                            sums[r][j] = simd.load(begin.0.as_ptr());
                        }
                    }
                    sums = add(simd, pointers, 1, lines, sums);
                }
                for r in 0..R {
                    for j in 0..P {
                        if to == k && (r >= rows || !simd.any_not_above(sums[r][j], self.look.limit(row + r))) {
                            continue;
                        }
                        let mut line = ZERO;
                        // SAFETY: a line is sixteen numbers.
                        unsafe { simd.store(sums[r][j], line.0.as_mut_ptr()) };
                        if to == k {
                            self.look.look(row + r, panel + j, &line);
                        } else {
                            waiting[t][r][j] = line;
                        }
                    }
                }
            }
        }
    }
}
