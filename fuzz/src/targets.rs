//! Each function takes any bytes, and must return. What a checksum or a compression would hide from mutation is made anew:
//! the bytes are put into archives, and checksums are computed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use mcdd::compute::pool::Pool;
use mcdd::data::{
    Batch, Check, ImageOptions, Images, Label, MatrixReader, PassThrough, ReadOptions, Schema, Table, digits,
};
use mcdd::evaluate::{Bootstrap, Evaluator};
use mcdd::model::{Calibration, Model, OnnxOptions, Predictions, Saved};
use mcdd::monitor::Monitor;
use mcdd::report::bench;
use mcdd::train::{Preset, Run, Settings};
use mcdd_serve::{Config, Limits, Local};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

#[allow(dead_code)]
#[path = "../../crates/mcdd-cli/src/fetch/unpack.rs"]
mod unpack;

/// A target: its name, and the function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const ALL: [Target; 20] = [
    ("table_text", table_text),
    ("table_binary", table_binary),
    ("predict_table", predict_table),
    ("image", image),
    ("image_file", image_file),
    ("model", model),
    ("scorer", scorer),
    ("results", results),
    ("checkpoint", checkpoint),
    ("spec", spec),
    ("archive_zip", archive_zip),
    ("archive_tar", archive_tar),
    ("scores", scores),
    ("export", export),
    ("report", report),
    ("monitor", monitor),
    ("request_predict", request_predict),
    ("request_infer", request_infer),
    ("request_any", request_any),
    ("onnx", onnx),
];

/// A folder of this process.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder")).path()
}

fn put(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("a temporary file");
    path
}

/// Ways to read a table, by the bits of a number.
fn options(way: u8) -> ReadOptions {
    ReadOptions {
        label: match way & 3 {
            0 => Label::Auto,
            1 => Label::None,
            2 => Label::Last,
            _ => Label::First,
        },
        header: (way & 4 > 0).then_some(way & 8 > 0),
        separator: (way & 16 > 0).then_some(b";, \t"[usize::from(way >> 5) & 3]),
        skip_unlabeled: way & 32 > 0,
        categorical: if way & 64 > 0 { vec!["1".into()] } else { Vec::new() },
        ..ReadOptions::default()
    }
}

/// The first byte chooses the way of reading, the second the name or the wrapping.
fn ways(bytes: &[u8]) -> (u8, u8, &[u8]) {
    match bytes {
        [way, form, rest @ ..] => (*way, *form, rest),
        _ => (0, 0, bytes),
    }
}

fn read(bytes: Vec<u8>, name: &str, way: u8) {
    if let Ok(table) = Table::from_bytes(bytes.clone(), name, &options(way)) {
        assert!(table.columns.iter().all(|c| c.len() == table.rows()));
        let rows: Vec<usize> = (0..table.rows()).collect();
        let _ = Schema::fit(&table, &rows);
    }
    if way & 128 > 0 {
        let _ = Check::files(&[put(name, &bytes)], &options(way));
    }
}

/// Separated text, JSON Lines and `label index:value`, also compressed with gzip.
pub fn table_text(bytes: &[u8]) {
    let (way, form, bytes) = ways(bytes);
    let bytes = if form & 8 > 0 { gzip(bytes) } else { bytes.to_vec() };
    read(bytes, ["a.csv", "a.jsonl", "a.txt", "a"][usize::from(form & 3)], way);
}

