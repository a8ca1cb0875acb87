//! Excel workbooks (`.xlsx`), by the calamine crate.
//!
//! The cells of a sheet are read one after the other on a thread of their own, so that memory holds a few rows and the
//! texts that the workbook shares, and not the sheet. Empty rows are skipped. A date is a text in ISO form, a time of day
//! too, and a duration is a number of days.

use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use calamine::{CellErrorType, DataRef, ExcelDateTime, Reader, SheetType, SheetVisible, Xlsx};

use super::cell::Cell;
use super::column::{ColumnBuilder, Want};
use super::delimited::{Record, SAMPLE, find_header, header_names};
use super::guard::guard;
use super::input::{RowSource, Storage, empty};
use super::libsvm::most_cells;
use super::options::ReadOptions;
use super::refused::RowLog;
use super::text::{Notices, list, positional_name, quoted};
use super::zipped::{any_member, reopen};
use crate::error::{Error, Result, Row};

/// The size of a part of a workbook, at most: calamine holds some of them in memory.
const MAX_PART: u64 = 1 << 30;

/// The size of a sheet.
const MAX_ROWS: u32 = 1 << 20;
const MAX_COLUMNS: u32 = 1 << 14;

/// How many cells the thread reads ahead, about.
const BLOCK: usize = 1 << 14;

/// A value of a sheet.
#[derive(Debug)]
enum Value {
    Number(f64),
    Bool(bool),
    Text(String),
    /// An error of a formula.
    Failed(CellErrorType),
}

/// A row with at least one cell: its number in the sheet, and its cells with their columns, both from 0.
struct SheetRow {
    number: u32,
    cells: Vec<(u32, Value)>,
}

/// What the thread sends: the name of the sheet and the others, then rows.
enum Message {
    Opened { sheet: String, sheets: Vec<String> },
    Rows(Vec<SheetRow>),
}

/// Rows of a sheet.
pub(crate) struct Excel {
    file: Arc<Path>,
    messages: Receiver<Result<Message>>,
    /// Rows that were received and not yet handed out.
    pending: VecDeque<SheetRow>,
    /// Whether the options have chosen the sheet.
    chosen: bool,
    /// The columns of the table.
    first: u32,
    width: u32,
    rows: u64,
    written: u64,
    notice: Option<String>,
    log: RowLog,
}

/// An opened sheet: column names, whether they are the file's own, and the rows.
pub(crate) struct Opened {
    pub names: Vec<String>,
    pub named: bool,
    pub rows: Excel,
}

/// Whether a zip archive is a document of Office.
pub(super) fn is_workbook(file: &Path, storage: &Storage) -> bool {
    any_member(file, storage, |name| name == "[Content_Types].xml" || name.starts_with("xl/"))
}

/// Opens the sheet that the options ask for, else the first.
pub(super) fn open(file: &Arc<Path>, storage: &Storage, options: &ReadOptions, log: RowLog) -> Result<Opened> {
    guard(|| check(file, storage)).unwrap_or_else(|| Err(bad(file, "its directory is inconsistent")))?;
    let (to, messages) = sync_channel(2);
    let (name, storage, wanted) = (Arc::clone(file), storage.clone(), options.sheet.clone());
    std::thread::Builder::new()
        .name("mcdd excel".into())
        .spawn(move || {
            let done = guard(|| read(&name, &storage, wanted.as_deref(), &to));
            if let Err(e) = done.unwrap_or_else(|| Err(bad(&name, "its structure is inconsistent"))) {
                let _ = to.send(Err(e));
            }
        })
        .map_err(|e| Error::setting(format!("a thread for the Excel file could not be started ({e})")))?;
    let mut rows = Excel {
        file: Arc::clone(file),
        messages,
        pending: VecDeque::new(),
        chosen: options.sheet.is_some(),
        first: 0,
        width: 0,
        rows: 0,
        written: 0,
        notice: None,
        log,
    };
    while rows.pending.len() < SAMPLE && rows.receive()? {}
    let Some(top) = rows.pending.front() else {
        return Err(empty(file));
    };
    let line = u64::from(top.number) + 1;
    rows.first = top.cells.first().map_or(0, |c| c.0);
    rows.width = top.cells.last().map_or(0, |c| c.0 + 1) - rows.first;
    let records: Vec<Record> = rows.pending.iter().take(SAMPLE).map(|row| rows.record(row)).collect();
    let header = options.header.unwrap_or_else(|| find_header(&records, &options.label));
    let names = match records.into_iter().next().filter(|_| header) {
        Some(record) => {
            rows.pending.pop_front();
            header_names(record, line, file, &mut rows.log)?
        }
        None => (0..rows.width as usize).map(positional_name).collect(),
    };
    Ok(Opened { names, named: header, rows })
}

