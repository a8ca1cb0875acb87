//! Frozen ONNX networks in front of a model, and hostile ones.
#![cfg(feature = "backbone")]

use mcdd::backbone::{BackboneOptions, ChannelOrder, NetworkFile};
use mcdd::compute::pool::Pool;
use mcdd::data::{ImageShape, Images, Table, digits};
use mcdd::detector::Detect;
use mcdd::model::{Model, OnnxOptions, Refit};
use mcdd::onnx::{Attribute, Builder, Dim, Type, Value};
use mcdd::seed::Stream;
use mcdd::train::{Preset, Run, Settings};
use rten_tensor::NdTensor;
use rten_tensor::prelude::*;

fn weights(graph: &mut Builder, dims: &[usize], name: &str) -> Value {
    let mut random = Stream::new(3, name);
    let inputs: usize = dims[1..].iter().product();
    let values: Vec<f32> =
        (0..dims.iter().product()).map(|_| (random.normal() / (inputs as f64).sqrt()) as f32).collect();
    graph.constant_f32(dims, &values)
}

/// Rows of numbers through a hidden layer to three logits.
fn rows_network(width: usize, hidden: usize) -> Vec<u8> {
    rows_network_with(width, hidden, false)
}

/// The same, with `Dropout` after the hidden layer if asked for.
fn rows_network_with(width: usize, hidden: usize, dropout: bool) -> Vec<u8> {
    let mut g = Builder::new();
    g.reserve(&["logits"]);
    let x = g.input("x", Type::F32, &[Dim::Rows, Dim::Size(width)]);
    let sixteenth = g.constant_f32(&[], &[1.0 / 16.0]);
    let x = g.op("Mul", &[x, sixteenth]);
    let w = weights(&mut g, &[hidden, width], "first");
    let h = g.op_with("Gemm", &[x, w], &[("transB", Attribute::Int(1))]);
    let mut h = g.op("Relu", &[h]);
    if dropout {
        h = g.op("Dropout", &[h]);
    }
    let w = weights(&mut g, &[3, hidden], "last");
    let y = g.op_with("Gemm", &[h, w], &[("transB", Attribute::Int(1))]);
    g.output("logits", y, Type::F32, &[Dim::Rows, Dim::Size(3)]);
    g.finish("rows", &[]).unwrap()
}

/// Images of `size`, or of any size, through a convolution to three logits.
fn image_network(size: usize, metadata: &[(&str, String)]) -> Vec<u8> {
    image_network_with(size, metadata, true)
}

/// The same, with or without the size of the kernel, which the weights have as well.
fn image_network_with(size: usize, metadata: &[(&str, String)], kernel_shape: bool) -> Vec<u8> {
    let mut g = Builder::new();
    g.reserve(&["logits"]);
    let x = g.input("image", Type::F32, &[Dim::Rows, Dim::Size(3), Dim::Size(size), Dim::Size(size)]);
    let w = weights(&mut g, &[16, 3, 3, 3], "conv");
    let mut attributes = vec![("pads", Attribute::Ints(vec![1; 4])), ("strides", Attribute::Ints(vec![2; 2]))];
    if kernel_shape {
        attributes.push(("kernel_shape", Attribute::Ints(vec![3; 2])));
    }
    let h = g.op_with("Conv", &[x, w], &attributes);
    let h = g.op("Relu", &[h]);
    let h = g.op("GlobalAveragePool", &[h]);
    let h = g.op("Flatten", &[h]);
    let w = weights(&mut g, &[3, 16], "last");
    let y = g.op_with("Gemm", &[h, w], &[("transB", Attribute::Int(1))]);
    g.output("logits", y, Type::F32, &[Dim::Rows, Dim::Size(3)]);
    g.finish("images", metadata).unwrap()
}

fn quick() -> Settings {
    let mut settings = Preset::Best.settings();
    (settings.hidden, settings.latent, settings.epochs, settings.steps, settings.batch) = (vec![32], 8, 5, None, 64);
    settings
}

fn numbers(table: &Table) -> Table {
    table.select(&(0..500).collect::<Vec<_>>())
}