/// Parquet, Arrow, NPY, IDX, and what is in an archive: NPZ and Excel.
pub fn table_binary(bytes: &[u8]) {
    let (way, form, bytes) = ways(bytes);
    let content = match form % 4 {
        0 => bytes.to_vec(),
        1 => gzip(bytes),
        2 => zip(&[("x.npy", bytes), ("y.npy", b"\x93NUMPY\x01\0\x46\0{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }             \n\x01\x02")]),
        _ => {
            let (sheet, strings) = bytes.split_at(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
            zip(&[
                ("[Content_Types].xml", br#"<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>"#),
                ("_rels/.rels", br#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#),
                ("xl/workbook.xml", br#"<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="S" sheetId="1" r:id="s"/></sheets></workbook>"#),
                ("xl/_rels/workbook.xml.rels", br#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="s" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#),
                ("xl/sharedStrings.xml", strings.get(1..).unwrap_or_default()),
                ("xl/worksheets/sheet1.xml", sheet),
            ])
        }
    };
    read(content, "a", way);
    if way & 128 > 0
        && let Ok(mut reader) = MatrixReader::open(&put("matrix", bytes), &options(way))
    {
        let _ = reader.all(|value| value);
    }
}

/// Rows for a model: of any format, with all columns passed through.
pub fn predict_table(bytes: &[u8]) {
    static SCHEMAS: OnceLock<[Schema; 2]> = OnceLock::new();
    let schemas = SCHEMAS.get_or_init(|| {
        let plain = Table::from_rows(&[1.0, 2.0, 3.0, 4.0], 2, Some(&["a", "b"])).expect("a table");
        [plain, digits()].map(|table| Schema::fit(&table, &[0, 1]).expect("a schema").0)
    });
    let (way, form, bytes) = ways(bytes);
    let options = ReadOptions { pass_through: PassThrough::All, ..options(way) };
    let Ok(mut reader) = schemas[usize::from(form & 1)].reader_from_bytes(bytes.to_vec(), "a", &options) else {
        return;
    };
    let (kept, mut batch) = (reader.kept(), Batch::default());
    while let Ok(true) = reader.next(3, &mut batch) {
        assert_eq!(batch.kept.len(), kept.len());
        for column in &batch.kept {
            assert_eq!(column.len(), batch.rows);
            (0..batch.rows).for_each(|row| drop(column.cell(row)));
        }
    }
}

/// One image, of any format. The checksums of PNG are computed.
pub fn image(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let mut at = 8;
    while bytes.starts_with(b"\x89PNG")
        && let Some(length) = bytes.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize)
        && at + 12 + length <= bytes.len()
    {
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[at + 4..at + 8 + length]);
        bytes[at + 8 + length..at + 12 + length].copy_from_slice(&crc.sum().to_be_bytes());
        at += 12 + length;
    }
    images("a", &bytes, Label::None);
}

/// Many images in a file: CIFAR, SVHN, IDX, Parquet.
pub fn image_file(bytes: &[u8]) {
    let (way, form, bytes) = ways(bytes);
    let label = if way & 1 > 0 { Label::None } else { Label::Auto };
    let name = ["a", "data_batch_1.bin", "train.bin", "a.mat"][usize::from(form & 3)];
    if form & 8 > 0 { images(name, &gzip(bytes), label) } else { images(name, bytes, label) }
}

fn images(name: &str, bytes: &[u8], label: Label) {
    let options = ImageOptions { label, skip_bad: true, threads: 1, ..ImageOptions::default() };
    if let Ok((images, _)) = Images::read(&[put(name, bytes)], &options) {
        assert_eq!(images.pixels.len(), images.rows() * images.height * images.width * images.channels);
    }
}

/// A container with the right lengths and checksum: a text, a table of tensors as JSON, and data, each after a zero byte.
pub fn container(format: &str, text: &str, tensors: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let mut header: Map<String, Value> = serde_json::from_slice(tensors).ok()?;
    header.remove("__metadata__");
    let mut hash = Sha256::new();
    hash.update(text);
    for (name, tensor) in &header {
        let shape: Vec<u64> = serde_json::from_value(tensor.get("shape")?.clone()).ok()?;
        hash.update(format!("\n{name} {} {shape:?}", tensor.get("dtype")?.as_str()?));
    }
    hash.update("\n");
    hash.update(data);
    let sum: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    header.insert("__metadata__".into(), json!({ "format": format, "checksum": sum, "mcdd": text }));
    let header = Value::Object(header).to_string();
    Some([&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat())
}

/// The parts of [`container`].
fn parts(bytes: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let mut parts = bytes.splitn(3, |b| *b == 0);
    Some((std::str::from_utf8(parts.next()?).ok()?, parts.next()?, parts.next()?))
}

/// A model: as it is, and with the right checksum. One that can be read predicts, and is written as it was.
pub fn model(bytes: &[u8]) {
    let _ = Saved::from_bytes(bytes);
    let Some((text, tensors, data)) = parts(bytes) else { return };
    let Some(file) = container("mcdd model 1", text, tensors, data) else { return };
    let Ok(model) = Model::from_bytes(&file) else { return };
    let Ok(written) = model.to_bytes() else { return };
    assert!(Model::from_bytes(&written).is_ok(), "a model that was read and written can be read");
    let width = model.schema().width();
    if width > 0 && width < 10_000 {
        let mut predictions = Default::default();
        let pool = Pool::new(1);
        let _ = model.predict_rows(&vec![0.5; 2 * width], &mut predictions, &pool);
    }
    let _ = model.threshold();
}

/// A detector of its own.
pub fn scorer(bytes: &[u8]) {
    let Some((text, tensors, data)) = parts(bytes) else { return };
    let Some(file) = container("mcdd detector 1", text, tensors, data) else { return };
    if let Ok(scorer) = mcdd::model::Scorer::from_bytes(&file) {
        let _ = scorer.threshold();
        let written = scorer.to_bytes().expect("what was read can be written");
        assert!(mcdd::model::Scorer::from_bytes(&written).is_ok());
    }
}

/// The results of a benchmark, and its tables and page.
pub fn results(bytes: &[u8]) {
    let place = folder().join("results");
    std::fs::create_dir_all(&place).expect("a folder");
    std::fs::write(place.join("results.jsonl"), bytes).expect("a file");
    if let Ok((about, cells)) = mcdd::protocol::results::load(&place) {
        let study = bench::Study::new(&about, &cells);
        let _ = (bench::markdown(&study), bench::csv(&study), bench::latex(&study), bench::page(&study, &[]));
    }
}

/// The settings of a network that is trained in no time.
fn small() -> Settings {
    let mut settings = Preset::Fast.settings();
    (settings.epochs, settings.members, settings.hidden, settings.latent) = (2, 1, vec![4], 2);
    settings
}

/// A checkpoint of a run, with the fingerprint of the run.
pub fn checkpoint(bytes: &[u8]) {
    static OWN: OnceLock<(Table, String)> = OnceLock::new();
    let settings = small;
    let place = folder().join("checkpoint");
    let run = |resume: bool| Run { threads: 1, checkpoint: Some(place.clone()), resume, ..Run::default() };
    let (table, fingerprint) = OWN.get_or_init(|| {
        let x: Vec<f64> = (0..60).map(|i| f64::from(i * i % 17)).collect();
        let labels: Vec<&str> = (0..30).map(|i| ["a", "b"][i % 2]).collect();
        let table = Table::from_rows(&x, 2, Some(&labels)).expect("a table");
        Model::fit_with(&table, &settings(), &run(false)).expect("a run");
        let file = std::fs::read(place.join("member-0.checkpoint")).expect("a checkpoint");
        let text = String::from_utf8_lossy(&file);
        let at = text.find("fingerprint").expect("a fingerprint") + "fingerprint\\\":\\\"".len();
        (table, text[at..at + 64].to_owned())
    });
    let Some((text, tensors, data)) = parts(bytes) else { return };
    let text = text.replace("FINGERPRINT", fingerprint);
    let Some(file) = container("mcdd checkpoint 2", &text, tensors, data) else { return };
    std::fs::write(place.join("member-0.checkpoint"), file).expect("a file");
    let _ = Model::fit_with(table, &settings(), &run(true));
}

/// Names of methods, detectors, networks and label columns, with their settings.
pub fn spec(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = mcdd::head::HeadConfig::parse(&text);
    let _ = mcdd::detector::DetectorConfig::parse(&text);
    let _ = mcdd::detector::Detect::parse(&text);
    let _ = mcdd::protocol::Method::parse(&text);
    let _ = mcdd::net::NetName::parse(&text);
    let _ = text.parse::<Label>();
    let _ = PassThrough::from_list(&[text.to_string()]);
    let plain = mcdd::error::plain(&text);
    assert!(!plain.chars().any(mcdd::error::is_harmful));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).and_then(|()| gz.finish()).expect("memory")
}

fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, content) in files {
        let _ = writer.start_file(*name, stored);
        let _ = writer.write_all(content);
    }
    writer.finish().expect("memory").into_inner()
}

/// An ONNX network: its layers are listed, which runs it.
pub fn onnx(bytes: &[u8]) {
    let Ok(network) = mcdd::backbone::NetworkFile::from_bytes(bytes, "a.onnx") else { return };
    if let Ok(layers) = network.layers(Some((8, 8))) {
        assert!(layers.iter().all(|layer| layer.features > 0 && layer.features <= layer.shape.iter().product()));
    }
}

/// Unpacks an archive, and checks that nothing is outside of its folder.
fn unpacked(name: &str, bytes: &[u8]) {
    let dir = tempfile::tempdir_in(folder()).expect("a folder");
    let (archive, to) = (dir.path().join(name), dir.path().join("to"));
    std::fs::create_dir(&to).and_then(|()| std::fs::write(&archive, bytes)).expect("files");
    let _ = unpack::unpack(&archive, &to);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 2, "outside of its folder");
}

