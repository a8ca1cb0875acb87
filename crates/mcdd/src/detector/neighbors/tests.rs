use super::*;
use crate::seed::Stream;
use proptest::prelude::*;

/// By definition: all pairs, sorted, with ties by the index of the row.
fn naive(index: &Index, query: &[f32], k: usize, own: Option<usize>) -> Vec<Neighbor> {
    let mut all: Vec<Neighbor> = (0..index.count())
        .filter(|&row| own != Some(row))
        .map(|row| Neighbor { value: index.value(query, row), row })
        .collect();
    all.sort();
    all.truncate(k);
    all
}

/// Rows of several difficult kinds.
fn random(kind: usize, count: usize, width: usize, s: &mut Stream) -> Vec<f32> {
    let normal = |s: &mut Stream| s.normal() as f32;
    let mut rows: Vec<f32> = match kind {
        // Integers: ties everywhere.
        1 => (0..count * width).map(|_| s.below(3) as f32).collect(),
        // Far from the origin and close together: squares would lose all digits.
        2 => (0..count * width).map(|_| 1e4 + 1e-2 * normal(s)).collect(),
        // Tight clusters far from each other, for which centering does not help.
        3 => (0..count).flat_map(|i| vec![[-1e4, 1e4, 3.0][i % 3]; width]).map(|c| c + 1e-2 * normal(s)).collect(),
        // The largest features, and beyond.
        4 => (0..count * width).map(|_| 1e15 * normal(s).clamp(-1.0, 1.0)).collect(),
        5 => (0..count * width).map(|_| if s.below(9) == 0 { 3e38 } else { -3e38 * s.uniform() as f32 }).collect(),
        // A few outliers.
        6 => (0..count)
            .flat_map(|i| vec![[1.0, 1.0, 1.0, 1e5, 1e15][i % 5]; width])
            .map(|size| size * normal(s))
            .collect(),
        // Squares that underflow f32.
        7 => (0..count * width).map(|_| 1e-25 * normal(s)).collect(),
        8 => vec![0.7; count * width],
        _ => (0..count * width).map(|_| normal(s)).collect(),
    };
    // Duplicates.
    for _ in 0..count / 4 {
        let (from, to) = (s.below(count), s.below(count));
        rows.copy_within(from * width..(from + 1) * width, to * width);
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn matches_definition(
        kind in 0usize..9, other in 0usize..9, count in 1usize..400, width in 1usize..200, k in 1usize..60, seed: u64,
    ) {
        let mut s = Stream::new(seed, "neighbors");
        let index = Index::new(Metric::Distance, random(kind, count, width, &mut s), width, 1, &Pool::new(2));
        // Rows like the stored ones, other rows, and stored rows.
        let mut queries = random(kind, 15, width, &mut s);
        queries.extend(random(other, 15, width, &mut s));
        queries.extend(&index.rows()[..count.min(7) * width]);
        let mut seen = 0;
        index.nearest(&queries, k, None, |i, found| {
            let query = &queries[i * width..(i + 1) * width];
            assert_eq!(found, naive(&index, query, k, None));
            seen += 1;
            // The values are correct, and a single query gives the same result.
            let first = &index.rows()[found[0].row * width..][..width];
            let plain: f64 = query.iter().zip(first).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
            assert!((plain - found[0].value).abs() <= 1e-13 * plain);
            index.nearest(query, k, None, |_, alone| assert_eq!(alone, found));
        });
        prop_assert_eq!(seen, queries.len() / width);
        // Stored rows as queries, without themselves.
        let from = s.below(count);
        index.nearest(&index.rows()[from * width..], k, Some(from), |i, found| {
            let query = &index.rows()[(from + i) * width..][..width];
            assert_eq!(found, naive(&index, query, k, Some(from + i)));
        });
    }

    #[test]
    fn tree_matches_brute_force(
        kind in 0usize..9, other in 0usize..9, count in 1usize..1500, width in 1usize..40, k in 1usize..12,
        budget in 0usize..80, seed: u64,
    ) {
        let mut s = Stream::new(seed, "boxes");
        let pool = Pool::new(2);
        let mut index = Index::new(Metric::Distance, random(kind, count, width, &mut s), width, 1, &pool);
        let mut queries = random(kind, 15, width, &mut s);
        queries.extend(random(other, 15, width, &mut s));
        queries.extend(&index.rows()[..count.min(7) * width]);
        let from = s.below(count);
        let own = index.rows()[from * width..][..(count - from).min(20) * width].to_vec();
        let all = |index: &Index| {
            let mut found = Vec::new();
            index.nearest(&queries, k, None, |_, best| found.push(best.to_vec()));
            index.nearest(&own, k, Some(from), |_, best| found.push(best.to_vec()));
            found
        };
        index.tree = None;
        let expected = all(&index);
        // With an unlimited budget, and with a limited one.
        for budget in [usize::MAX, budget] {
            for mut tree in [Some(Tree::as_given(&index, &pool)), Tree::turned(&index, &pool)].into_iter().flatten() {
                tree.budget = budget;
                index.tree = Some(tree);
                prop_assert_eq!(&all(&index), &expected);
                for (query, expected) in queries.chunks(width).zip(&expected) {
                    index.nearest(query, k, None, |_, alone| assert_eq!(alone, expected));
                }
            }
        }
    }

    #[test]
    fn inner_products_match_definition(
        kind in 0usize..9, count in 1usize..400, width in 1usize..200, k in 1usize..60, seed: u64,
    ) {
        let mut s = Stream::new(seed, "products");
        let index = Index::new(Metric::Inner, random(kind, count, width, &mut s), width, 1, &Pool::new(2));
        let mut queries = normalize_rows(&random(kind, 15, width, &mut s), width);
        queries.extend(normalize_rows(&random(0, 15, width, &mut s), width));
        index.nearest(&queries, k, None, |i, found| {
            assert_eq!(found, naive(&index, &queries[i * width..(i + 1) * width], k, None));
        });
    }
}

#[test]
fn many_neighbors_and_wide_rows() {
    let mut s = Stream::new(4, "many");
    for (count, width, k) in [(3000, 2, 2500), (700, 1100, 700), (50, 3, 9999)] {
        let index = Index::new(Metric::Distance, random(0, count, width, &mut s), width, 1, &Pool::new(1));
        let queries = random(0, 230, width, &mut s);
        index.nearest(&queries, k, None, |i, found| {
            if i % 57 == 0 {
                assert_eq!(found, naive(&index, &queries[i * width..(i + 1) * width], k, None));
            }
        });
    }
}

#[test]
fn rows_are_normalized() {
    let rows = normalize_rows(&[3.0, 4.0, 0.0, 0.0, 1e-30, 0.0, -3e38, 3e38], 2);
    let half = std::f32::consts::FRAC_1_SQRT_2;
    assert_eq!(rows, [0.6, 0.8, 0.0, 0.0, 1.0, 0.0, -half, half]);
}

#[test]
fn tree_is_used_only_if_fast() {
    let (count, width) = (5000, 24);
    let mut s = Stream::new(6, "surface");
    let pool = Pool::new(2);
    // A surface of two dimensions, similar to latents, and rows without structure.
    let mut surface = Vec::new();
    for _ in 0..count + 300 {
        let (a, b) = (s.uniform(), s.uniform());
        surface.extend((0..width).map(|f| (libm::sin(a * f as f64) + libm::cos(b * (f + 3) as f64)) as f32));
    }
    let (rows, mut queries) = (surface[..count * width].to_vec(), surface[count * width..].to_vec());
    queries.extend(random(0, 300, width, &mut s));
    queries.extend(random(4, 30, width, &mut s));
    let mut index = Index::new(Metric::Distance, rows, width, 1, &pool);
    let mut answers = [Vec::new(), Vec::new()];
    assert!(index.tree.is_some());
    for answers in &mut answers {
        for k in [1, 5, 40] {
            index.nearest(&queries, k, None, |_, found| answers.push(found.to_vec()));
        }
        index.tree = None;
    }
    assert_eq!(answers[0], answers[1]);
    assert!(Index::new(Metric::Distance, random(0, count, width, &mut s), width, 1, &pool).tree.is_none());
    assert!(Index::new(Metric::Inner, index.rows, width, 1, &pool).tree.is_none());
}
