//! Files for the tests of the readers.

// Not every test file uses all of them.
#![allow(dead_code)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use arrow_array::{ArrayRef, RecordBatch};
use mcdd::Error;
use mcdd::data::{Column, ReadOptions, Table};

pub struct Folder(pub tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

pub fn label(text: &str) -> ReadOptions {
    ReadOptions { label: text.parse().unwrap(), ..ReadOptions::default() }
}

pub fn read(path: &Path, options: &ReadOptions) -> Result<Table, Error> {
    Table::read(&[path.to_owned()], options)
}

pub fn numbers(table: &Table, column: usize) -> Vec<f64> {
    match &table.columns[column] {
        Column::Number(values) => values.clone(),
        other => panic!("{other:?}"),
    }
}

pub fn labels(table: &Table) -> Vec<&str> {
    (0..table.rows()).map(|row| table.label_name(row).unwrap()).collect()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

pub fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

pub fn npz(members: &[(&str, Vec<u8>)], deflate: bool) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let method = if deflate { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, data) in members {
        writer.start_file(format!("{name}.npy"), options).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn parquet_file(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

pub fn idx(kind: u8, dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, kind, dims.len() as u8];
    for dim in dims {
        out.extend(dim.to_be_bytes());
    }
    out.extend(data);
    out
}
