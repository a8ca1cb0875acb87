//! Runs an exported model in tract: `mcdd-tract m.onnx FOLDER`.
//!
//! The folder has a file `inputs` with a line for each input in the order of the model, its type and its shape (`f64 100 1`; also `i64` and
//! `u8`), and the numbers themselves, in little-endian order, in `0.in`, `1.in` and so on. It gets the outputs as f64 in `0.out`, `1.out`.
//! `benches/peers/onnx_export.py --tract` writes the inputs and compares the outputs with `mcdd predict`.

use std::error::Error;
use std::fs;
use std::path::Path;

use tract_onnx::prelude::*;

/// A batch: the rows of a run.
const ROWS: usize = 4096;

/// An input: its type, the shape of a row, and its bytes.
struct Input {
    kind: DatumType,
    row: Vec<usize>,
    bytes: Vec<u8>,
}

impl Input {
    fn read(folder: &Path, index: usize, line: &str) -> Result<(usize, Input), Box<dyn Error>> {
        let mut words = line.split_whitespace();
        let kind = match words.next() {
            Some("f64") => DatumType::F64,
            Some("i64") => DatumType::I64,
            Some("u8") => DatumType::U8,
            other => return Err(format!("there is no type {other:?}").into()),
        };
        let dims = words.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let (&rows, row) = dims.split_first().ok_or("an input has no shape")?;
        let bytes = fs::read(folder.join(format!("{index}.in")))?;
        Ok((rows, Input { kind, row: row.to_vec(), bytes }))
    }

    fn batch(&self, from: usize, to: usize) -> TractResult<TValue> {
        let size = self.row.iter().product::<usize>() * self.kind.size_of();
        let shape: Vec<usize> = [to - from].iter().chain(&self.row).copied().collect();
        // SAFETY: numbers of these types have no invalid bits; the length is checked by tract.
        Ok(unsafe { Tensor::from_raw_dt(self.kind, &shape, &self.bytes[from * size..to * size])? }.into())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, folder] = &args[..] else { return Err("give a model and a folder".into()) };
    let folder = Path::new(folder);
    let described = fs::read_to_string(folder.join("inputs"))?;
    let inputs: Vec<(usize, Input)> =
        described.lines().enumerate().map(|(i, line)| Input::read(folder, i, line)).collect::<Result<_, _>>()?;
    let rows = inputs.first().map_or(0, |(rows, _)| *rows);
    let model = tract_onnx::onnx().model_for_path(file)?.into_optimized()?.into_runnable()?;
    let mut outputs: Vec<Vec<u8>> = Vec::new();
    for from in (0..rows).step_by(ROWS) {
        let to = (from + ROWS).min(rows);
        let batch = inputs.iter().map(|(_, input)| input.batch(from, to)).collect::<TractResult<TVec<TValue>>>()?;
        for (i, value) in model.run(batch)?.into_iter().enumerate() {
            if outputs.len() <= i {
                outputs.push(Vec::new());
            }
            let wide = value.into_tensor().cast_to_dt(DatumType::F64)?.into_owned();
            outputs[i].extend_from_slice(wide.as_bytes());
        }
    }
    for (i, bytes) in outputs.iter().enumerate() {
        fs::write(folder.join(format!("{i}.out")), bytes)?;
    }
    Ok(())
}