/// Names and contents: a length, a name of so many bytes, a length, and the content.
fn entries(mut bytes: &[u8]) -> Vec<(String, &[u8])> {
    let mut next = || {
        let (length, rest) = bytes.split_first()?;
        let (text, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = rest;
        Some(text)
    };
    let mut all = Vec::new();
    while let (Some(name), Some(content)) = (next(), next()) {
        all.push((String::from_utf8_lossy(name).into_owned(), content));
    }
    all
}

pub fn archive_zip(bytes: &[u8]) {
    unpacked("a.zip", bytes);
    let entries = entries(bytes);
    let files: Vec<(&str, &[u8])> = entries.iter().map(|(name, content)| (name.as_str(), *content)).collect();
    unpacked("b.zip", &zip(&files));
}

pub fn archive_tar(bytes: &[u8]) {
    unpacked("a.tar.gz", &gzip(bytes));
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in entries(bytes) {
        let mut header = tar::Header::new_gnu();
        let place = &mut header.as_old_mut().name;
        let length = name.len().min(place.len());
        place[..length].copy_from_slice(&name.as_bytes()[..length]);
        // The first byte of the content is the kind of the entry.
        header.set_entry_type(tar::EntryType::new(*content.first().unwrap_or(&b'0')));
        header.set_size(content.len() as u64);
        header.set_cksum();
        let _ = builder.append(&header, content);
    }
    unpacked("b.tar.gz", &gzip(&builder.into_inner().expect("memory")));
}

/// Scores and labels, of any format.
pub fn scores(bytes: &[u8]) {
    let (way, form, bytes) = ways(bytes);
    let path = put(["scores.txt", "scores.csv", "scores.npy", "scores"][usize::from(form & 3)], bytes);
    let _ = mcdd::data::scores(&path, [None, Some("confidence"), Some("1"), Some("2")][usize::from(way & 3)]);
    let _ = mcdd::data::labels(&path);
}

/// Whether bytes are fields of a protocol buffer, and those of the number `inner` too.
fn is_message(mut bytes: &[u8], inner: Option<u64>) -> bool {
    fn number(bytes: &mut &[u8]) -> Option<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let (first, rest) = bytes.split_first()?;
            *bytes = rest;
            value |= u64::from(first & 127).checked_shl(shift)?;
            if first & 128 == 0 {
                return Some(value);
            }
        }
        None
    }
    while !bytes.is_empty() {
        let Some(tag) = number(&mut bytes) else { return false };
        let length = match tag & 7 {
            0 if number(&mut bytes).is_some() => 0,
            1 => 8,
            2 => number(&mut bytes).unwrap_or(u64::MAX),
            5 => 4,
            _ => return false,
        };
        let Some((field, rest)) = usize::try_from(length).ok().and_then(|n| bytes.split_at_checked(n)) else {
            return false;
        };
        if tag & 7 == 2 && inner == Some(tag >> 3) && !is_message(field, None) {
            return false;
        }
        bytes = rest;
    }
    true
}