fn bad(file: &Path, message: impl std::fmt::Display) -> Error {
    Error::data(format!("the Excel file is damaged or of an unsupported kind: {message}"))
        .at_file(file)
        .hint("save it again as .xlsx, or export the sheet as CSV")
}

/// Inflates all parts, to see that none is larger than calamine may hold, and that the number of shared texts is possible:
/// calamine makes room for as many as are announced.
fn check(file: &Path, storage: &Storage) -> Result<()> {
    let mut archive = zip::ZipArchive::new(reopen(file, storage)?).map_err(|e| bad(file, e))?;
    let mut buffer = Vec::new();
    for index in 0..archive.len() {
        let mut part = archive.by_index(index).map_err(|e| bad(file, e))?;
        let (mut size, mut announced) = (0u64, 0u64);
        loop {
            // The end of the chunk before stays, for a number that is cut.
            let kept = buffer.len().min(64);
            buffer.drain(..buffer.len() - kept);
            let read = part.by_ref().take(1 << 16).read_to_end(&mut buffer).map_err(|e| bad(file, e))? as u64;
            size += read;
            for at in memchr::memmem::find_iter(&buffer, b"uniqueCount") {
                announced = announced.max(number_after(&buffer[at + 11..]));
            }
            if size > MAX_PART {
                return Err(Error::data(format!("a part of the Excel file is larger than {} GiB", MAX_PART >> 30))
                    .at_file(file)
                    .hint("export the sheet as CSV or Parquet"));
            }
            if read == 0 {
                break;
            }
        }
        buffer.clear();
        // A text takes at least `<si/>`.
        if announced > size / 5 {
            return Err(bad(file, format!("{size} bytes announce {announced} texts")));
        }
    }
    Ok(())
}

/// The value of an attribute whose name was just passed.
fn number_after(rest: &[u8]) -> u64 {
    let digits = rest.iter().skip_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | b'=' | b'"' | b'\'' | b'+'));
    let digit = |b: &u8| b.is_ascii_digit().then(|| u64::from(b - b'0'));
    digits.map_while(digit).fold(0, |n, digit| n.saturating_mul(10).saturating_add(digit))
}

/// Reads a sheet and sends its rows. Runs on a thread of its own, and ends when nobody receives.
fn read(file: &Path, storage: &Storage, wanted: Option<&str>, to: &SyncSender<Result<Message>>) -> Result<()> {
    let mut workbook = Xlsx::new(reopen(file, storage)?).map_err(|e| bad(file, e))?;
    let sheets: Vec<(String, bool)> = workbook
        .sheets_metadata()
        .iter()
        .filter(|sheet| sheet.typ == SheetType::WorkSheet)
        .map(|sheet| (sheet.name.clone(), sheet.visible == SheetVisible::Visible))
        .collect();
    let names: Vec<String> = sheets.iter().map(|(name, _)| name.clone()).collect();
    let sheet = match wanted {
        None => sheets.iter().find(|(_, visible)| *visible).or(sheets.first()).map(|(name, _)| name.clone()),
        Some(wanted) => {
            let named = names.iter().find(|name| *name == wanted);
            let numbered = || wanted.parse::<usize>().ok()?.checked_sub(1).and_then(|at| names.get(at));
            Some(named.or_else(numbered).cloned().ok_or_else(|| {
                Error::setting(format!("there is no sheet {}; the sheets are: {}", quoted(wanted), list(&names)))
                    .at_file(file)
                    .hint("give `sheet` as it is in the file, or a position from 1")
            })?)
        }
    };
    let sheet = sheet.ok_or_else(|| bad(file, "it has no sheet"))?;
    let mut cells = workbook.worksheet_cells_reader(&sheet).map_err(|e| bad(file, e))?;
    if to.send(Ok(Message::Opened { sheet, sheets: names })).is_err() {
        return Ok(());
    }
    let (mut block, mut size): (Vec<SheetRow>, usize) = (Vec::new(), 0);
    let mut last: Option<(u32, u32)> = None;
    while let Some(cell) = cells.next_cell().map_err(|e| bad(file, e))? {
        let (row, column) = cell.get_position();
        if row >= MAX_ROWS || column >= MAX_COLUMNS || last.is_some_and(|last| last >= (row, column)) {
            return Err(bad(file, "its cells are not in order, or beyond the size of a sheet"));
        }
        last = Some((row, column));
        let Some(value) = value(cell.get_value()) else { continue };
        if block.last().is_none_or(|last| last.number != row) {
            if size >= BLOCK {
                size = 0;
                if to.send(Ok(Message::Rows(std::mem::take(&mut block)))).is_err() {
                    return Ok(());
                }
            }
            block.push(SheetRow { number: row, cells: Vec::new() });
        }
        if let Some(row) = block.last_mut() {
            row.cells.push((column, value));
            size += 1;
        }
    }
    let _ = to.send(Ok(Message::Rows(block)));
    Ok(())
}

