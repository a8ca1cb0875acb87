//! The results in `docs/results/bench` can be read by the program that made them.

#![cfg(feature = "datasets")]

use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use mcdd::protocol::results;

#[test]
fn results_of_the_documents_can_be_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/bench");
    let folder = tempfile::tempdir().unwrap();
    let mut studies = 0;
    for entry in fs::read_dir(root).unwrap() {
        let packed = entry.unwrap().path().join("results.jsonl.gz");
        let mut text = String::new();
        GzDecoder::new(fs::File::open(&packed).unwrap()).read_to_string(&mut text).unwrap();
        fs::write(folder.path().join("results.jsonl"), &text).unwrap();
        let (_, cells) = results::load(folder.path()).unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
        assert_eq!(cells.len(), text.lines().count() - 1, "{}", packed.display());
        studies += 1;
    }
    assert!(studies > 10);
}
