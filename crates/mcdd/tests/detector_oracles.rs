//! Compares detectors with other libraries, on the rows and scores of `scripts/detector_fixtures.py`.

use mcdd::compute::pool::Pool;
use mcdd::detector::{DetectorConfig, Features, Fitted, LastLayer, Training};
use serde::Deserialize;

/// Detectors without a reference score, and the reason.
const WITHOUT_REFERENCE: [(&str, &str); 1] = [("distance", "a trained head's own score; it is not fitted on features")];

#[derive(Deserialize)]
struct Fixture {
    classes: usize,
    width: usize,
    weight: Vec<Vec<f32>>,
    bias: Vec<f32>,
    labels: Vec<u32>,
    train: Vec<Vec<f32>>,
    train_logits: Vec<Vec<f64>>,
    test: Vec<Vec<f32>>,
    test_logits: Vec<Vec<f64>>,
    expectations: Vec<Expectation>,
}

#[derive(Deserialize)]
struct Expectation {
    /// The detector, as users type it.
    spec: String,
    /// The library.
    peer: String,
    #[serde(flatten)]
    agree: Agree,
    /// How the score was computed.
    why: String,
    /// The widths of the layers of the features; empty for one layer.
    #[serde(default)]
    parts: Vec<usize>,
    /// The features to use; empty for all.
    #[serde(default)]
    columns: Vec<usize>,
    confidence: Vec<f64>,
}

/// How scores must agree.
#[derive(Clone, Copy, Deserialize)]
#[serde(tag = "agree", rename_all = "lowercase")]
enum Agree {
    /// The same numbers.
    Value { tolerance: f64 },
    /// The same numbers up to a positive factor and a constant.
    Affine { tolerance: f64 },
    /// A rank correlation, for scores that are random or of which only the order is known.
    Spearman { least: f64 },
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("fixtures/detectors.json")).unwrap()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { 0.5 * (sorted[half - 1] + sorted[half]) }
}

/// The smallest divisor of a relative error: a tenth of the median absolute deviation. Confidences around 0 need one, and
/// outliers do not increase it as they would a standard deviation.
fn scale(expected: &[f64]) -> f64 {
    let middle = median(expected);
    0.1 * median(&expected.iter().map(|e| (e - middle).abs()).collect::<Vec<_>>())
}

/// The row with the largest error, and that error: `|got - expected| / max(|expected|, scale)`.
fn worst(got: &[f64], expected: &[f64]) -> (usize, f64) {
    let scale = scale(expected);
    let errors = got.iter().zip(expected).map(|(g, e)| (g - e).abs() / e.abs().max(scale));
    // NaN is the worst error.
    errors.map(|e| if e.is_nan() { f64::INFINITY } else { e }).enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
}

/// The slope of the regression of `y` on `x`, and their correlation.
fn slope_and_correlation(x: &[f64], y: &[f64]) -> (f64, f64) {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (mx, my) = (mean(x), mean(y));
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        xx += (x - mx) * (x - mx);
        xy += (x - mx) * (y - my);
        yy += (y - my) * (y - my);
    }
    (xy / xx, xy / (xx * yy).sqrt())
}

/// The `factor` and `constant` for which `factor * got + constant` is closest to the expected scores.
fn affine(got: &[f64], expected: &[f64]) -> (f64, f64) {
    let factor = slope_and_correlation(got, expected).0;
    (factor, (expected.iter().sum::<f64>() - factor * got.iter().sum::<f64>()) / got.len() as f64)
}

/// Ranks, with the mean rank for ties.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |v: f64| values.iter().filter(|&&w| w < v).count() as f64;
    let equal = |v: f64| values.iter().filter(|&&w| w == v).count() as f64;
    values.iter().map(|&v| below(v) + 0.5 * (equal(v) - 1.0)).collect()
}

fn spearman(got: &[f64], expected: &[f64]) -> f64 {
    slope_and_correlation(&ranks(got), &ranks(expected)).1
}

/// Compares scores; the error describes the difference.
fn compare(got: &[f64], expected: &[f64], agree: Agree) -> Result<(), String> {
    if got.len() != expected.len() {
        return Err(format!("{} confidences for {} rows", got.len(), expected.len()));
    }
    let (factor, constant) = affine(got, expected);
    let mapped: Vec<f64> = got.iter().map(|g| factor * g + constant).collect();
    let mapped_error = if factor > 0.0 { worst(&mapped, expected).1 } else { f64::INFINITY };
    let (values, tolerance) = match agree {
        Agree::Value { tolerance } => (got, tolerance),
        Agree::Affine { tolerance } if factor > 0.0 => (&mapped[..], tolerance),
        Agree::Affine { .. } => return Err(format!("opposite direction: best factor {factor:e}")),
        Agree::Spearman { least } => {
            let found = spearman(got, expected);
            return if found >= least { Ok(()) } else { Err(format!("rank correlation {found:.4}, at least {least}")) };
        }
    };
    let (row, error) = worst(values, expected);
    if error <= tolerance {
        return Ok(());
    }
    Err(format!(
        "worst in row {row}: got {}, expected {}, error {error:.1e} above {tolerance:.0e}; best fit {factor:.6} * got + \
         {constant:.6} has error {mapped_error:.1e}, rank correlation {:.6}",
        values[row],
        expected[row],
        spearman(got, expected)
    ))
}

