//! Convolutional networks: training, saving, loading and prediction.

use std::path::Path;

use mcdd::compute::pool::Pool;
use mcdd::data::{Augment, ImageShape, Images};
use mcdd::detector::Detect;
use mcdd::head::HeadConfig;
use mcdd::model::{Model, Predictions, Refit};
use mcdd::train::{Callback, DataKind, Epoch, Run, Settings};
use safetensors::SafeTensors;

const SHAPE: ImageShape = ImageShape { height: 8, width: 8, channels: 3 };

/// Horizontal bars, vertical bars, or a frame, in some color and with some noise.
fn images(each: usize, kinds: &[&str]) -> Images {
    let (mut pixels, mut labels, mut state) = (Vec::new(), Vec::new(), 7u32);
    for i in 0..each * kinds.len() {
        let kind = kinds[i % kinds.len()];
        let color = [80 + (i * 31 % 150) as u8, 80 + (i * 57 % 150) as u8, 80 + (i * 83 % 150) as u8];
        for y in 0..8usize {
            for x in 0..8usize {
                let on = match kind {
                    "across" => (y + i) % 4 < 2,
                    "down" => (x + i) % 4 < 2,
                    "frame" => x % 7 == 0 || y % 7 == 0,
                    _ => (x * 3 + y * 5 + i) % 7 < 3,
                };
                for c in color {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    pixels.push(if on { c } else { 0 } + (state >> 28) as u8);
                }
            }
        }
        labels.push(kind);
    }
    Images::from_pixels(pixels, SHAPE, Some(&labels)).unwrap()
}

fn settings() -> Settings {
    let given = Settings::builder().epochs(25).batch(16).lr(0.05).calibration_fraction(0.2).warmup(0.1);
    let mut settings = given.build_for(DataKind::from_net(Some("resnet8"), true).unwrap()).unwrap();
    settings.image.as_mut().unwrap().augment = Some(Augment { crop_padding: 1, ..Augment::default() });
    settings
}

/// The network `cnn` with its own training, whose weights are averaged.
fn cnn(epochs: usize, batch: usize) -> Settings {
    let given = Settings::builder().epochs(epochs).batch(batch).calibration_fraction(0.2);
    given.build_for(DataKind::from_net(Some("cnn"), true).unwrap()).unwrap()
}

fn predict(model: &Model, images: &Images, threads: usize) -> Predictions {
    let spec = model.schema().image.as_ref().unwrap();
    let mut x = vec![0.0; images.rows() * SHAPE.values()];
    spec.transform_into(&images.pixels, &mut x);
    let mut out = Predictions::default();
    model.predict_rows(&x, &mut out, &Pool::new(threads)).unwrap();
    out
}

#[test]
fn images_are_learned_saved_and_classified() {
    let (model, p) = learned_saved_and_classified(&settings());
    // Unknown images have a lower confidence.
    let other = predict(&model, &images(60, &["other"]), 2);
    let auroc = mcdd::metrics::detection(&p.confidence, &other.confidence).unwrap().auroc;
    assert!(auroc > 0.8, "{auroc}");
    // A table is refused.
    let table = mcdd::data::digits();
    assert!(model.predict(&table).unwrap_err().to_string().contains("images"));
}