/// Two classes of images, a bright one and one with stripes, with noise.
fn pictures(n: usize, side: usize) -> Images {
    let mut random = Stream::new(5, "pictures");
    let mut pixels = Vec::new();
    for i in 0..n {
        for y in 0..side {
            for _ in 0..side * 3 {
                let base = if i % 2 == 0 { 170.0 } else { f64::from(u8::from(y % 2 == 0)) * 150.0 + 40.0 };
                pixels.push((base + 20.0 * random.normal()).clamp(0.0, 255.0) as u8);
            }
        }
    }
    let labels: Vec<&str> = (0..n).map(|i| ["bright", "stripes"][i % 2]).collect();
    Images::from_pixels(pixels, ImageShape { height: side, width: side, channels: 3 }, Some(&labels)).unwrap()
}

#[test]
fn layers_are_listed_with_their_shapes() {
    let network = NetworkFile::from_bytes(&rows_network(64, 24), "net.onnx").unwrap();
    let layers = network.layers(None).unwrap();
    let found: Vec<(&str, usize)> = layers.iter().map(|l| (l.operator.as_str(), l.features)).collect();
    assert_eq!(found, [("Mul", 64), ("Gemm", 24), ("Relu", 24), ("Gemm", 3), ("Identity", 3)]);
    let default: Vec<&str> = layers.iter().filter(|l| l.default).map(|l| l.operator.as_str()).collect();
    assert_eq!(default, ["Relu"]);
    assert_eq!(layers[4].name, "logits");
    let network = NetworkFile::from_bytes(&image_network(16, &[]), "net.onnx").unwrap();
    let layers = network.layers(None).unwrap();
    assert_eq!((layers[0].operator.as_str(), &layers[0].shape[..], layers[0].features), ("Conv", &[16, 8, 8][..], 16));
    assert!(layers.iter().any(|l| l.default && l.operator == "Flatten"));
}

/// A model on features predicts what a model predicts that was trained on a table of these features.
#[test]
fn a_table_on_a_backbone_is_a_model_of_its_features() {
    let table = numbers(&digits());
    let bytes = rows_network(64, 24);
    let network = NetworkFile::from_bytes(&bytes, "net.onnx").unwrap();
    let options = BackboneOptions::default();
    let model = Model::fit_with_backbone(&table, &network, &options, &quick(), &Run::default()).unwrap().model;
    assert_eq!(model.graph().input, 24);
    let own = model.predict(&table).unwrap();
    // The features by rten, in one batch.
    let runtime = rten::Model::load(bytes).unwrap();
    let x: Vec<f32> = (0..table.rows())
        .flat_map(|row| {
            table.columns.iter().map(move |c| match c {
                mcdd::data::Column::Number(values) => values[row] as f32,
                _ => unreachable!(),
            })
        })
        .collect();
    let layer = network.layers(None).unwrap().into_iter().find(|l| l.default).unwrap().name;
    let network_part = {
        let options = BackboneOptions { layers: vec![layer], ..options.clone() };
        Model::fit_with_backbone(&table, &network, &options, &quick(), &Run::default()).unwrap().model
    };
    assert_eq!(network_part.predict(&table).unwrap(), own);
    let input = NdTensor::from_data([table.rows(), 64], x);
    let logits: NdTensor<f32, 2> = runtime.run_one(input.into(), None).unwrap().try_into().unwrap();
    // Trained on logits, whose table is known from rten alone.
    let options = BackboneOptions { layers: vec!["logits".into()], ..options };
    let on_logits = Model::fit_with_backbone(&table, &network, &options, &quick(), &Run::default()).unwrap().model;
    let mut other = Table::builder();
    for c in 0..3 {
        let column: Vec<f64> = (0..table.rows()).map(|r| f64::from(logits[[r, c]])).collect();
        other = other.column(format!("l{c}"), column).unwrap();
    }
    let labels: Vec<&str> =
        (0..table.rows()).map(|r| table.classes()[table.label(r).unwrap() as usize].as_str()).collect();
    let other = other.labels(labels).unwrap().build().unwrap();
    let plain = Model::fit(&other, &quick()).unwrap();
    let (a, b) = (on_logits.predict(&table).unwrap(), plain.predict(&other).unwrap());
    let same = a.class.iter().zip(&b.class).filter(|(a, b)| a == b).count();
    assert!(same >= table.rows() * 97 / 100, "{same} of {}", table.rows());
    // Bits do not depend on the threads, on the other rows, or on saving.
    let one = model.predict(&table.select(&[7])).unwrap();
    assert_eq!((one.confidence[0], one.class[0]), (own.confidence[7], own.class[7]));
    let run = Run { threads: 1, ..Run::default() };
    let again = Model::fit_with_backbone(&table, &network, &BackboneOptions::default(), &quick(), &run).unwrap().model;
    assert!(again.to_bytes().unwrap() == model.to_bytes().unwrap());
    let loaded = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
    assert_eq!(loaded.predict(&table).unwrap(), own);
    assert_eq!(loaded.backbone(), model.backbone());
    // The calibration scores are out-of-fold predictions, and refit gives the same model.
    let (_, out) = loaded.out_of_fold(&table, Pool::shared()).unwrap();
    let mut scores = out.confidence;
    scores.sort_by(f64::total_cmp);
    assert_eq!(scores, model.calibration().scores());
    assert!(loaded.refit(&table, &Refit::default()).unwrap().to_bytes().unwrap() == model.to_bytes().unwrap());
    let changes = Refit { detector: Some(Detect::parse("mahalanobis").unwrap()), ..Refit::default() };
    let refitted = loaded.refit(&table, &changes).unwrap();
    let mut settings = quick();
    settings.detector = Detect::parse("mahalanobis").unwrap();
    let trained = Model::fit_with_backbone(&table, &network, &BackboneOptions::default(), &settings, &Run::default());
    assert!(refitted.to_bytes().unwrap() == trained.unwrap().model.to_bytes().unwrap());
    let mut calibrated = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
    calibrated.calibrate(&table, Pool::shared()).unwrap();
    // Explanations are by the columns of the table.
    let x = model.schema().transform(&table.select(&[3]), None).unwrap();
    let explanation = model.explain(&x, &[], 5, Pool::shared()).unwrap();
    assert_eq!((explanation.columns.len(), model.latents(0, &x).unwrap().len()), (5, 8));
}