impl Fixture {
    fn columns(&self, rows: &[Vec<f32>], columns: &[usize]) -> Vec<f32> {
        if columns.is_empty() {
            return rows.concat();
        }
        rows.iter().flat_map(|row| columns.iter().map(|&c| row[c])).collect()
    }

    fn check(&self, expectation: &Expectation) -> Result<(), String> {
        let columns = &expectation.columns;
        let (train, test) = (self.columns(&self.train, columns), self.columns(&self.test, columns));
        let (train_logits, test_logits) = (self.train_logits.concat(), self.test_logits.concat());
        let weight = self.weight.concat();
        let training = Training {
            rows: Features { count: self.train.len(), features: &train, logits: &train_logits },
            labels: Some(&self.labels),
            classes: self.classes,
            parts: &expectation.parts,
            last_layer: columns.is_empty().then_some(LastLayer { weight: &weight, bias: &self.bias }),
            seed: 1,
        };
        let pool = Pool::new(1);
        let config = DetectorConfig::parse(&expectation.spec).map_err(|e| e.to_string())?;
        let fitted = Fitted::new(&config, &training, &pool).map_err(|e| e.to_string())?;
        let rows = Features { count: self.test.len(), features: &test, logits: &test_logits };
        let got = fitted.score(&rows, &pool).map_err(|e| e.to_string())?;
        compare(&got, &expectation.confidence, expectation.agree)
    }
}

fn name(spec: &str) -> &str {
    spec.split(':').next().unwrap()
}

#[test]
fn agrees_with_other_libraries() {
    let fixture = fixture();
    let failures: Vec<String> = fixture
        .expectations
        .iter()
        .filter_map(|e| {
            let columns = if e.columns.is_empty() { String::new() } else { format!(" on columns {:?}", e.columns) };
            let wrong = fixture.check(e).err()?;
            Some(format!("{}{columns}, {}\n    {wrong}\n    expected: {}", e.spec, e.peer, e.why))
        })
        .collect();
    assert!(failures.is_empty(), "{} disagree:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_detector_has_a_reference() {
    let fixture = fixture();
    let all: Vec<_> = DetectorConfig::all().iter().map(DetectorConfig::name).collect();
    let exempt = |name: &str| WITHOUT_REFERENCE.iter().any(|w| w.0 == name);
    let expected = |name: &str| fixture.expectations.iter().any(|e| crate::name(&e.spec) == name);
    let missing: Vec<_> = all.iter().filter(|n| !expected(n) && !exempt(n)).collect();
    assert!(
        missing.is_empty(),
        "add {missing:?} to scripts/detector_fixtures.py, or to WITHOUT_REFERENCE with a reason"
    );
    let stale: Vec<_> = WITHOUT_REFERENCE.iter().filter(|(n, _)| expected(n) || !all.contains(n)).collect();
    assert!(stale.is_empty(), "remove {stale:?} from WITHOUT_REFERENCE");
}

#[test]
fn fixture_is_consistent() {
    let fixture = fixture();
    let rows = |x: &[Vec<f32>], l: &[Vec<f64>]| {
        assert_eq!(x.len(), l.len());
        for (x, l) in x.iter().zip(l) {
            assert_eq!((x.len(), l.len()), (fixture.width, fixture.classes));
            for ((w, &b), &l) in fixture.weight.iter().zip(&fixture.bias).zip(l) {
                let dot: f64 = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
                // Binary fractions, so nothing is rounded.
                assert_eq!(dot + f64::from(b), l);
            }
        }
    };
    rows(&fixture.train, &fixture.train_logits);
    rows(&fixture.test, &fixture.test_logits);
    assert_eq!(fixture.labels.len(), fixture.train.len());
    for e in &fixture.expectations {
        assert_eq!(e.confidence.len(), fixture.test.len(), "{}", e.spec);
        assert!(scale(&e.confidence) > 0.0 && !e.why.is_empty(), "{}", e.spec);
    }
}

#[test]
fn comparisons_can_fail() {
    let expected: Vec<f64> = (0..60).map(|i| f64::from((i * 37) % 60) - 20.0).collect();
    let value = Agree::Value { tolerance: 1e-4 };
    let map = |f: fn(f64) -> f64| expected.iter().map(|&e| f(e)).collect::<Vec<_>>();
    assert!(compare(&expected, &expected, value).is_ok());
    assert!(compare(&map(|e| e * 1.00009), &expected, value).is_ok());
    assert!(compare(&map(|e| e * 1.00011), &expected, value).is_err());
    assert!(compare(&map(|e| e + 0.001), &expected, value).is_err());
    assert!(compare(&map(|e| if e == 3.0 { f64::NAN } else { e }), &expected, value).is_err());
    assert!(compare(&expected[1..], &expected, value).is_err());

    let affine = Agree::Affine { tolerance: 1e-4 };
    assert!(compare(&map(|e| 7.0 * e - 3.0), &expected, affine).is_ok());
    assert!(compare(&map(|e| -e), &expected, affine).is_err());
    assert!(compare(&map(|e| e * e * e), &expected, affine).is_err());
    assert!(compare(&map(|_| 1.0), &expected, affine).is_err());

    let random = Agree::Spearman { least: 0.95 };
    assert!(compare(&map(|e| e * e * e), &expected, random).is_ok());
    assert!(compare(&map(|e| -e), &expected, random).is_err());
    assert!(compare(&map(|_| 1.0), &expected, random).is_err());
    assert_eq!(ranks(&[2.0, 1.0, 2.0, 5.0]), [1.5, 0.0, 1.5, 3.0]);
}