#[test]
fn images_are_learned_by_cnn() {
    let (model, p) = learned_saved_and_classified(&cnn(8, 24));
    // Test-time flips: an image and its mirror image have the same prediction.
    assert!(model.settings().image.as_ref().unwrap().test_flips);
    let (fresh, width) = (images(20, &["down", "frame", "across"]), SHAPE.width * SHAPE.channels);
    let mirrored = fresh.pixels.chunks(width).flat_map(|row| row.chunks(SHAPE.channels).rev().flatten().copied());
    let mirrored = Images::from_pixels(mirrored.collect::<Vec<u8>>(), SHAPE, None::<&[&str]>).unwrap();
    assert_eq!(predict(&model, &mirrored, 1), p);
    // Another detector on the same network; the images must be those of the training.
    let changes = Refit { detector: Some(Detect::parse("mahalanobis").unwrap()), ..Refit::default() };
    let known = images(40, &["across", "down", "frame"]);
    let refitted = model.refit_images(&known, &changes, &Pool::new(2)).unwrap();
    let mut settings = cnn(8, 24);
    settings.detector = Detect::parse("mahalanobis").unwrap();
    let trained = Model::fit_images(&known, &settings, &Run::default()).unwrap().model;
    assert!(refitted.to_bytes().unwrap() == trained.to_bytes().unwrap());
    assert!(model.refit_images(&fresh, &changes, &Pool::new(2)).is_err());
}

/// A map has the gains of covered windows, and its parts are in their order.
#[test]
fn a_map_shows_what_covering_changes() {
    let known = images(20, &["across", "down"]);
    let mut settings = settings();
    settings.epochs = 2;
    let model = Model::fit_images(&known, &settings, &Run::default()).unwrap().model;
    let pool = Pool::new(2);
    let mut x = vec![0.0; SHAPE.values()];
    model.schema().image.as_ref().unwrap().transform_into(images(1, &["other"]).image(0), &mut x);
    let map = model.explain_image(&x, &pool).unwrap();
    assert_eq!(map.cell * map.columns, SHAPE.width.next_multiple_of(map.cell));
    assert_eq!(
        (map.rows, map.columns, map.gains.len()),
        (SHAPE.height.div_ceil(map.cell), map.columns, map.rows * map.columns)
    );
    // Only the first window covers the first cell.
    let mut covered = x.clone();
    for y in 0..2 * map.cell {
        covered[y * SHAPE.width * SHAPE.channels..][..2 * map.cell * SHAPE.channels].fill(0.0);
    }
    let mut p = Predictions::default();
    model.predict_rows(&[x.clone(), covered].concat(), &mut p, &pool).unwrap();
    assert!((p.confidence[1] - p.confidence[0] - map.gains[0]).abs() < 1e-12);
    let areas = map.areas([SHAPE.height, SHAPE.width]);
    assert!(areas.windows(2).all(|two| two[0].1 >= two[1].1) && areas.iter().all(|(_, gain)| *gain > 0.0));
    assert!(areas.iter().all(|(a, _)| a.x + a.width <= SHAPE.width && a.y + a.height <= SHAPE.height));
    assert!(model.explain_image(&x[1..], &pool).is_err());
}

/// The model, and its predictions of new images.
fn learned_saved_and_classified(settings: &Settings) -> (Model, Predictions) {
    let known = images(40, &["across", "down", "frame"]);
    let one = Model::fit_images(&known, settings, &Run { threads: 1, ..Run::default() }).unwrap().model;
    let two = Model::fit_images(&known, settings, &Run { threads: 3, ..Run::default() }).unwrap().model;
    let bytes = one.to_bytes().unwrap();
    assert!(bytes == two.to_bytes().unwrap(), "threads must not change the model");
    let model = Model::from_bytes(&bytes).unwrap();
    assert!(model.to_bytes().unwrap() == bytes);

    let fresh = images(20, &["down", "frame", "across"]);
    let p = predict(&model, &fresh, 2);
    assert_eq!(p, predict(&one, &fresh, 1));
    let right =
        (0..fresh.rows()).filter(|&i| fresh.label_name(i) == Some(&model.classes()[p.class[i] as usize])).count();
    assert!(right * 10 >= fresh.rows() * 9, "{right} of {}", fresh.rows());
    (model, p)
}

/// Stops after some epochs.
struct Impatient(std::sync::atomic::AtomicUsize, usize);

impl Callback for Impatient {
    fn epoch(&self, _: usize, _: &Epoch) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn stop(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed) >= self.1
    }
}