#[test]
fn a_backbone_that_is_not_in_the_model_file_must_be_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let table = numbers(&digits());
    std::fs::write(at("net.onnx"), rows_network(64, 24)).unwrap();
    std::fs::create_dir(at("elsewhere")).unwrap();
    let network = NetworkFile::read(at("net.onnx")).unwrap();
    let options = BackboneOptions { embed: false, ..BackboneOptions::default() };
    let model = Model::fit_with_backbone(&table, &network, &options, &quick(), &Run::default()).unwrap().model;
    model.save(at("m.mcdd")).unwrap();
    model.save(at("elsewhere/m.mcdd")).unwrap();
    let expected = model.predict(&table).unwrap();
    assert_eq!(Model::load(at("m.mcdd")).unwrap().predict(&table).unwrap(), expected);
    let missing = Model::load(at("elsewhere/m.mcdd")).err().unwrap();
    assert!(
        missing.to_string().contains("net.onnx") && missing.hint_text().unwrap().contains("`backbone`"),
        "{missing}"
    );
    assert!(Model::from_bytes(&model.to_bytes().unwrap()).is_err());
    let given = Model::load_with(at("elsewhere/m.mcdd"), Some(&at("net.onnx"))).unwrap();
    assert_eq!(given.predict(&table).unwrap(), expected);
    std::fs::write(at("net.onnx"), rows_network(64, 25)).unwrap();
    let other = Model::load(at("m.mcdd")).err().unwrap().to_string();
    assert!(other.contains("another backbone"), "{other}");
}

