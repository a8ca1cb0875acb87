//! `mcdd metrics`: detection metrics of two files of scores, from anywhere.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use mcdd::metrics::{self, Detection, DetectionIntervals, Row};
use mcdd::{Error, Result};
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  mcdd metrics id.txt ood.txt                      one number a line
  mcdd metrics id.csv ood.csv --column confidence  a column by its name, or its number from 1
  mcdd metrics id.npy ood.npy --json               one-dimensional NumPy arrays, output for programs
  mcdd metrics id.npy ood.npy --compat openood     as OpenOOD 1.5 computes them
  mcdd metrics id.txt ood.txt --compat authors     as the code published with Deep-MCDD does

A higher score must mean more in-distribution: negate distances and anomaly scores.
Equal scores are one threshold; a tied pair counts one half in the AUROC.";

/// Measure how well scores separate in-distribution (ID) from out-of-distribution (OOD) rows
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scores of ID rows: text, CSV or NPY
    pub id_scores: PathBuf,

    /// Scores of OOD rows: text, CSV or NPY
    pub ood_scores: PathBuf,

    /// Column of the scores, by name or number from 1 [default: "confidence", "score" or the only one]
    #[arg(long, value_name = "NAME|NUMBER")]
    pub column: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Use other people's definitions, to compare with published numbers
    #[arg(long, value_enum)]
    pub compat: Option<Compat>,

    /// Replicates for the 95% intervals; 0 for no intervals
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "compat")]
    pub bootstrap: usize,

    /// Seed of the replicates
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// Whose definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compat {
    /// The code published with Deep-MCDD: a tie counts as an error
    Authors,
    /// OpenOOD 1.5: OOD is positive, trapezoids under precision-recall curves
    Openood,
}

impl Compat {
    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Compat::Authors => ("authors", "the code published with Deep-MCDD; a tie counts as an error"),
            Compat::Openood => ("openood", "OpenOOD 1.5; trapezoids under precision-recall curves"),
        }
    }
}

