//! How fast a CSV becomes a table, against a bare record loop of the csv crate on the same file.
//!
//! `cargo run --release -p mcdd-benches --bin csv_speed [ROWS [COLUMNS [ROUNDS]]]`

use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::time::Instant;

use mcdd::data::{Batch, ReadOptions, Schema, Table};
use mcdd::seed::Stream;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>());
    let rows = arguments.next().transpose()?.unwrap_or(100_000);
    let columns = arguments.next().transpose()?.unwrap_or(48);
    let rounds = arguments.next().transpose()?.unwrap_or(9);

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("speed.csv");
    let mut file = BufWriter::new(std::fs::File::create(&path)?);
    let mut random = Stream::new(1, "csv_speed");
    for column in 0..columns {
        write!(file, "f{column},")?;
    }
    writeln!(file, "label")?;
    for row in 0..rows {
        for _ in 0..columns {
            write!(file, "{:.6},", random.normal() * 10.0)?;
        }
        writeln!(file, "class{}", row % 11)?;
    }
    file.into_inner()?.sync_all()?;
    let bytes = std::fs::metadata(&path)?.len() as f64 / 1e6;

    // Interleaved, so that a change in the machine's speed meets all of them.
    let (mut bare, mut table, mut stream) = (Vec::new(), Vec::new(), Vec::new());
    let mut schema: Option<Schema> = None;
    for _ in 0..rounds {
        let start = Instant::now();
        let mut reader = csv::Reader::from_path(&path)?;
        let mut record = csv::ByteRecord::new();
        let mut cells = 0;
        while reader.read_byte_record(&mut record)? {
            cells += black_box(&record).len();
        }
        bare.push(start.elapsed().as_secs_f64());
        assert_eq!(cells, rows * (columns + 1));

        let start = Instant::now();
        let read = Table::read(std::slice::from_ref(&path), &ReadOptions::default())?;
        table.push(start.elapsed().as_secs_f64());
        assert_eq!((read.rows(), read.columns.len()), (rows, columns));

        let schema = match &schema {
            Some(schema) => schema,
            None => {
                let all: Vec<usize> = (0..rows).collect();
                schema.insert(Schema::fit(&read, &all)?.0)
            }
        };
        drop(read);
        let start = Instant::now();
        let mut reader = schema.reader(&path, &ReadOptions::default())?;
        let mut batch = Batch::default();
        while reader.next(1024, &mut batch)? {
            black_box(&batch);
        }
        stream.push(start.elapsed().as_secs_f64());
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (bare, table, stream) = (median(&mut bare), median(&mut table), median(&mut stream));
    println!("{rows} x {columns}, {bytes:.1} MB, median of {rounds}");
    println!("csv records alone   {bare:.3} s  {:.0} MB/s", bytes / bare);
    println!("Table::read         {table:.3} s  {:.0} MB/s  {:.2} of the speed", bytes / table, bare / table);
    println!("Reader (prediction) {stream:.3} s  {:.0} MB/s  {:.2} of the speed", bytes / stream, bare / stream);
    Ok(())
}