#[test]
fn images_are_resized_and_normalized_for_a_backbone() {
    let images = pictures(80, 8);
    let metadata = [("Image.NominalPixelRange", "Normalized_0_1".to_owned())];
    let network = NetworkFile::from_bytes(&image_network(16, &metadata), "net.onnx").unwrap();
    let options = BackboneOptions::default();
    let fitted = Model::fit_images_with_backbone(&images, &network, &options, &quick(), &Run::default()).unwrap();
    assert!(fitted.notices.iter().any(|n| n.contains("metadata")), "{:?}", fitted.notices);
    let model = fitted.model;
    assert_eq!(model.schema().image.as_ref().unwrap().mean, [0.0; 3]);
    let predictions = model.predict_images(&images).unwrap();
    let right = (0..80).filter(|&i| Some(predictions.class[i]) == images.label(i)).count();
    assert!(right > 75, "{right}");
    let loaded = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
    assert_eq!(loaded.predict_images(&images).unwrap(), predictions);
    let (_, out) = loaded.out_of_fold_images(&images, Pool::shared()).unwrap();
    let mut scores = out.confidence;
    scores.sort_by(f64::total_cmp);
    assert_eq!(scores, model.calibration().scores());
    let mut x = vec![0.0; 8 * 8 * 3];
    model.schema().image.as_ref().unwrap().transform_into(images.image(0), &mut x);
    assert_eq!(model.explain_image(&x, Pool::shared()).unwrap().gains.len(), 64);
    // Another order of the channels gives other features.
    let bgr = BackboneOptions { order: Some(ChannelOrder::Bgr), ..options.clone() };
    let other = Model::fit_images_with_backbone(&images, &network, &bgr, &quick(), &Run::default()).unwrap().model;
    assert_ne!(other.predict_images(&images).unwrap(), predictions);
    // Shapes that do not fit.
    let gray = Images::from_pixels(
        vec![7; 64 * 4],
        ImageShape { height: 8, width: 8, channels: 1 },
        Some(&["a", "b", "a", "b"]),
    )
    .unwrap();
    let e = |r: mcdd::Result<mcdd::model::FitResult>| r.err().unwrap();
    let run = Run { min_class_rows: 1, ..Run::default() };
    let wrong = e(Model::fit_images_with_backbone(&gray, &network, &options, &quick(), &run));
    assert!(wrong.to_string().contains("3 channels"), "{wrong}");
    let table = numbers(&digits());
    let wrong = e(Model::fit_with_backbone(&table, &network, &options, &quick(), &run));
    assert!(wrong.to_string().contains("takes images"), "{wrong}");
    let rows = NetworkFile::from_bytes(&rows_network(13, 8), "net.onnx").unwrap();
    let wrong = e(Model::fit_with_backbone(&table, &rows, &options, &quick(), &run));
    assert!(wrong.to_string().contains("13 numbers") && wrong.to_string().contains("64 feature columns"), "{wrong}");
    let wrong = e(Model::fit_images_with_backbone(&images, &rows, &options, &quick(), &run));
    assert!(wrong.to_string().contains("rows of numbers"), "{wrong}");
    let named = BackboneOptions { layers: vec!["nowhere".into()], ..options };
    let wrong = e(Model::fit_images_with_backbone(&images, &network, &named, &quick(), &run));
    assert!(wrong.to_string().contains("nowhere") && wrong.hint_text().unwrap().contains("mcdd layers"), "{wrong}");
}

/// Backbone and head in one file give what the model predicts.
#[test]
fn exported_with_its_backbone() {
    let options = OnnxOptions { core: true, tpr: None, fixed: true };
    let close = |found: &[f32], want: &[f64]| {
        for (a, b) in found.iter().zip(want) {
            assert!((f64::from(*a) - b).abs() < 2e-3 * b.abs().max(1.0), "{a} instead of {b}");
        }
    };
    let score = |runtime: &rten::Model, input: rten::Value, name: &str| -> Vec<f32> {
        let inputs = vec![(runtime.node_id(name).unwrap(), input.into())];
        let [out] = runtime.run_n(inputs, [runtime.node_id("score").unwrap()], None).unwrap();
        let tensor: NdTensor<f32, 1> = out.try_into().unwrap();
        tensor.to_vec()
    };
    let images = pictures(60, 8);
    for (size, order) in [(8, ChannelOrder::Rgb), (20, ChannelOrder::Bgr)] {
        let network = NetworkFile::from_bytes(&image_network(size, &[]), "net.onnx").unwrap();
        let how = BackboneOptions { order: Some(order), ..BackboneOptions::default() };
        let model = Model::fit_images_with_backbone(&images, &network, &how, &quick(), &Run::default()).unwrap().model;
        let runtime = rten::Model::load(model.to_onnx(&options).unwrap()).unwrap();
        let input = NdTensor::from_data([60, 8, 8, 3], images.pixels.clone());
        close(&score(&runtime, input.into(), "image"), &model.predict_images(&images).unwrap().confidence);
    }
    let all = digits();
    let table = numbers(&all);
    let network = NetworkFile::from_bytes(&rows_network(64, 24), "net.onnx").unwrap();
    let how = BackboneOptions { layers: vec![], ..BackboneOptions::default() };
    let model = Model::fit_with_backbone(&table, &network, &how, &quick(), &Run::default()).unwrap().model;
    let runtime = rten::Model::load(model.to_onnx(&options).unwrap()).unwrap();
    let inputs: Vec<_> = table
        .names
        .iter()
        .zip(&table.columns)
        .map(|(name, column)| {
            let mcdd::data::Column::Number(values) = column else { unreachable!() };
            let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            (runtime.node_id(name).unwrap(), NdTensor::from_data([table.rows(), 1], values).into())
        })
        .collect();
    let [out] = runtime.run_n(inputs, [runtime.node_id("score").unwrap()], None).unwrap();
    let tensor: NdTensor<f32, 1> = out.try_into().unwrap();
    close(&tensor.to_vec(), &model.predict(&table).unwrap().confidence);
}