impl From<Compat> for metrics::Compat {
    fn from(compat: Compat) -> Self {
        match compat {
            Compat::Authors => metrics::Compat::Authors,
            Compat::Openood => metrics::Compat::Openood,
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let id = read_scores(&args.id_scores, args.column.as_deref())?;
    let ood = read_scores(&args.ood_scores, args.column.as_deref())?;
    let report = Report::new(&id, &ood, &args)?;
    let text = if args.json { report.json()? } else { report.table() };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What is printed, as a table or as JSON.
struct Report {
    compat: Option<Compat>,
    n_id: usize,
    n_ood: usize,
    tie_share: f64,
    rows: Vec<Row>,
    /// With the number of replicates and the seed.
    intervals: Option<(DetectionIntervals, usize, u64)>,
}

impl Report {
    fn new(id: &[f64], ood: &[f64], args: &Args) -> Result<Self> {
        if let Some(compat) = args.compat {
            let found = metrics::detection_compat(id, ood, compat.into())?;
            let (n_id, n_ood) = found.counts();
            let tie_share = found.tie_share();
            return Ok(Report { compat: args.compat, n_id, n_ood, tie_share, rows: found.rows(), intervals: None });
        }
        let found = metrics::detection(id, ood)?;
        let intervals = match args.bootstrap {
            0 => None,
            n => Some((metrics::bootstrap(id, ood, n, args.seed, 0)?, n, args.seed)),
        };
        let Detection { n_id, n_ood, tie_share, .. } = found;
        Ok(Report { compat: None, n_id, n_ood, tie_share, rows: found.rows().to_vec(), intervals })
    }

    fn table(&self) -> String {
        let percent = |value: f64| format!("{:.2}", 100.0 * value);
        let mut text = format!(
            "{} ID scores, {} OOD scores, {}% of ID-OOD pairs tied; a higher score is more in-distribution\n",
            self.n_id,
            self.n_ood,
            percent(self.tie_share)
        );
        if let Some((name, meaning)) = self.compat.map(Compat::describe) {
            text += &format!("definitions: {name} ({meaning})\n");
        }
        let head = if self.intervals.is_some() { "  95% interval" } else { "" };
        text += &format!("\n{:<20}{:<15}{:>7}{head}\n", "metric", "", "%");
        let intervals = self.intervals.as_ref().map(|(intervals, ..)| intervals.rows());
        for (i, row) in self.rows.iter().enumerate() {
            text += &format!("{:<20}positive: {:<5}{:>7}", row.name, row.positive, percent(row.value));
            if let Some(interval) = intervals.as_ref().and_then(|all| all.get(i)) {
                text += &format!("  {:>6} to {:>6}", percent(interval.low), percent(interval.high));
            }
            text.push('\n');
        }
        if let Some((_, replicates, seed)) = &self.intervals {
            text += &format!("\nintervals: percentile bootstrap, {replicates} replicates, seed {seed}\n");
        }
        text
    }

    fn json(&self) -> anyhow::Result<String> {
        let intervals = self.intervals.as_ref().map(|(intervals, ..)| intervals.rows());
        let rows = self.rows.iter().enumerate().map(|(i, row)| {
            let mut entry = json!({ "name": row.name, "positive": row.positive, "value": row.value });
            if let Some(interval) = intervals.as_ref().and_then(|all| all.get(i)) {
                entry["interval95"] = json!(interval);
            }
            (row.key.to_owned(), entry)
        });
        let report = json!({
            "compat": self.compat.map(|c| c.describe().0),
            "n_id": self.n_id,
            "n_ood": self.n_ood,
            "tie_share": self.tie_share,
            "metrics": Value::Object(rows.collect()),
            "bootstrap": self.intervals.as_ref().map(|(_, n, seed)| json!({ "replicates": n, "seed": seed })),
        });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }
}

/// Reads the scores in `path`: NPY by its first bytes, else text with or without columns.
fn read_scores(path: &Path, column: Option<&str>) -> Result<Vec<f64>> {
    let bytes = fs::read(path).map_err(|e| Error::io(e, path))?;
    let scores = if bytes.starts_with(b"\x93NUMPY") { read_npy(&bytes) } else { read_text(&bytes, column) };
    let scores = scores.map_err(|e| e.at_file(path))?;
    if scores.is_empty() {
        return Err(Error::data("there are no scores in the file").at_file(path));
    }
    Ok(scores)
}

/// The error for a row without a usable score.
fn no_score(row: usize, what: &str) -> Error {
    Error::data(format!("the score is {what}"))
        .at_row(row as u64)
        .hint("every row needs a score: drop the row from the file, or give it one (inf and -inf are allowed)")
}

fn is_missing(field: &str) -> bool {
    ["", "na", "n/a", "null", "none"].contains(&field.to_ascii_lowercase().as_str())
}

fn read_text(bytes: &[u8], column: Option<&str>) -> Result<Vec<f64>> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Error::data("the file is neither UTF-8 text nor NPY").hint("give text, CSV or NPY"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
    let Some(&(_, first)) = lines.peek() else {
        return Ok(Vec::new());
    };
    let delimiter = [',', '\t', ';'].into_iter().find(|&d| first.contains(d));
    let split = |line: &str| match delimiter {
        Some(delimiter) => fields(line, delimiter),
        None => vec![line.trim().trim_matches('"').to_owned()],
    };
    let first = split(first);
    let header = first.iter().any(|field| field.parse::<f64>().is_err() && !is_missing(field));
    let at = find_column(&first, header, column)?;
    if header {
        lines.next();
    }
    lines
        .map(|(i, line)| {
            let row = split(line);
            let Some(field) = row.get(at) else {
                return Err(
                    Error::data(format!("the row has {} of {} columns", row.len(), first.len())).at_row(i as u64 + 1)
                );
            };
            if is_missing(field) {
                return Err(no_score(i + 1, "missing"));
            }
            match field.parse::<f64>() {
                Ok(score) if score.is_nan() => Err(no_score(i + 1, "NaN")),
                Ok(score) => Ok(score),
                Err(_) => Err(Error::data(format!("{field:?} is not a number"))
                    .at_row(i as u64 + 1)
                    .hint("a score file has one number a line, or columns separated by commas, tabs or semicolons")),
            }
        })
        .collect()
}

/// The position of the scores among the fields of the first line.
fn find_column(first: &[String], header: bool, column: Option<&str>) -> Result<usize> {
    let named = |name: &str| header.then(|| first.iter().position(|field| field.eq_ignore_ascii_case(name))).flatten();
    let columns = if header { format!("the columns are {}", first.join(", ")) } else { "there is no header".into() };
    match column {
        None if first.len() == 1 => Ok(0),
        None => named("confidence").or_else(|| named("score")).ok_or_else(|| {
            Error::data(format!("there are {} columns and none is named confidence or score", first.len()))
                .hint(format!("{columns}; choose one with --column NAME or --column NUMBER (from 1)"))
        }),
        Some(column) => {
            let numbered = || column.parse::<usize>().ok()?.checked_sub(1).filter(|&i| i < first.len());
            named(column).or_else(numbered).ok_or_else(|| {
                Error::data(format!("there is no column {column}"))
                    .hint(format!("{columns}; numbers run from 1 to {}", first.len()))
            })
        }
    }
}

/// Splits at the delimiter, but not inside double quotes.
fn fields(line: &str, delimiter: char) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c == delimiter && !quoted => all.push(String::new()),
            c => all.last_mut().into_iter().for_each(|field| field.push(c)),
        }
    }
    all.iter().map(|field| field.trim().to_owned()).collect()
}

