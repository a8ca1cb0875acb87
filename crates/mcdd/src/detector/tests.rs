//! The conformance tests, which every registered detector must pass.

use super::*;
use crate::container::Container;
use crate::seed::Stream;

/// Gaussian blobs around the means of some classes, their logits under a linear layer, and that layer.
struct Data {
    count: usize,
    width: usize,
    classes: usize,
    features: Vec<f32>,
    logits: Vec<f64>,
    labels: Vec<u32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Data {
    fn blobs(count: usize, width: usize, classes: usize, seed: u64) -> Data {
        let mut means = Stream::new(5, "means");
        let means: Vec<f64> = (0..classes * width).map(|_| 3.0 * means.normal()).collect();
        let mut s = Stream::new(seed, "blobs");
        let labels: Vec<u32> = (0..count).map(|i| (i % classes) as u32).collect();
        let features = labels
            .iter()
            .flat_map(|&y| means[y as usize * width..(y as usize + 1) * width].to_vec())
            .map(|m| (m + 0.5 * s.normal()) as f32)
            .collect();
        // The layer of a nearest-mean classifier: logit = x mu - |mu|^2 / 2.
        let weight: Vec<f32> = means.iter().map(|&m| m as f32).collect();
        let bias = weight.chunks(width).map(|m| -0.5 * m.iter().map(|v| v * v).sum::<f32>()).collect();
        let mut data = Data { count, width, classes, features, logits: Vec::new(), labels, weight, bias };
        data.update_logits();
        data
    }

    /// Recomputes the logits.
    fn update_logits(&mut self) {
        let (weight, bias, width) = (&self.weight, &self.bias, self.width);
        self.logits = self
            .features
            .chunks(width)
            .flat_map(|x| {
                weight.chunks(width).zip(bias).map(|(w, &b)| {
                    let dot: f64 = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
                    dot + f64::from(b)
                })
            })
            .collect();
    }

    /// Applies `f(column, value)` to every feature.
    fn map(mut self, f: impl Fn(usize, f32) -> f32) -> Data {
        let width = self.width;
        self.features.iter_mut().enumerate().for_each(|(i, v)| *v = f(i % width, *v));
        self.update_logits();
        self
    }

    fn rows(&self) -> Features<'_> {
        Features { count: self.count, features: &self.features, logits: &self.logits }
    }

    fn training(&self) -> Training<'_> {
        Training {
            rows: self.rows(),
            labels: Some(&self.labels),
            classes: self.classes,
            parts: &[],
            last_layer: Some(LastLayer { weight: &self.weight, bias: &self.bias }),
            seed: 1,
        }
    }
}

/// All detectors that can be fitted on features and logits.
fn configs() -> Vec<DetectorConfig> {
    DetectorConfig::all().into_iter().filter(|c| !c.about().needs.head).collect()
}

fn fit(config: &DetectorConfig, data: &Data, threads: usize) -> Fitted {
    Fitted::new(config, &data.training(), &Pool::new(threads)).unwrap_or_else(|e| panic!("{config:?}: {e}"))
}