/// Protocol buffers for files that no exporter writes.
mod encode {
    pub fn varint(mut v: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while v >= 0x80 {
            out.push(v as u8 | 0x80);
            v >>= 7;
        }
        out.push(v as u8);
        out
    }

    pub fn int(field: u64, v: i64) -> Vec<u8> {
        [varint(field << 3), varint(v as u64)].concat()
    }

    pub fn bytes(field: u64, v: impl AsRef<[u8]>) -> Vec<u8> {
        [varint(field << 3 | 2), varint(v.as_ref().len() as u64), v.as_ref().to_vec()].concat()
    }

    pub fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut node = Vec::new();
        inputs.iter().for_each(|n| node.extend(bytes(1, n)));
        outputs.iter().for_each(|n| node.extend(bytes(2, n)));
        node.extend(bytes(4, op));
        attributes.iter().for_each(|a| node.extend(bytes(5, a)));
        bytes(1, node)
    }

    /// A constant of these sizes and raw bytes, with more fields.
    pub fn tensor(name: &str, kind: i64, dims: &[i64], raw: &[u8], more: &[u8]) -> Vec<u8> {
        let mut tensor = Vec::new();
        dims.iter().for_each(|&d| tensor.extend(int(1, d)));
        tensor.extend([int(2, kind), bytes(8, name)].concat());
        if !raw.is_empty() {
            tensor.extend(bytes(9, raw));
        }
        tensor.extend(more);
        tensor
    }

    pub fn port(field: u64, name: &str, dims: &[i64]) -> Vec<u8> {
        let shape: Vec<u8> =
            dims.iter().flat_map(|&d| bytes(1, if d > 0 { int(1, d) } else { bytes(2, "n") })).collect();
        let tensor = [int(1, 1), bytes(2, shape)].concat();
        bytes(field, [bytes(1, name), bytes(2, bytes(1, tensor))].concat())
    }

    pub fn model(parts: &[Vec<u8>], input: &[i64], output: &str) -> Vec<u8> {
        of_opset(17, parts, input, output)
    }

    pub fn of_opset(opset: i64, parts: &[Vec<u8>], input: &[i64], output: &str) -> Vec<u8> {
        let graph = [parts.concat(), port(11, "x", input), port(12, output, &[])].concat();
        [int(1, 8), bytes(7, graph), bytes(8, int(2, opset))].concat()
    }
}

fn refused(bytes: &[u8], why: &str) {
    let error = NetworkFile::from_bytes(bytes, "net.onnx").and_then(|n| n.layers(None)).unwrap_err().to_string();
    assert!(error.contains(why), "{error} instead of {why}");
}

