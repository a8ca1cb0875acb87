//! Predict a file that is larger than memory, block by block.
//!
//! `cargo run --release -p mcdd --example streaming`

use mcdd::compute::pool::Pool;
use mcdd::data::digits;
use mcdd::prelude::*;
use mcdd::stream::{self, Columns, Destination, Format, Output};

fn main() -> mcdd::Result<()> {
    let settings = Settings::builder().preset(Preset::Fast).epochs(10).build()?;
    let model = Model::fit(&digits(), &settings)?;

    // A CSV file, here in memory. Files: model.schema().reader(path, &options).
    let mut csv = model.schema().columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join(",");
    for row in 0..10_000 {
        let cells: Vec<String> = (0..64).map(|column| ((row * 7 + column * 3) % 17).to_string()).collect();
        csv.push_str(&format!("\n{}", cells.join(",")));
    }
    let options = ReadOptions::default();
    let source = model.schema().reader_from(std::io::Cursor::new(csv), "rows.csv", &options);

    // The next block is read while this one is scored, and memory does not grow with the file.
    let mut bytes = Vec::new();
    let to = Destination::Writer(&mut bytes, "memory"); // or Destination::File(path)
    let output = Output { format: Format::JsonLines, columns: Columns { probs: true, ..Columns::default() }, to };
    let summary = stream::predict(&model, [source], model.threshold()?, output, Pool::shared())?;
    println!("{} rows, {} of them unknown; {} bytes of JSON Lines", summary.rows, summary.unknown, bytes.len());
    Ok(())
}