fn read_npy(bytes: &[u8]) -> Result<Vec<f64>> {
    let damaged = || Error::data("the NPY file is damaged or cut short").hint("write it again with numpy.save");
    // After the magic: version (2 bytes), header length (2 bytes in version 1, else 4), header, data.
    let wide = *bytes.get(6).ok_or_else(damaged)? > 1;
    let (length, start) = match (wide, bytes.get(8..12)) {
        (false, Some(b)) => (usize::from(u16::from_le_bytes([b[0], b[1]])), 10),
        (true, Some(b)) => (u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize, 12),
        _ => return Err(damaged()),
    };
    let end = length.checked_add(start).ok_or_else(damaged)?;
    let header = bytes.get(start..end).and_then(|h| std::str::from_utf8(h).ok()).ok_or_else(damaged)?;
    let after = |key: &str| header.split_once(key).map(|(_, rest)| rest.trim_start_matches([' ', ':']));
    let descr = after("'descr'").and_then(|rest| rest.split('\'').nth(1)).ok_or_else(damaged)?;
    let shape = after("'shape'").and_then(|rest| rest.strip_prefix('(')?.split(')').next()).ok_or_else(damaged)?;
    let shape: Vec<usize> = shape.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    let &[n] = shape.as_slice() else {
        return Err(Error::data(format!("the array has {} dimensions, not one", shape.len()))
            .hint("save the scores alone: numpy.save(file, scores.ravel())"));
    };

    macro_rules! numbers {
        ($type:ty, $size:literal) => {{
            let size = n.checked_mul($size).and_then(|size| end.checked_add(size)).ok_or_else(damaged)?;
            let data = bytes.get(end..size).ok_or_else(damaged)?;
            let big = descr.starts_with('>');
            data.as_chunks::<$size>()
                .0
                .iter()
                .map(|&b| if big { <$type>::from_be_bytes(b) } else { <$type>::from_le_bytes(b) } as f64)
                .collect::<Vec<f64>>()
        }};
    }
    let scores = match descr.trim_start_matches(['<', '>', '|', '=']) {
        "f8" => numbers!(f64, 8),
        "f4" => numbers!(f32, 4),
        "i1" => numbers!(i8, 1),
        "i2" => numbers!(i16, 2),
        "i4" => numbers!(i32, 4),
        "i8" => numbers!(i64, 8),
        "u1" => numbers!(u8, 1),
        "u2" => numbers!(u16, 2),
        "u4" => numbers!(u32, 4),
        "u8" => numbers!(u64, 8),
        _ => {
            return Err(Error::data(format!("the array is of type {descr}"))
                .hint("save floats or integers: numpy.save(file, scores.astype('f8'))"));
        }
    };
    match scores.iter().position(|s| s.is_nan()) {
        Some(i) => Err(no_score(i + 1, "NaN")),
        None => Ok(scores),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(flags: &[&str]) -> Args {
        Command::try_parse_from(["metrics", "id", "ood"].iter().chain(flags)).unwrap().args
    }

    fn read(content: impl AsRef<[u8]>, column: Option<&str>) -> Result<Vec<f64>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        read_scores(file.path(), column)
    }

    #[track_caller]
    fn fails(content: impl AsRef<[u8]>, column: Option<&str>, row: Option<u64>, message: &str) {
        let e = read(content, column).unwrap_err();
        assert!(e.to_string().contains(message), "{e}");
        assert_eq!(e.row(), row);
        assert!(e.file().is_some());
    }

    #[test]
    fn reads_text() {
        assert_eq!(read("1\n\n-2.5e3\r\ninf\n", None).unwrap(), [1.0, -2500.0, f64::INFINITY]);
        assert_eq!(read("\u{feff}score\n1\n2\n", None).unwrap(), [1.0, 2.0]);
        assert_eq!(read("anything\n1\n", Some("anything")).unwrap(), [1.0]);
    }

    #[test]
    fn reads_csv_columns() {
        let csv = "row,Confidence,\"a, b\",score\n1,0.5,7,0.25\n2,0.75,8,0.125\n";
        assert_eq!(read(csv, None).unwrap(), [0.5, 0.75]);
        assert_eq!(read(csv, Some("score")).unwrap(), [0.25, 0.125]);
        assert_eq!(read(csv, Some("a, b")).unwrap(), [7.0, 8.0]);
        assert_eq!(read(csv, Some("1")).unwrap(), [1.0, 2.0]);
        assert_eq!(read("1\t2\n3\t4\n", Some("2")).unwrap(), [2.0, 4.0]);
        assert_eq!(read("x;score\n3;4\n", None).unwrap(), [4.0]);
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        fails("1\nnan\n", None, Some(2), "the score is NaN");
        fails("a,score\n1,2\n1,\n", None, Some(3), "the score is missing");
        fails("1\ntwo\n", None, Some(2), "\"two\" is not a number");
        fails("a,score\n1,2\n1\n", None, Some(3), "the row has 1 of 2 columns");
        fails("1,2\n", None, None, "none is named confidence or score");
        fails("1,2\n", Some("0"), None, "no column 0");
        fails("1,2\n", Some("score"), None, "no column score");
        fails("\n", None, None, "no scores");
        fails("score\n", None, None, "no scores");
        fails(b"\xff\xfe", None, None, "neither UTF-8");
        let missing = read_scores(Path::new("does-not-exist"), None).unwrap_err();
        assert_eq!(missing.kind(), mcdd::error::Kind::Io);
    }

    fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.bytes());
        file.extend(data);
        file
    }

    #[test]
    fn reads_npy() {
        let f4: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(read(npy("<f4", "(2,)", &f4), None).unwrap(), [1.5, -2.0]);
        let f8: Vec<u8> = [0.1f64, f64::NAN].iter().flat_map(|x| x.to_be_bytes()).collect();
        assert_eq!(read(npy(">f8", "(1,)", &f8), None).unwrap(), [0.1]);
        fails(npy(">f8", "(2,)", &f8), None, Some(2), "NaN");
        assert_eq!(read(npy("|i1", "(2,)", &[1, 255]), None).unwrap(), [1.0, -1.0]);
        fails(npy("<i8", "(2,)", &[0; 15]), None, None, "cut short");
        fails(npy("<f4", "(1, 2)", &f4), None, None, "2 dimensions");
        fails(npy("<U4", "(1,)", &f4), None, None, "of type <U4");
        fails(b"\x93NUMPY\x01", None, None, "cut short");
    }

    const ID: [f64; 4] = [4.0, 3.0, 3.0, 2.0];
    const OOD: [f64; 3] = [3.0, 1.0, 0.0];

    #[test]
    fn every_line_says_which_side_is_positive() {
        for flags in [&["--compat", "authors"][..], &["--compat", "openood"], &["--bootstrap", "0"], &[]] {
            let report = Report::new(&ID, &OOD, &parse(flags)).unwrap();
            let table = report.table();
            let positive = table.lines().filter(|l| l.contains("positive: ID") || l.contains("positive: OOD"));
            assert_eq!(positive.count(), report.rows.len());
            assert!(table.starts_with("4 ID scores, 3 OOD scores, 16.67% of ID-OOD pairs tied"), "{table}");
            assert_eq!(table.contains("95% interval"), flags.is_empty());
            if let [_, mode @ ("authors" | "openood")] = flags {
                assert!(table.contains(&format!("definitions: {mode}")));
            }
        }
    }

    #[test]
    fn json_says_the_same() {
        let report = Report::new(&ID, &OOD, &parse(&["--bootstrap", "10", "--seed", "3"])).unwrap();
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["n_id"], 4);
        assert_eq!(json["compat"], Value::Null);
        assert_eq!(json["metrics"]["auroc"]["value"], 10.0 / 12.0);
        assert_eq!(json["metrics"]["fpr95_ood"]["positive"], "OOD");
        assert!(json["metrics"]["tnr85"]["interval95"]["low"].is_f64());
        assert_eq!(json["bootstrap"], json!({ "replicates": 10, "seed": 3 }));
        let report = Report::new(&ID, &OOD, &parse(&["--compat", "authors"])).unwrap();
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["compat"], "authors");
        assert_eq!(json["bootstrap"], Value::Null);
        assert_eq!(json["metrics"]["auout"]["positive"], "OOD");
    }
}
