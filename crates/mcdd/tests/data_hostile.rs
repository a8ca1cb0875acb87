//! Files that are cut, flipped or made of anything: an error, never a panic.
#![cfg(all(feature = "excel", feature = "npz", feature = "parquet"))]

mod data_help;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, DictionaryArray, Float64Array, RecordBatch, StringArray, types::Int32Type};
use arrow_ipc::CompressionType;
use mcdd::data::{Batch, Check, Label, PassThrough, ReadOptions, Schema, Table};
use proptest::prelude::*;

fn options(label: Label) -> ReadOptions {
    ReadOptions { label, ..ReadOptions::default() }
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

fn npz(deflate: bool) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let method = if deflate { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, data) in [("x.npy", npy("|u1", "(4, 3)", &[7; 12])), ("y.npy", npy("|u1", "(4,)", &[1, 2, 1, 2]))] {
        writer.start_file(name, options).unwrap();
        writer.write_all(&data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

fn parquet_bytes() -> Vec<u8> {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]))),
        ("label", Arc::new(StringArray::from(vec!["x", "y", "x"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn idx() -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, 2, 0, 0, 0, 4, 0, 0, 0, 3];
    bytes.extend([9; 12]);
    bytes
}

fn batch() -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]))),
        ("label", Arc::new(vec!["x", "y", "x"].into_iter().collect::<DictionaryArray<Int32Type>>())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let csv = b"a,b,label\n1,2,x\n3,4,y\n5,6,\"z\"\n";
    vec![
        ("a.xlsx", data_help::xlsx(&[("Data", "a,label;1,x;2,y;3,x")], true)),
        ("a.arrow", data_help::arrow_stream(&batch())),
        ("a.feather", data_help::arrow_file(&batch(), None)),
        ("b.feather", data_help::arrow_file(&batch(), Some(CompressionType::LZ4_FRAME))),
        ("c.feather", data_help::arrow_file(&batch(), Some(CompressionType::ZSTD))),
        ("a.jsonl.gz", gzip(b"{\"a\":1,\"label\":\"x\"}\n{\"label\":\"y\"}\n")),
        ("a.npy", npy("<f8", "(3, 2)", &[0; 48])),
        ("a.npz", npz(false)),
        ("b.npz", npz(true)),
        ("a.idx", idx()),
        ("b.idx.gz", gzip(&idx())),
        ("a.parquet", parquet_bytes()),
        ("a.csv.gz", gzip(csv)),
    ]
}

fn read(path: &Path, bytes: &[u8]) -> Result<Table, mcdd::Error> {
    std::fs::write(path, bytes).unwrap();
    let auto = Table::read(&[path.to_owned()], &ReadOptions::default());
    match auto {
        Ok(table) => Ok(table),
        Err(_) => Table::read(&[path.to_owned()], &options(Label::None)),
    }
}

#[test]
fn a_file_that_is_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in samples() {
        let path = folder.path().join(name);
        read(&path, &bytes).unwrap_or_else(|e| panic!("{e}"));
        for length in 0..bytes.len() {
            match read(&path, &bytes[..length]) {
                Err(e) => assert!(e.file().is_some() && e.hint_text().is_some(), "{name} {length}: {e}"),
                Ok(_) => panic!("{name} cut at {length} was read"),
            }
        }
    }
}

#[test]
fn a_file_with_a_flipped_byte_does_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    for (name, mut bytes) in samples() {
        let path = folder.path().join(name);
        let long = bytes.len() > 1000;
        for at in 0..bytes.len() {
            for flip in
                [0x01, 0x80, 0xff].into_iter().skip(if long { at % 3 } else { 0 }).take(if long { 1 } else { 3 })
            {
                bytes[at] ^= flip;
                let _ = read(&path, &bytes);
                bytes[at] ^= flip;
            }
        }
    }
}

/// Every way to read a file.
fn anything(path: &Path, schemas: &[Schema]) {
    let all = [
        Label::Auto,
        Label::None,
        Label::First,
        Label::Last,
        Label::Index(2),
        Label::Name("a".into()),
        Label::File(path.to_owned()),
    ];
    for label in all {
        let _ = Table::read(&[path.to_owned(), path.to_owned()], &options(label.clone()));
        for schema in schemas {
            let keeping = ReadOptions { pass_through: PassThrough::All, ..options(label.clone()) };
            for options in [options(label.clone()), keeping] {
                if let Ok(mut reader) = schema.reader(path, &options) {
                    let (kept, mut batch) = (reader.kept(), Batch::default());
                    while let Ok(true) = reader.next(3, &mut batch) {
                        assert_eq!(batch.kept.len(), kept.len());
                        assert!(batch.kept.iter().all(|column| column.len() == batch.rows));
                        batch.kept.iter().for_each(|column| (0..batch.rows).for_each(|i| drop(column.cell(i))));
                    }
                    let _ = reader.notices();
                }
            }
        }
    }
    for separator in [b',', b' ', b'\n', b'"', 0] {
        let options = ReadOptions {
            label: Label::Last,
            header: Some(separator != b' '),
            separator: Some(separator),
            sheet: None,
            categorical: vec!["1".into()],
            drop: vec!["2".into()],
            group: Some("3".into()),
            keep: vec!["1".into()],
            skip_unlabeled: separator != b',',
            min_class: usize::from(separator == b' ') * 2,
            ..ReadOptions::default()
        };
        if let Ok(table) = Table::read(&[path.to_owned()], &options) {
            let rows: Vec<usize> = (0..table.rows()).collect();
            let _ = Schema::fit(&table, &rows);
        }
        let _ = Check::files(&[path.to_owned()], &options);
    }
}

fn schemas() -> Vec<Schema> {
    let unnamed = Table::from_rows(&[1.0, 2.0, 3.0, 4.0], 2, Some(&["a", "b"])).unwrap();
    let named = mcdd::data::digits();
    [unnamed, named].iter().map(|table| Schema::fit(table, &[0, 1]).unwrap().0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "[a0-3,;\"\n\r\t :.eE-]{0,120}".prop_map(String::into_bytes),
            "(\\{\"[ab]\":(1|null|true|\"x\"|\\[1\\]|-2.5)(,\"[bc]\":(3|\"y\"))?\\}\n){0,4}\\{?".prop_map(String::into_bytes),
            "[a-c0-3,é\n]{0,60}".prop_map(|text| text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            "(x|1|-2)( [0-4]:[0-9.]{1,3}){0,4}\n(y|2)( [0-9]{1,6}:(nan|inf|1|x)){0,3}\n".prop_map(String::into_bytes),
        ],
        magic in proptest::sample::select(vec![&b""[..], b"\x93NUMPY\x01\0\x10\0", b"PAR1", b"PK\x03\x04", b"\0\0\x08\x02", b"\x1f\x8b\x08\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"ARROW1\0\0\xff\xff\xff\xff", b"\xff\xff\xff\xff\x10\0\0\0", b"{\"a\":"]),
        name in proptest::sample::select(vec!["a.csv", "a.tsv.gz", "a.txt", "a.npy", "a.npz", "a.parquet", "images.idx", "a", "a.dat", "a.jsonl", "a.xlsx", "a.feather"]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let content = [magic, &bytes[..]].concat();
        std::fs::write(&path, &content).unwrap();
        anything(&path, &schemas());
    }
}