/// A model with the right checksum, written as ONNX. The first byte chooses the options.
pub fn export(bytes: &[u8]) {
    let Some((way, bytes)) = bytes.split_first() else { return };
    let Some((text, tensors, data)) = parts(bytes) else { return };
    let Some(file) = container("mcdd model 1", text, tensors, data) else { return };
    let Ok(model) = Model::from_bytes(&file) else { return };
    let options =
        OnnxOptions { core: way & 1 > 0, tpr: (way & 2 > 0).then_some(f64::from(*way) / 255.0), fixed: way & 4 > 0 };
    if let Ok(file) = model.to_onnx(&options) {
        // The graph is field 7.
        assert!(is_message(&file, Some(7)), "not a protocol buffer");
    }
}

/// A model with the right checksum: an explanation of a row, and its report with page and figures.
pub fn report(bytes: &[u8]) {
    use mcdd::report::model::{About, Gather, Place, Side};
    let Some((text, tensors, data)) = parts(bytes) else { return };
    let Some(file) = container("mcdd model 1", text, tensors, data) else { return };
    let Ok(model) = Model::from_bytes(&file) else { return };
    let (width, pool) = (model.schema().width(), Pool::new(1));
    if width == 0 || width > 1000 {
        return;
    }
    let x: Vec<f32> = (0..4 * width).map(|i| (i % 7) as f32 - 2.0).collect();
    let mut predictions = Predictions::default();
    if model.predict_rows(&x, &mut predictions, &pool).is_err() {
        return;
    }
    let _ = model.explain(&x[..width], &[], 5, &pool);
    let make = || {
        let mut evaluator = Evaluator::new(model.classes(), model.threshold()?);
        let label = model.classes().first();
        evaluator.add(&predictions, label.map(|l| [Some(l); 4]).as_ref().map(|l| &l[..]));
        let set = evaluator.ood_set("a");
        evaluator.add_ood(set, &predictions.confidence);
        let found = evaluator.finish(Bootstrap { replicates: 2, seed: 0 })?;
        let mut gather = Gather::new(&model, 0.9, 1, 1)?;
        let set = gather.set("a");
        for (i, row) in x.chunks_exact(width).enumerate() {
            for side in [Side::Known(label.map(|_| 0)), Side::Unknown(set)] {
                gather.add(side, Place::row(i as u64 + 1), row, label.map(String::as_str), &predictions, i);
            }
        }
        let report = gather.finish(About::default(), &found, &pool)?;
        report.page()?;
        report.figures()
    };
    let _: mcdd::Result<_> = make();
}