fn score(fitted: &Fitted, data: &Data, threads: usize) -> Vec<f64> {
    fitted.score(&data.rows(), &Pool::new(threads)).unwrap()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Out-of-distribution rows: far away for detectors that use features only. A linear layer is at least as certain for far
/// rows, so detectors that use logits get rows between the classes.
fn out_of_distribution(config: &DetectorConfig, data: &Data) -> Data {
    let mut far = Data::blobs(60, data.width, data.classes, 77).map(|j, v| v + if j % 2 == 0 { 60.0 } else { -60.0 });
    let needs = config.about().needs;
    if needs.logits {
        // Logits close to each other: no class is more likely than another.
        let mut s = Stream::new(6, "undecided");
        far.logits = (0..far.logits.len()).map(|_| 0.01 * s.normal()).collect();
    }
    if needs.logits && needs.features {
        // For detectors that combine features and logits: small features in the direction of no class.
        let mut s = Stream::new(8, "small");
        far.features.iter_mut().for_each(|v| *v = 0.05 * s.normal() as f32);
        if needs.linear {
            far.update_logits();
        }
    }
    far
}

#[test]
fn out_of_distribution_rows_score_lower() {
    for config in configs() {
        let data = Data::blobs(300, 6, 3, 1);
        let fitted = fit(&config, &data, 2);
        let (own, fresh) = (score(&fitted, &data, 2), score(&fitted, &Data::blobs(300, 6, 3, 2), 2));
        assert_eq!(own.len(), 300);
        let far = score(&fitted, &out_of_distribution(&config, &data), 2);
        let name = config.name();
        assert!(
            median(&far) < median(&own) && median(&far) < median(&fresh),
            "{name}: {} {}",
            median(&far),
            median(&own)
        );
        let below = far.iter().filter(|&&f| f < median(&own)).count();
        assert!(below * 10 >= far.len() * 9, "{name}: {below} of {} are below the median", far.len());
    }
}

#[test]
fn independent_of_threads_runs_and_batches() {
    for config in configs() {
        let data = Data::blobs(500, 5, 3, 1);
        let test = Data::blobs(211, 5, 3, 9);
        let (a, b) = (fit(&config, &data, 1), fit(&config, &data, 3));
        let scores = score(&a, &test, 1);
        assert_eq!(scores, score(&b, &test, 3), "{}", config.name());
        for i in [0, 100, 210] {
            let row = test.rows();
            let one = Features { count: 1, features: row.feature_row(i), logits: row.logit_row(i) };
            assert_eq!(a.score(&one, &Pool::new(1)).unwrap(), [scores[i]], "{} row {i}", config.name());
        }
    }
}

fn reload(fitted: &Fitted) -> Fitted {
    let mut container = Container::default();
    fitted.save(&mut StateDict::new(&mut container, "d."));
    let bytes = container.to_bytes("mcdd test 1");
    let mut container = Container::from_bytes(&bytes, "mcdd test 1").unwrap();
    let json = serde_json::to_string(fitted.config()).unwrap();
    let config: DetectorConfig = serde_json::from_str(&json).unwrap();
    assert_eq!(&config, fitted.config());
    let loaded = Fitted::load(&config, &mut StateDict::new(&mut container, "d.")).unwrap();
    assert!(container.tensors.is_empty(), "{}: {:?} is left over", config.name(), container.tensors.keys());
    loaded
}

#[test]
fn save_and_load_keep_the_bits() {
    for config in configs() {
        let (data, test) = (Data::blobs(200, 4, 3, 1), Data::blobs(50, 4, 3, 3));
        let fitted = fit(&config, &data, 1);
        let loaded = reload(&fitted);
        assert_eq!(score(&fitted, &test, 1), score(&loaded, &test, 1), "{}", config.name());
        let pool = Pool::new(1);
        assert_eq!(fitted.logits(&test.rows(), &pool).unwrap(), loaded.logits(&test.rows(), &pool).unwrap());
    }
}

/// Removes, truncates or overwrites every tensor of a stored detector: the result is an error or a detector with finite
/// scores, never a panic.
#[test]
fn damaged_state_does_not_panic() {
    for config in configs() {
        let (data, test) = (Data::blobs(60, 4, 3, 1), Data::blobs(20, 4, 3, 3));
        let fitted = fit(&config, &data, 1);
        let mut whole = Container::default();
        fitted.save(&mut StateDict::new(&mut whole, "d."));
        for name in whole.tensors.keys() {
            for damage in 0..6 {
                use crate::container::Values;
                let mut container = whole.clone();
                if damage == 0 {
                    container.tensors.remove(name);
                } else if let Some((shape, values)) = container.tensors.get_mut(name) {
                    let change = |i: usize, v: f64| match damage {
                        1 => -1.0,
                        2 => 1e30 * if i.is_multiple_of(2) { 1.0 } else { -1.0 },
                        3 => v + 0.5,
                        5 => v + 1.0,
                        _ => v,
                    };
                    match values {
                        Values::F32(v) => {
                            v.iter_mut().enumerate().for_each(|(i, v)| *v = change(i, f64::from(*v)) as f32)
                        }
                        Values::F64(v) => v.iter_mut().enumerate().for_each(|(i, v)| *v = change(i, *v)),
                        Values::U16(v) => {
                            v.iter_mut().enumerate().for_each(|(i, v)| *v = change(i, f64::from(*v)) as u16)
                        }
                        // No detector has bytes.
                        Values::U8(_) => {}
                    }
                    if damage == 4 {
                        match values {
                            Values::F32(v) => v.truncate(1),
                            Values::F64(v) => v.truncate(1),
                            Values::U16(v) => v.truncate(1),
                            Values::U8(v) => v.truncate(1),
                        }
                        *shape = vec![1.min(shape.iter().product())];
                    }
                }
                if let Ok(loaded) = Fitted::load(&config, &mut StateDict::new(&mut container, "d.")) {
                    let check = |rows: &Features| {
                        let scores = loaded.score(rows, &Pool::new(1)).unwrap_or_default();
                        let logits = loaded.logits(rows, &Pool::new(1)).ok().flatten().unwrap_or_default();
                        let finite = scores.iter().chain(&logits).all(|v| v.is_finite());
                        assert!(finite, "{}: {name} with damage {damage}", config.name());
                    };
                    check(&test.rows());
                    // Rows of the shape in the file.
                    let (width, classes) = (loaded.width(), loaded.logit_classes());
                    if width <= 8 && classes <= 8 {
                        let (features, logits) = (vec![0.5; 20 * width], vec![0.5; 20 * classes]);
                        let rows = Features { count: 20, features: &features, logits: &logits };
                        check(&rows);
                    }
                }
            }
        }
    }
}

fn all_finite(config: &DetectorConfig, data: &Data, test: &Data, what: &str) {
    let fitted = fit(config, data, 1);
    for (i, s) in score(&fitted, test, 1).iter().enumerate() {
        assert!(s.is_finite(), "{}, {what}: row {i} has {s}", config.name());
    }
    if let Some(logits) = fitted.logits(&test.rows(), &Pool::new(1)).unwrap() {
        assert_eq!(logits.len(), test.count * fitted.detector().classes());
        assert!(logits.iter().all(|l| l.is_finite()), "{}, {what}", config.name());
    }
}

#[test]
fn degenerate_rows_are_finite() {
    for config in configs() {
        let test = Data::blobs(30, 4, 3, 3);
        let plain = || Data::blobs(90, 4, 3, 1);
        all_finite(&config, &plain(), &test, "plain");
        all_finite(&config, &plain().map(|j, v| if j == 1 { 2.5 } else { v }), &test, "a constant column");
        all_finite(&config, &plain().map(|j, v| if j == 1 { 0.0 } else { v.max(0.0) }), &test, "dead features");
        all_finite(&config, &plain().map(|_, _| 1.0), &test, "all rows equal");
        all_finite(&config, &plain().map(|_, _| 0.0), &test, "all zeros");
        all_finite(&config, &plain().map(|j, v| if j == 3 { 1e-30 * v } else { v }), &test, "a tiny column");
        all_finite(&config, &plain().map(|j, v| if j == 3 { 1e12 * v } else { v }), &test, "a huge column");
        all_finite(&config, &Data::blobs(90, 1, 3, 1), &Data::blobs(30, 1, 3, 2), "one feature");
        all_finite(&config, &Data::blobs(120, 1000, 3, 1), &Data::blobs(30, 1000, 3, 2), "1,000 features");
        all_finite(&config, &Data::blobs(3, 4, 3, 1), &test, "one row per class");
        // Duplicates of all rows, and many of one row.
        let mut twice = plain();
        let mut s = Stream::new(2, "copies");
        for i in 45..90 {
            let from = if i < 60 { 0 } else { s.below(45) };
            twice.labels[i] = twice.labels[from];
            twice.features.copy_within(from * 4..from * 4 + 4, i * 4);
        }
        twice.update_logits();
        all_finite(&config, &twice, &test, "duplicated rows");
        // One class has no rows.
        let mut few = plain();
        few.labels.iter_mut().for_each(|y| *y = (*y).min(1));
        all_finite(&config, &few, &test, "a class without rows");
        few.labels.iter_mut().for_each(|y| *y = 0);
        if config.name() == "rmd" {
            assert!(Fitted::new(&config, &few.training(), &Pool::new(1)).is_err());
        } else {
            all_finite(&config, &few, &test, "one class only");
        }
        for size in [1e9f32, 1e15, 1e30] {
            for sign in [1.0, -1.0] {
                let far = Data::blobs(30, 4, 3, 3).map(|j, v| sign * size * if j == 0 { 1.0 } else { v });
                all_finite(&config, &plain(), &far, "far away");
            }
        }
    }
}

/// As in a network with ReLU: many dead features, fewer rows than features, and the last layer not given.
#[test]
fn dead_features_are_finite() {
    for config in configs().into_iter().filter(|c| c.about().needs.features) {
        for seed in 0..6 {
            let alive = 4 + 5 * seed as usize;
            let dead = |d: Data| d.map(|j, v| if j < alive { v.max(0.0) } else { 0.0 });
            let (data, test) = (dead(Data::blobs(60, 64, 3, seed)), dead(Data::blobs(30, 64, 3, 50 + seed)));
            let training = Training { last_layer: None, ..data.training() };
            let fitted = Fitted::new(&config, &training, &Pool::new(1))
                .unwrap_or_else(|e| panic!("{} with {alive} features alive: {e}", config.name()));
            assert!(score(&fitted, &test, 1).iter().all(|s| s.is_finite()), "{} with {alive}", config.name());
        }
    }
}

#[test]
fn invalid_inputs_are_rejected() {
    let pool = Pool::new(1);
    for config in configs() {
        let data = Data::blobs(90, 4, 3, 1);
        let needs = config.about().needs;
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut wrong = Data::blobs(90, 4, 3, 1);
            wrong.features[17] = bad;
            wrong.logits[17] = f64::from(bad);
            assert!(Fitted::new(&config, &wrong.training(), &pool).is_err(), "{}", config.name());
            let e = fit(&config, &data, 1).score(&wrong.rows(), &pool).unwrap_err();
            assert!(e.row().is_some(), "{e}");
        }
        let fitted = fit(&config, &data, 1);
        let other = Data::blobs(30, 7, 5, 1);
        assert!(fitted.score(&other.rows(), &pool).is_err());
        assert_eq!(fitted.score(&Features { count: 0, ..data.rows() }, &pool).map(|s| s.len()).unwrap_or(0), 0);
        let none = Training { rows: Features::default(), ..data.training() };
        assert!(Fitted::new(&config, &none, &pool).is_err());
        if needs.labels {
            assert!(Fitted::new(&config, &Training { labels: None, ..data.training() }, &pool).is_err());
            let wrong = vec![9; 90];
            assert!(Fitted::new(&config, &Training { labels: Some(&wrong), ..data.training() }, &pool).is_err());
        }
        if needs.logits {
            let rows = Features { logits: &[], ..data.rows() };
            assert!(Fitted::new(&config, &Training { rows, ..data.training() }, &pool).is_err());
        }
        if needs.features {
            let rows = Features { features: &[], ..data.rows() };
            assert!(Fitted::new(&config, &Training { rows, ..data.training() }, &pool).is_err());
        }
    }
}

