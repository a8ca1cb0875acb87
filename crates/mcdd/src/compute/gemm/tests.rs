use super::*;
use crate::seed::Stream;
use proptest::prelude::*;

fn random(n: usize, name: &str) -> Vec<f32> {
    let mut s = Stream::new(5, name);
    (0..n).map(|_| s.normal() as f32).collect()
}

/// By definition, with the chain of multiply-adds that the kernels guarantee.
fn naive(a: &[f32], b: &[f32], (m, k, n): (usize, usize, usize)) -> Vec<f32> {
    let mut c = vec![0.0f32; m * n];
    for i in 0..m {
        for j in 0..n {
            c[i * n + j] = (0..k).fold(0.0, |s, p| a[i * k + p].mul_add(b[p * n + j], s));
        }
    }
    c
}

fn packed(b: &[f32], k: usize, n: usize, transposed: bool) -> Vec<Line> {
    let mut lines = vec![ZERO; Panels::lines(k, n)];
    // In two parts, as on two threads.
    let middle = n.div_ceil(NR) / 2;
    let (left, right) = lines.split_at_mut(middle * k);
    let pack = if transposed { pack_transposed } else { pack };
    pack(left, b, k, n, 0);
    pack(right, b, k, n, middle);
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn products_match_definition_for_any_shape(m in 1usize..40, k in 1usize..300, n in 1usize..70) {
        let (a, b) = (random(m * k, "a"), random(k * n, "b"));
        let expected = naive(&a, &b, (m, k, n));
        let lines = packed(&b, k, n, false);
        let panels = Panels::new(&lines, k, n);
        let mut c = vec![f32::NAN; m * n];
        product(&a, panels, &mut c, Then::Keep);
        prop_assert_eq!(&c, &expected);
        // In two parts of the inner index.
        let columns = |range: std::ops::Range<usize>| -> Vec<f32> {
            a.chunks(k).flat_map(|row| row[range.clone()].to_vec()).collect()
        };
        let half = k / 2;
        product(&columns(0..half), panels.rows(0..half), &mut c, Then::Keep);
        add_product(&columns(half..k), panels.rows(half..k), &mut c, Then::Keep);
        prop_assert_eq!(&c, &expected);
        // A single row gives the same bits as in a batch.
        let mut row = vec![0.0; n];
        product(&a[..k], panels, &mut row, Then::Keep);
        prop_assert_eq!(&row[..], &expected[..n]);
        // The transpose of the transpose.
        let transposed: Vec<f32> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
        let again = packed(&transposed, k, n, true);
        product(&a, Panels::new(&again, k, n), &mut c, Then::Keep);
        prop_assert_eq!(&c, &expected);
        // Bias, ReLU and the backward pass.
        let bias = random(n, "bias");
        product(&a, panels, &mut c, Then::BiasRelu(&bias));
        for (i, (&got, &e)) in c.iter().zip(&expected).enumerate() {
            prop_assert_eq!(got, (e + bias[i % n]).max(0.0));
        }
        let mut back = vec![0.0; m * n];
        product(&a, panels, &mut back, Then::Where(&c));
        for ((&got, &e), &z) in back.iter().zip(&expected).zip(&c) {
            prop_assert_eq!(got, if z > 0.0 { e } else { 0.0 });
        }
    }

    #[test]
    fn visited_tiles_match_definition(m in 1usize..40, k in 1usize..600, n in 1usize..70) {
        struct Write<'a>(&'a mut [f32], usize, f32);
        impl Look for Write<'_> {
            fn limit(&self, _: usize) -> f32 {
                self.2
            }
            fn look(&mut self, row: usize, panel: usize, line: &Line) {
                for (j, &v) in line.0.iter().enumerate().filter(|(j, _)| panel * NR + j < self.1) {
                    self.0[row * self.1 + panel * NR + j] = v;
                }
            }
        }
        let (a, b, start) = (random(m * k, "a"), random(k * n, "b"), random(n, "start"));
        let lines = packed(&b, k, n, false);
        let mut first = vec![ZERO; n.div_ceil(NR)];
        start.iter().enumerate().for_each(|(j, &v)| first[j / NR].0[j % NR] = v);
        let mut c = vec![f32::NAN; m * n];
        look(&a, Panels::new(&lines, k, n), &first, &mut Write(&mut c, n, f32::INFINITY));
        let mut some = vec![f32::NAN; m * n];
        look(&a, Panels::new(&lines, k, n), &first, &mut Write(&mut some, n, -2.0));
        for (i, (&got, &some)) in c.iter().zip(&some).enumerate() {
            let (row, j) = (i / n, i % n);
            prop_assert_eq!(got, (0..k).fold(start[j], |s, p| a[row * k + p].mul_add(b[p * n + j], s)));
            // Sixteen elements are seen if one of them is not above the limit.
            let panel = &c[row * n..][j / NR * NR..n.min((j / NR + 1) * NR)];
            let seen = panel.iter().any(|&v| v <= -2.0);
            prop_assert!(seen && some == got || !seen && some.is_nan());
        }
    }

    #[test]
    fn weight_gradients_match_definition(batch in 1usize..600, inputs in 1usize..60, outputs in 1usize..40) {
        let (x, dy) = (random(batch * inputs, "x"), random(batch * outputs, "dy"));
        let xt: Vec<f32> = (0..inputs * batch).map(|i| x[i % batch * inputs + i / batch]).collect();
        let expected = naive(&xt, &dy, (inputs, batch, outputs));
        let lines = packed(&dy, batch, outputs, false);
        let (mut dw, mut db) = (vec![0.0; inputs * outputs], vec![0.0; outputs]);
        let mut columns = Columns::default();
        for (i, dw) in dw.chunks_mut(WEIGHT_ROWS * outputs).enumerate() {
            weight_gradient(&x, inputs, Panels::new(&lines, batch, outputs), i * WEIGHT_ROWS, dw, false, &mut columns);
        }
        prop_assert_eq!(&dw, &expected);
        // In two parts of the rows.
        let (half, panels) = (batch / 2, Panels::new(&lines, batch, outputs));
        for (i, dw) in dw.chunks_mut(WEIGHT_ROWS * outputs).enumerate() {
            let first = i * WEIGHT_ROWS;
            weight_gradient(&x[..half * inputs], inputs, panels.rows(0..half), first, dw, false, &mut columns);
            weight_gradient(&x[half * inputs..], inputs, panels.rows(half..batch), first, dw, true, &mut columns);
        }
        prop_assert_eq!(dw, expected);
        column_sums(&lines, batch, &mut db);
        for (j, &got) in db.iter().enumerate() {
            prop_assert_eq!(got, (0..batch).fold(0.0, |s: f32, i| s + dy[i * outputs + j]));
        }
    }
}

#[test]
fn sums_of_nothing_are_zero() {
    let (inputs, outputs) = (7, 5);
    let mut dw = vec![3.0; inputs * outputs];
    weight_gradient(&[], inputs, Panels::new(&[], 0, outputs), 0, &mut dw, true, &mut Columns::default());
    assert!(dw.iter().all(|&v| v == 3.0));
    weight_gradient(&[], inputs, Panels::new(&[], 0, outputs), 0, &mut dw, false, &mut Columns::default());
    assert!(dw.iter().all(|&v| v == 0.0));
    for rows in [1, 4] {
        let mut c = vec![3.0; rows * outputs];
        product(&[], Panels::new(&[], 0, outputs), &mut c, Then::Keep);
        assert!(c.iter().all(|&v| v == 0.0));
    }
}