#[test]
fn hostile_networks_are_refused() {
    use encode::{bytes, int, model, node, tensor};
    let relu = |from: &str, to: &str| node("Relu", &[from], &[to], &[]);
    refused(b"", "not an ONNX file");
    refused(&[7; 100], "not an ONNX file");
    refused(&model(&[relu("b", "a"), relu("a", "b"), node("Add", &["x", "a"], &["y"], &[])], &[0, 4], "y"), "cycle");
    refused(&model(&[relu("nothing", "y")], &[0, 4], "y"), "nothing computes");
    refused(&model(&[relu("x", "y"), relu("x", "y")], &[0, 4], "y"), "twice");
    // Operators that are missing are all named.
    let parts = [node("Loopy", &["x"], &["a"], &[]), node("Bessel", &["a"], &["y"], &[])];
    refused(&model(&parts, &[0, 4], "y"), "Bessel and Loopy");
    let domain = [
        node("Relu", &["x"], &["a"], &[]),
        bytes(1, [bytes(1, "a"), bytes(2, "y"), bytes(4, "Fused"), bytes(7, "com.x")].concat()),
    ];
    refused(&model(&domain, &[0, 4], "y"), "com.x.Fused");
    // Graphs within graphs, to any depth, are not entered.
    let mut inner = bytes(6, relu("x", "y"));
    for _ in 0..10_000 {
        inner = bytes(6, bytes(1, bytes(5, &inner)));
        if inner.len() > 1 << 20 {
            break;
        }
    }
    refused(
        &model(&[node("If", &["x"], &["y"], &[[bytes(1, "then_branch"), inner].concat()])], &[0, 4], "y"),
        "graphs within",
    );
    // Sizes that are declared and not there.
    let huge = |dims: &[i64], raw: &[u8]| {
        model(&[bytes(5, tensor("w", 1, dims, raw, &[])), node("Add", &["x", "w"], &["y"], &[])], &[0, 4], "y")
    };
    refused(&huge(&[1 << 40], &[0; 4]), "elements");
    refused(&huge(&[1 << 40, 1 << 40], &[0; 4]), "too large");
    refused(&huge(&[-4], &[0; 4]), "negative");
    refused(&huge(&[1 << 30], &[]), "elements");
    refused(&model(&[relu("x", "y")], &[0, 1 << 40], "y"), "too large");
    refused(&model(&[relu("x", "y")], &[0, 3, 1 << 20, 1 << 20], "y"), "too large");
    refused(&model(&[relu("x", "y")], &[7, 4], "y"), "7 rows");
    // Memory that grows while it runs.
    let ints = |name: &str, values: &[i64]| {
        bytes(
            5,
            tensor(
                name,
                7,
                &[values.len() as i64],
                &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>(),
                &[],
            ),
        )
    };
    let column = ints("column", &[-1, 1]);
    let mut grow = vec![column];
    let mut at = "x".to_owned();
    for i in 0..40 {
        grow.push(node("Reshape", &[&at, "column"], &[&format!("c{i}")], &[]));
        grow.push(node("Transpose", &[&format!("c{i}")], &[&format!("t{i}")], &[]));
        grow.push(node("Add", &[&format!("c{i}"), &format!("t{i}")], &[&format!("a{i}")], &[]));
        at = format!("a{i}");
    }
    refused(&model(&grow, &[0, 4], "a39"), "too large");
    let constant = [
        ints("s", &[1 << 20, 1 << 20]),
        node("ConstantOfShape", &["s"], &["c"], &[]),
        node("Add", &["x", "c"], &["y"], &[]),
    ];
    refused(&model(&constant, &[0, 4], "y"), "too large");
    let expand = [ints("s", &[1 << 31, 4]), node("Expand", &["x", "s"], &["y"], &[])];
    refused(&model(&expand, &[0, 4], "y"), "too large");
    let tile = [ints("s", &[1 << 31, 1 << 31]), node("Tile", &["x", "s"], &["y"], &[])];
    refused(&model(&tile, &[0, 4], "y"), "too large");
    let pads = [bytes(1, "pads"), (0..4).flat_map(|_| int(8, 1 << 40)).collect(), int(20, 7)].concat();
    let kernel = bytes(5, tensor("w", 1, &[1, 3, 1, 1], &[0; 12], &[]));
    refused(&model(&[kernel, node("Conv", &["x", "w"], &["y"], &[pads])], &[0, 3, 8, 8], "y"), "too large");
    // Wrong shapes are errors of the runtime.
    let wrong = [bytes(5, tensor("w", 1, &[5, 5], &[0; 100], &[])), node("MatMul", &["x", "w"], &["y"], &[])];
    refused(&model(&wrong, &[0, 4], "y"), "cannot be run");
}