#[test]
fn classifying_detectors_predict_the_class() {
    for config in configs() {
        let (data, test) = (Data::blobs(300, 6, 3, 1), Data::blobs(90, 6, 3, 2));
        let fitted = fit(&config, &data, 1);
        let classes = fitted.detector().classes();
        if let Some(logits) = fitted.logits(&test.rows(), &Pool::new(1)).unwrap() {
            assert_eq!(classes, 3);
            let right = logits.chunks(3).zip(&test.labels).filter(|(l, y)| crate::compute::argmax(l) == **y as usize);
            assert!(right.count() > 85, "{}", config.name());
        } else {
            assert_eq!(classes, 0);
        }
    }
}

/// A step along the gradient of input perturbation increases the score.
#[test]
fn perturbation_gradient_increases_the_score() {
    for config in configs() {
        let data = Data::blobs(300, 6, 3, 1);
        let fitted = fit(&config, &data, 1);
        if fitted.detector().epsilon() == 0.0 {
            continue;
        }
        let test = Data::blobs(20, 6, 3, 4);
        let rows = test.rows();
        for i in 0..20 {
            let row = Features { count: 1, features: rows.feature_row(i), logits: rows.logit_row(i) };
            let (mut df, mut dl) = (vec![0.0f32; 6], vec![0.0f64; 3]);
            fitted.detector().perturbation_gradient(0, &row, &mut df, &mut dl);
            assert!(df.iter().any(|&v| v != 0.0) || dl.iter().any(|&v| v != 0.0), "{}", config.name());
            let size = dl.iter().fold(f64::from(df.iter().fold(0.0f32, |m, v| m.max(v.abs()))), |m, v| m.max(v.abs()));
            let moved: Vec<f32> = row.features.iter().zip(&df).map(|(x, d)| x + (1e-2 / size) as f32 * d).collect();
            let lifted: Vec<f64> = row.logits.iter().zip(&dl).map(|(x, d)| x + 1e-2 / size * d).collect();
            let after = Features { count: 1, features: &moved, logits: &lifted };
            let pool = Pool::new(1);
            let (before, after) = (fitted.score(&row, &pool).unwrap(), fitted.score(&after, &pool).unwrap());
            assert!(after > before, "{} row {i}: {before:?} {after:?}", config.name());
        }
    }
}