#[test]
fn a_resumed_run_ends_in_the_same_bytes() {
    let known = images(20, &["across", "down"]);
    for settings in [settings(), cnn(5, 8)] {
        let whole = Model::fit_images(&known, &settings, &Run::default()).unwrap().model.to_bytes().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let run = |epochs: usize, resume: bool| {
            let watch = Impatient(0.into(), epochs);
            let checkpoint = Some(folder.path().to_owned());
            Model::fit_images(&known, &settings, &Run { checkpoint, resume, callback: &watch, ..Run::default() })
                .unwrap()
        };
        assert!(run(2, false).interrupted);
        assert!(run(100, true).model.to_bytes().unwrap() == whole);
    }
}

#[test]
fn detectors_work_on_the_latents_of_images() {
    let known = images(30, &["across", "down", "frame"]);
    for (method, detector) in [("softmax", "mahalanobis"), ("softmax", "energy"), ("deep-mcdd", "knn:k=1:log=true")] {
        let mut s = settings();
        (s.head, s.detector, s.epochs) = (HeadConfig::parse(method).unwrap(), Detect::parse(detector).unwrap(), 2);
        let model = Model::fit_images(&known, &s, &Run::default()).unwrap().model;
        let again = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
        assert_eq!(predict(&model, &known, 2), predict(&again, &known, 1));
    }
    for (method, detector) in
        [("softmax", "odin"), ("softmax", "knn:on=inputs"), ("alad", "distance"), ("gda", "distance")]
    {
        let mut s = settings();
        (s.head, s.detector) = (HeadConfig::parse(method).unwrap(), Detect::parse(detector).unwrap());
        assert!(Model::fit_images(&known, &s, &Run::default()).is_err(), "{method} {detector}");
    }
    assert!(Model::fit(&mcdd::data::digits(), &settings()).is_err());
}

/// The values of a tensor.
fn tensor(file: &SafeTensors, name: &str) -> Vec<f32> {
    let data = file.tensor(name).unwrap();
    data.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// `scripts/image_fixtures.py` wrote the weights and the latents of these images with PyTorch.
#[test]
fn pytorch_weights_give_its_latents_and_do_not_change_if_frozen() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let bytes = std::fs::read(fixtures.join("images.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let pixels: Vec<u8> = tensor(&file, "init.images").iter().map(|&v| v as u8).collect();
    let expected = tensor(&file, "init.latents");
    let labels: Vec<&str> = (0..12).map(|i| if i % 2 == 0 { "even" } else { "odd" }).collect();
    let images = Images::from_pixels(pixels, SHAPE, Some(&labels)).unwrap();
    let mut s = settings();
    s.epochs = 3;
    let init = fixtures.join("resnet8.safetensors");
    let fit = |s: &Settings| Model::fit_images_from(&images, s, Some(&init), &Run::default()).unwrap();
    let farthest = |model: &Model| {
        let mut x = vec![0.0; images.rows() * SHAPE.values()];
        model.schema().image.as_ref().unwrap().transform_into(&images.pixels, &mut x);
        let latents = model.latents(0, &x).unwrap();
        assert_eq!(latents.len(), expected.len());
        latents.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    assert!(farthest(&fit(&s).model) > 0.01, "training changes a network that is not frozen");
    s.image.as_mut().unwrap().frozen = true;
    let fitted = fit(&s);
    assert!(fitted.notices.iter().any(|n| n.contains("linear.weight")), "{:?}", fitted.notices);
    let scale = expected.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let found = farthest(&fitted.model);
    assert!(found <= 1e-4 * scale.max(1.0), "{found} of {scale}");
    // The head on top of it has learned.
    let (history, _) = fitted.model.history(0).unwrap();
    assert!(history.last().unwrap().loss < history[0].loss);
    assert!(Model::fit_images(&images, &s, &Run::default()).is_err(), "frozen needs weights");
}
