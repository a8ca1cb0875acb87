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

/// A workbook. Each sheet is given as rows between `;` and cells between `,`: a text, a number, an empty cell, `true` or
/// `false`, a date as `@` and its number, or an error as `#`. Texts are shared or inline.
pub fn xlsx(sheets: &[(&str, &str)], shared: bool) -> Vec<u8> {
    let mut texts: Vec<String> = Vec::new();
    let mut parts: Vec<(String, String)> = Vec::new();
    let (mut names, mut relations) = (String::new(), String::new());
    for (at, (name, cells)) in sheets.iter().enumerate() {
        let mut data = String::new();
        for (row, cells) in cells.split(';').enumerate() {
            data += &format!("<row r=\"{}\">", row + 1);
            for (column, cell) in cells.split(',').enumerate() {
                let place = format!("{}{}", char::from(b'A' + column as u8), row + 1);
                data += &match cell {
                    "" => continue,
                    "true" | "false" => format!("<c r=\"{place}\" t=\"b\"><v>{}</v></c>", u8::from(cell == "true")),
                    _ if cell.starts_with('#') => format!("<c r=\"{place}\" t=\"e\"><v>{cell}</v></c>"),
                    _ if cell.starts_with('@') => format!("<c r=\"{place}\" s=\"1\"><v>{}</v></c>", &cell[1..]),
                    _ if cell.parse::<f64>().is_ok() => format!("<c r=\"{place}\"><v>{cell}</v></c>"),
                    _ if shared => {
                        texts.push(cell.to_owned());
                        format!("<c r=\"{place}\" t=\"s\"><v>{}</v></c>", texts.len() - 1)
                    }
                    _ => format!("<c r=\"{place}\" t=\"inlineStr\"><is><t>{cell}</t></is></c>"),
                };
            }
            data += "</row>";
        }
        let id = at + 1;
        names += &format!("<sheet name=\"{name}\" sheetId=\"{id}\" r:id=\"rId{id}\"/>");
        let kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet";
        relations += &format!("<Relationship Id=\"rId{id}\" Type=\"{kind}\" Target=\"worksheets/sheet{id}.xml\"/>");
        let sheet = format!("<worksheet><dimension ref=\"A1:B2\"/><sheetData>{data}</sheetData></worksheet>");
        parts.push((format!("xl/worksheets/sheet{id}.xml"), sheet));
    }
    let office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument";
    let root = format!(
        "<Relationships><Relationship Id=\"rId1\" Type=\"{office}\" Target=\"xl/workbook.xml\"/></Relationships>"
    );
    let relations = format!("<Relationships>{relations}</Relationships>");
    let workbook = format!("<workbook><sheets>{names}</sheets></workbook>");
    let texts: Vec<String> = texts.iter().map(|text| format!("<si><t>{text}</t></si>")).collect();
    let strings = format!("<sst count=\"9\" uniqueCount=\"{}\">{}</sst>", texts.len(), texts.concat());
    let styles = "<styleSheet><cellXfs><xf numFmtId=\"0\"/><xf numFmtId=\"14\"/></cellXfs></styleSheet>";
    parts.extend([
        ("_rels/.rels".to_owned(), root),
        ("xl/_rels/workbook.xml.rels".to_owned(), relations),
        ("xl/workbook.xml".to_owned(), workbook),
        ("xl/styles.xml".to_owned(), styles.to_owned()),
        ("[Content_Types].xml".to_owned(), "<Types/>".to_owned()),
    ]);
    if shared {
        parts.push(("xl/sharedStrings.xml".to_owned(), strings));
    }
    zip(&parts)
}

pub fn zip(parts: &[(String, String)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for (name, text) in parts {
        writer.start_file(name.as_str(), options).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

pub fn arrow_stream(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

pub fn arrow_file(batch: &RecordBatch, compression: Option<arrow_ipc::CompressionType>) -> Vec<u8> {
    let options = arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = arrow_ipc::writer::FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    writer.into_inner().unwrap()
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