#[test]
fn registry_is_consistent() {
    let all = DetectorConfig::all();
    for config in &all {
        let about = config.about();
        config.check().unwrap();
        assert!(!about.summary.is_empty() && about.summary.len() < 100, "{}", about.name);
        assert!(!about.reference.is_empty(), "{}", about.name);
        assert!(!about.needs.linear || about.needs.logits, "{}", about.name);
        assert_eq!(all.iter().filter(|c| c.name() == about.name).count(), 1);
        let json = serde_json::to_string(config).unwrap();
        assert!(json.contains(&format!("\"name\":\"{}\"", about.name)), "{json}");
        assert_eq!(&serde_json::from_str::<DetectorConfig>(&json).unwrap(), config);
        assert_eq!(&DetectorConfig::parse(about.name).unwrap(), config);
        assert!(DetectorConfig::parse(&format!("{}:nonsense=1", about.name)).is_err());
    }
    let e = DetectorConfig::parse("mahalanobiss").err().unwrap();
    assert!(e.hint_text().unwrap().contains("did you mean mahalanobis"), "{e:?}");
}

/// A detector that does not learn gives the same scores whatever it was fitted on; one that learns does not.
#[test]
fn what_does_not_learn_depends_on_no_rows() {
    let (data, other) = (Data::blobs(80, 6, 3, 1), Data::blobs(40, 6, 3, 9).map(|_, v| 1.5 * v));
    for config in configs() {
        let same = score(&fit(&config, &data, 1), &data, 1) == score(&fit(&config, &other, 1), &data, 1);
        assert_eq!(config.learns(), !same, "{config:?}");
    }
}