/// `Dropout` that is off is left out, and a network with it gives the same model. One that is on is refused by its name.
#[test]
fn dropout_is_the_identity_in_inference() {
    use encode::{bytes, int, model, node, of_opset, tensor};
    let table = numbers(&digits());
    let [without, with] = [false, true].map(|dropout| {
        let network = NetworkFile::from_bytes(&rows_network_with(64, 24, dropout), "net.onnx").unwrap();
        let options = BackboneOptions::default();
        Model::fit_with_backbone(&table, &network, &options, &quick(), &Run::default()).unwrap().model
    });
    assert_eq!(with.predict(&table).unwrap(), without.predict(&table).unwrap());
    let loaded = Model::from_bytes(&with.to_bytes().unwrap()).unwrap();
    assert_eq!(loaded.predict(&table).unwrap(), without.predict(&table).unwrap());
    let options = OnnxOptions { core: true, ..OnnxOptions::default() };
    assert!(rten::Model::load(with.to_onnx(&options).unwrap()).is_ok());

    let ratio = bytes(5, tensor("ratio", 1, &[], &0.5f32.to_le_bytes(), &[]));
    let raw = |value: u8| bytes(5, tensor("mode", 9, &[], &[value], &[]));
    let typed = |value: i64| bytes(5, tensor("mode", 9, &[], &[], &int(5, value)));
    let dropout = |inputs: &[&str], outputs: &[&str]| node("Dropout", inputs, outputs, &[]);
    let last = node("Relu", &["a"], &["y"], &[]);
    for parts in [
        vec![dropout(&["x"], &["a"])],
        vec![dropout(&["x"], &["a", "mask"])],
        vec![ratio.clone(), dropout(&["x", "ratio"], &["a"])],
        vec![ratio.clone(), dropout(&["x", "ratio", ""], &["a"])],
        vec![ratio.clone(), raw(0), dropout(&["x", "ratio", "mode"], &["a", "mask"])],
        vec![typed(0), dropout(&["x", "", "mode"], &["a"])],
    ] {
        let network = model(&[&parts[..], std::slice::from_ref(&last)].concat(), &[0, 4], "y");
        let layers = NetworkFile::from_bytes(&network, "net.onnx").and_then(|n| n.layers(None)).unwrap();
        assert_eq!(layers.iter().map(|l| (l.name.as_str(), l.features)).collect::<Vec<_>>(), [("a", 4), ("y", 4)]);
    }
    let not = node("Not", &["mode"], &["on"], &[]);
    for parts in [
        vec![raw(1), dropout(&["x", "", "mode"], &["a"]), last.clone()],
        vec![typed(1), dropout(&["x", "", "mode"], &["a"]), last.clone()],
        vec![raw(0), not, dropout(&["x", "", "on"], &["a"]), last.clone()],
        vec![dropout(&["x"], &["a", "mask"]), node("Cast", &["mask"], &["y"], &[])],
    ] {
        refused(&model(&parts, &[0, 4], "y"), "not supported: Dropout");
    }
    // Before opset 7 an attribute switches it off.
    let off = [bytes(1, "is_test"), int(3, 1), int(20, 2)].concat();
    let old = |attributes: &[Vec<u8>]| {
        let parts = [node("Dropout", &["x"], &["a"], attributes), last.clone()];
        NetworkFile::from_bytes(&of_opset(6, &parts, &[0, 4], "y"), "net.onnx").and_then(|n| n.layers(None))
    };
    assert_eq!(old(&[off]).unwrap().len(), 2);
    assert!(old(&[]).unwrap_err().to_string().contains("Dropout"));
}