/// A cell's value; none for an empty cell.
fn value(data: &DataRef<'_>) -> Option<Value> {
    let text = |text: &str| (!text.trim().is_empty()).then(|| Value::Text(text.to_owned()));
    match data {
        DataRef::Int(value) => Some(Value::Number(*value as f64)),
        DataRef::Float(value) => Some(Value::Number(*value)),
        DataRef::Bool(value) => Some(Value::Bool(*value)),
        DataRef::DateTime(value) if value.is_duration() => Some(Value::Number(value.as_f64())),
        DataRef::DateTime(value) => Some(Value::Text(iso(value))),
        DataRef::String(value) | DataRef::DateTimeIso(value) | DataRef::DurationIso(value) => text(value),
        DataRef::SharedString(value) => text(value),
        // What a formula gives for a value that is not there.
        DataRef::Error(CellErrorType::NA) | DataRef::Empty => None,
        DataRef::Error(error) => Some(Value::Failed(error.clone())),
    }
}

/// A date, a time of day, or both.
fn iso(value: &ExcelDateTime) -> String {
    let (year, month, day, hour, minute, second, milli) = value.to_ymd_hms_milli();
    let mut time = format!("{hour:02}:{minute:02}:{second:02}");
    if milli > 0 {
        time += &format!(".{milli:03}");
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    match value.as_f64() {
        days if days < 1.0 => time,
        days if days.fract() == 0.0 => date,
        _ => format!("{date}T{time}"),
    }
}

impl Value {
    fn cell(&self) -> Cell<'_> {
        match self {
            Value::Number(value) => Cell::F64(*value),
            Value::Bool(value) => Cell::Bool(*value),
            Value::Text(text) => Cell::Text(text),
            Value::Failed(_) => Cell::Missing,
        }
    }
}

impl Excel {
    /// Receives more rows; `false` at the end.
    fn receive(&mut self) -> Result<bool> {
        match self.messages.recv() {
            Err(_) => Ok(false),
            Ok(Err(error)) => Err(error),
            Ok(Ok(Message::Rows(rows))) => {
                self.pending.extend(rows);
                Ok(true)
            }
            Ok(Ok(Message::Opened { sheet, sheets })) => {
                if sheets.len() > 1 && !self.chosen {
                    let others: Vec<&String> = sheets.iter().filter(|other| **other != sheet).collect();
                    let (file, sheet, others) = (self.file.display(), quoted(&sheet), list(&others));
                    self.notice =
                        Some(format!("{file}: the sheet {sheet} is read; `sheet` chooses another one ({others})"));
                }
                Ok(true)
            }
        }
    }

    /// The cells of a row as texts.
    fn record(&self, row: &SheetRow) -> Record {
        let mut record = vec![Vec::new(); self.width as usize];
        for (column, value) in &row.cells {
            let place = column.checked_sub(self.first).and_then(|at| record.get_mut(at as usize));
            if let Some(place) = place {
                *place = match value {
                    Value::Number(value) => value.to_string().into_bytes(),
                    Value::Bool(value) => value.to_string().into_bytes(),
                    Value::Text(text) => text.clone().into_bytes(),
                    Value::Failed(_) => Vec::new(),
                };
            }
        }
        record
    }