/// The state of a monitor, with the name of its calibration rows; and its page.
pub fn monitor(bytes: &[u8]) {
    static OWN: OnceLock<(Calibration, String)> = OnceLock::new();
    let (calibration, name) = OWN.get_or_init(|| {
        let calibration = Calibration::new((0..40).map(f64::from).collect()).expect("calibration rows");
        let path = folder().join("state");
        Monitor::new(&calibration, 0.01).and_then(|m| m.save(&path)).expect("a state");
        let state: Value = serde_json::from_slice(&std::fs::read(path).expect("a state")).expect("JSON");
        let name = state["calibration"].as_str().expect("a name").to_owned();
        (calibration, name)
    });
    let text = String::from_utf8_lossy(bytes).replace("CALIBRATION", name);
    let Ok(mut monitor) = Monitor::load(&put("monitor", text.as_bytes()), calibration) else { return };
    monitor.save(&folder().join("again")).expect("what was read can be written");
    assert!(
        Monitor::load(&folder().join("again"), calibration).is_ok(),
        "a state that was read and written can be read"
    );
    [0.0, f64::NAN, 1e300, -1.0, 20.0].into_iter().for_each(|confidence| monitor.add(confidence));
    monitor.restart();
    monitor.add(3.0);
    let _ = (monitor.evidence(), mcdd::report::monitor::page(&monitor, "a"));
}