/// The size of a kernel that is not given is that of the weights, which may be stored as integers.
#[test]
fn convolutions_without_the_size_of_their_kernel() {
    use encode::{bytes, model, node, tensor};
    let images = pictures(40, 8);
    let [with, without] = [true, false].map(|kernel_shape| {
        let network = NetworkFile::from_bytes(&image_network_with(8, &[], kernel_shape), "net.onnx").unwrap();
        let options = BackboneOptions::default();
        Model::fit_images_with_backbone(&images, &network, &options, &quick(), &Run::default()).unwrap().model
    });
    assert_eq!(without.predict_images(&images).unwrap(), with.predict_images(&images).unwrap());
    let parts = [
        bytes(5, tensor("w8", 3, &[2, 3, 3, 5], &[1; 90], &[])),
        bytes(5, tensor("scale", 1, &[], &0.1f32.to_le_bytes(), &[])),
        node("DequantizeLinear", &["w8", "scale"], &["w"], &[]),
        node("Conv", &["x", "w"], &["y"], &[]),
    ];
    let network = NetworkFile::from_bytes(&model(&parts, &[0, 3, 8, 8], "y"), "net.onnx").unwrap();
    assert_eq!(network.layers(None).unwrap()[0].shape, [2, 6, 4]);
}

#[test]
fn constants_in_other_files_stay_in_the_folder() {
    use encode::{bytes, int, model, node, tensor};
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("net");
    std::fs::create_dir(&inside).unwrap();
    let values: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(inside.join("w.bin"), [&[0; 8][..], &values].concat()).unwrap();
    std::fs::write(folder.path().join("secret.bin"), &values).unwrap();
    let network = |location: &str, offset: &str, length: &str| {
        let pair = |k: &str, v: &str| bytes(13, [bytes(1, k), bytes(2, v)].concat());
        let more = [pair("location", location), pair("offset", offset), pair("length", length), int(14, 1)].concat();
        let parts = [bytes(5, tensor("w", 1, &[4], &[], &more)), node("Mul", &["x", "w"], &["y"], &[])];
        std::fs::write(inside.join("net.onnx"), model(&parts, &[0, 4], "y")).unwrap();
        NetworkFile::read(inside.join("net.onnx"))
    };
    let good = network("w.bin", "8", "16").unwrap();
    assert_eq!(good.layers(None).unwrap()[0].features, 4);
    let sum = good.sha256().to_owned();
    std::fs::write(inside.join("w.bin"), [&[1; 8][..], &values].concat()).unwrap();
    assert_eq!(network("w.bin", "8", "16").unwrap().sha256(), sum);
    std::fs::write(inside.join("w.bin"), [&[0; 8][..], &[0; 16]].concat()).unwrap();
    assert_ne!(network("w.bin", "8", "16").unwrap().sha256(), sum);
    let absolute = folder.path().join("secret.bin");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&absolute, inside.join("link.bin")).unwrap();
    for (location, offset, length, why) in [
        ("../secret.bin", "0", "16", "not in the folder"),
        (absolute.to_str().unwrap(), "0", "16", "not in the folder"),
        #[cfg(unix)]
        ("link.bin", "0", "16", "not in the folder"),
        ("missing.bin", "0", "16", "cannot be read"),
        ("w.bin", "16", "16", "beyond the end"),
        ("w.bin", "18446744073709551615", "16", "beyond the end"),
        ("w.bin", "0", "99999999999999", "beyond the end"),
        ("w.bin", "x", "16", "invalid offset"),
        ("w.bin", "0", "12", "elements"),
    ] {
        let error = network(location, offset, length).unwrap_err().to_string();
        assert!(error.contains(why), "{location}: {error}");
    }
    // Bytes without a folder have no other files.
    let bytes = std::fs::read(inside.join("net.onnx")).unwrap();
    assert!(NetworkFile::from_bytes(&bytes, "net.onnx").is_err());
}

/// Truncated and damaged files are errors, or still networks; nothing panics.
#[test]
fn damaged_networks_do_not_panic() {
    let bytes = rows_network(5, 4);
    for end in 0..bytes.len() {
        let _ = NetworkFile::from_bytes(&bytes[..end], "net.onnx");
    }
    let mut random = Stream::new(9, "damage");
    for _ in 0..300 {
        let mut damaged = bytes.clone();
        for _ in 0..3 {
            let at = (random.uniform() * damaged.len() as f64) as usize % damaged.len();
            damaged[at] = (random.uniform() * 256.0) as u8;
        }
        let _ = NetworkFile::from_bytes(&damaged, "net.onnx").and_then(|n| n.layers(None));
    }
}