    /// Checks that all cells of a row are in columns of the first row.
    fn check(&self, row: &SheetRow) -> Result<()> {
        let columns = self.first..self.first + self.width;
        match row.cells.iter().find(|(column, _)| !columns.contains(column)) {
            None => Ok(()),
            Some((column, _)) => Err(Error::data("a cell lies outside of the columns of the first row")
                .at_file(&self.file)
                .at_row(self.place(row))
                .at_column(letters(*column))
                .hint(
                    "the first row of the sheet names the columns: give every column a name, and remove other cells",
                )),
        }
    }

    /// The row that was read last.
    fn place(&self, row: &SheetRow) -> Row {
        Row::at_line(self.rows, u64::from(row.number) + 1)
    }

    fn append(&mut self, row: &SheetRow, columns: &mut [ColumnBuilder]) -> Result<()> {
        self.written += row.cells.len() as u64;
        let at = self.place(row);
        if self.rows.saturating_mul(u64::from(self.width)) > most_cells(self.written) {
            return Err(Error::data(format!(
                "the rows so far have {} cells, of which {} are filled",
                self.rows * u64::from(self.width),
                self.written
            ))
            .at_file(&self.file)
            .at_row(at)
            .hint("data as sparse as this is not supported: keep fewer columns"));
        }
        let mut cells = row.cells.iter().peekable();
        for (place, column) in (self.first..).zip(columns.iter_mut()) {
            match cells.next_if(|(at, _)| *at == place) {
                None => column.push_cell(Cell::Missing, at)?,
                Some((_, Value::Failed(error))) if column.want != Want::Skip => {
                    let error = Error::data(format!("the cell holds the error {error}"))
                        .at_file(&self.file)
                        .at_row(at)
                        .at_column(column.shown())
                        .hint("correct the formula, or empty the cell if the value is missing");
                    column.refuse(error)?;
                }
                Some((_, value)) => column.push_cell(value.cell(), at)?,
            }
        }
        Ok(())
    }
}

/// The name of a column of a sheet: A, B, …, Z, AA.
fn letters(mut column: u32) -> String {
    let mut name = String::new();
    loop {
        name.insert(0, char::from(b'A' + (column % 26) as u8));
        match (column / 26).checked_sub(1) {
            Some(next) => column = next,
            None => return name,
        }
    }
}

impl RowSource for Excel {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        self.log.clear();
        let mut rows = 0;
        while rows < max {
            match self.pending.pop_front() {
                Some(row) => {
                    self.rows += 1;
                    match self.check(&row) {
                        Err(error) => self.log.refuse(error)?,
                        Ok(()) => {
                            self.log.lines.push(u64::from(row.number) + 1);
                            self.append(&row, columns)?;
                            rows += 1;
                        }
                    }
                }
                None if self.receive()? => {}
                None => break,
            }
        }
        Ok(rows)
    }

    fn log(&mut self) -> Option<&mut RowLog> {
        Some(&mut self.log)
    }

    fn notices(&self) -> Notices {
        self.notice.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calamine::ExcelDateTimeType;

    #[test]
    fn dates_are_texts_in_iso_form() {
        let text = |value: f64| iso(&ExcelDateTime::new(value, ExcelDateTimeType::DateTime, false));
        assert_eq!(text(45943.0), "2025-10-13");
        assert_eq!(text(45943.5), "2025-10-13T12:00:00");
        assert_eq!(text(45943.541), "2025-10-13T12:59:02.400");
        assert_eq!(text(0.75), "18:00:00");
        let days = ExcelDateTime::new(1.5, ExcelDateTimeType::TimeDelta, false);
        assert!(matches!(value(&DataRef::DateTime(days)), Some(Value::Number(1.5))));
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!([0, 25, 26, 701, 702, 16383].map(letters), ["A", "Z", "AA", "ZZ", "AAA", "XFD"]);
        assert_eq!(number_after(b"=\"123\" x"), 123);
        assert_eq!(number_after(b" = '99999999999999999999999'"), u64::MAX);
        assert_eq!(number_after(b"s"), 0);
    }
}