/// A server with a model of numbers and categories. An answer is never a failure of the server.
fn answered(method: &str, target: &str, headers: &[(&str, &[u8])], body: &[u8]) {
    static SERVER: OnceLock<Local> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let mut text = String::from("length,width,color,label\n");
        for i in 0..60 {
            let width = if i % 17 == 0 { String::new() } else { (i * 7 % 5).to_string() };
            text.push_str(&format!("{},{width},{},{}\n", i * i % 17, ["red", "blue"][i % 2], ["a", "b"][i / 2 % 2]));
        }
        let table = Table::from_bytes(text.into_bytes(), "a.csv", &ReadOptions::default()).expect("a table");
        let model = Model::fit(&table, &small()).and_then(|m| m.to_bytes()).expect("a model");
        let config = Config {
            models: vec![put("m.mcdd", &model)],
            listen: ([127, 0, 0, 1], 0).into(),
            threads: 1,
            token: None,
            alpha: 0.01,
            state: None,
            log_requests: false,
            tls: None,
            otlp: None,
            limits: Limits { rows: 10_000, ..Limits::default() },
            model_limits: Vec::new(),
        };
        Local::new(config).expect("a server")
    });
    if let Some((status, answer)) = server.answer(method, target, headers, body.to_vec()) {
        assert!(status < 500, "{status}: {}", String::from_utf8_lossy(&answer));
        assert!(status < 400 || serde_json::from_slice::<Value>(&answer).is_ok(), "an error is JSON");
    }
}

/// Rows for `/predict`, as JSON, JSON Lines, CSV and Arrow, or of a type that is found by the content.
pub fn request_predict(bytes: &[u8]) {
    let (way, form, body) = ways(bytes);
    let target = ["/predict", "/predict?explain=1", "/predict?probs=1", "/predict?tpr=0.9"][usize::from(way & 3)];
    let kinds: [&[u8]; 6] = [
        b"application/json",
        b"application/x-ndjson",
        b"text/csv",
        b"application/vnd.apache.arrow.stream",
        b"image/png",
        b"",
    ];
    answered("POST", target, &[("content-type", kinds[usize::from(form) % kinds.len()])], body);
}

/// An inference request: JSON, and after a zero byte the bytes of its tensors.
pub fn request_infer(bytes: &[u8]) {
    let target = "/v2/models/m/infer";
    let Some(end) = bytes.iter().position(|b| *b == 0) else { return answered("POST", target, &[], bytes) };
    let (text, binary) = (&bytes[..end], &bytes[end + 1..]);
    let length = text.len().to_string();
    answered("POST", target, &[("inference-header-content-length", length.as_bytes())], &[text, binary].concat());
}

/// A request: lines with its method, its target and its headers, and after an empty line its body.
pub fn request_any(bytes: &[u8]) {
    let end = bytes.windows(2).position(|b| b == b"\n\n");
    let (head, body) = end.map_or((bytes, &[][..]), |at| (&bytes[..at], &bytes[at + 2..]));
    let mut lines = head.split(|b| *b == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (method, target) = (String::from_utf8_lossy(line()), String::from_utf8_lossy(line()));
    let names: Vec<(String, &[u8])> = lines
        .map(|line| {
            let (name, value) = line.split_at(line.iter().position(|b| *b == b':').unwrap_or(line.len()));
            (String::from_utf8_lossy(name).into_owned(), value.get(1..).unwrap_or_default())
        })
        .collect();
    let headers: Vec<(&str, &[u8])> = names.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    answered(&method, &target, &headers, body);
}
