//! CSV, TSV and other separated text, and the spaces of the UCI files.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use super::column::{Cells, ColumnBuilder};
use super::input::{Input, PREFIX, RowSource, empty};
use super::lines::{Lines, split_plain, split_quoted, split_spaces};
use super::number::{self, Parsed};
use super::options::{LABEL_NAMES, Label, ReadOptions};
use super::plain_rows::{PlainRows, Text};
use super::recognize::value_like;
use super::refused::RowLog;
use super::text::{positional_name, quoted};
use crate::error::{Error, Kind, Result, Row, count as cells};

/// The most columns of a table.
pub(crate) const MAX_COLUMNS: usize = 1 << 20;

/// How many records are looked at to find separator and header.
pub(super) const SAMPLE: usize = 50;

/// The fields of a row, as they are in the file.
pub(super) type Record = Vec<Vec<u8>>;

/// The dialect of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// A space stands for runs of spaces and tabs.
    pub separator: u8,
    pub header: bool,
    pub newline: u8,
}

/// Rows of separated text.
pub(crate) struct Delimited {
    lines: Lines,
    separator: u8,
    width: usize,
    /// The first row, where it was read to learn the width and holds data.
    pending: bool,
    text: Vec<u8>,
    ends: Vec<usize>,
    /// The length of the content where it is known, and the rows read so far with the current one.
    length: Option<u64>,
    count: u64,
    log: RowLog,
    /// How often reading went back to the line after an open quote.
    returns: usize,
    plain: PlainRows,
    /// Rows that are read one by one before plain ones are looked for again, and how many the last time.
    one_by_one: usize,
    patience: usize,
}

/// Bytes that are looked at together for plain rows.
const AHEAD: usize = 1 << 19;
/// The most rows that are read one by one before plain rows are looked for again.
const PATIENCE: usize = 1 << 12;

/// How often reading goes back to the line after an open quote; each time the rest of the file is looked through.
const MOST_RETURNS: usize = 20;

/// An opened text table: column names, whether they are the file's own, and the rows.
pub(crate) struct Opened {
    pub names: Vec<String>,
    pub named: bool,
    pub separator: u8,
    pub rows: Delimited,
}

/// The byte that ends a line: a carriage return only in files that have nothing else.
pub(crate) fn newline_of(prefix: &[u8]) -> u8 {
    let has = |b| memchr::memchr(b, prefix).is_some();
    if !has(b'\n') && has(b'\r') { b'\r' } else { b'\n' }
}

/// Opens separated text whose content starts at byte `skip` (after a byte-order mark).
pub(crate) fn open(mut input: Input, skip: usize, options: &ReadOptions, log: RowLog) -> Result<Opened> {
    let newline = newline_of(&input.prefix);
    // A few whole lines are needed, and lines can be long.
    input.lengthen(4, newline, 1 << 24)?;
    let mut dialect = detect(&input.prefix[skip..], input.whole, newline, options);
    let file = Arc::clone(&input.file);
    let length = input.length;
    let lines = Lines::new(input.into_read(skip), Arc::clone(&file), newline);
    let mut rows = Delimited {
        lines,
        separator: dialect.separator,
        width: 0,
        pending: false,
        text: Vec::new(),
        ends: Vec::new(),
        length,
        count: 0,
        log,
        returns: 0,
        plain: PlainRows::default(),
        one_by_one: 0,
        patience: 0,
    };
    let first = match rows.record() {
        Err(error) if rows.log.passes_over() && error.kind() == Kind::Data => {
            let line;
            (dialect, line) = rows.without_quotes(options);
            if dialect.header {
                rows.log.refuse(error)?;
            }
            Some(line)
        }
        first => first?,
    };
    let Some(first) = first else {
        return Err(empty(&file));
    };
    if first.len() > MAX_COLUMNS {
        return Err(Error::data(format!("the first row has {} cells", first.len()))
            .at_file(&file)
            .at_line(rows.lines.line())
            .hint("check `separator`"));
    }
    rows.width = first.len();
    if !dialect.header {
        rows.pending = true;
        let names = (0..rows.width).map(positional_name).collect();
        return Ok(Opened { names, named: false, separator: dialect.separator, rows });
    }
    let names = header_names(first, rows.lines.line(), &file, &mut rows.log)?;
    Ok(Opened { names, named: true, separator: dialect.separator, rows })
}

/// The names of a header. One that cannot be used is replaced by the column's position, where the log passes over it.
pub(super) fn header_names(cells: Record, line: u64, file: &Path, log: &mut RowLog) -> Result<Vec<String>> {
    let mut names = Vec::with_capacity(cells.len());
    let mut seen = HashSet::new();
    for (index, cell) in cells.into_iter().enumerate() {
        let at = |error: Error| error.at_file(file).at_line(line).at_column((index + 1).to_string());
        let name = String::from_utf8(cell).or_else(|_| {
            let error = at(Error::data("the column name is not valid UTF-8"))
                .hint("save the file as UTF-8, or convert it with `iconv -t UTF-8`");
            log.refuse(error).map(|()| String::new())
        })?;
        let mut name = match name.trim() {
            "" => positional_name(index),
            name => name.to_owned(),
        };
        if !seen.insert(name.clone()) {
            let error = at(Error::data(format!("two columns have the name {}", quoted(&name))));
            log.refuse(error.hint("give each column a name of its own, or `header` no if the first row holds data"))?;
            name = positional_name(index);
        }
        names.push(name);
    }
    Ok(names)
}

impl Delimited {
    /// The next record that is not blank, as its fields; the slow way, for the first rows.
    fn record(&mut self) -> Result<Option<Record>> {
        if !self.next_line()? {
            return Ok(None);
        }
        let mut fields = Vec::new();
        self.each(|field| {
            fields.push(field.to_vec());
            Ok(())
        })?;
        Ok(Some(fields))
    }

    /// The first line without its quotes, one of which is not closed, and the dialect of a file that begins with it. The next
    /// record is the second line.
    fn without_quotes(&mut self, options: &ReadOptions) -> (Dialect, Record) {
        let newline = self.lines.newline();
        let all = self.lines.current();
        let (first, rest) = all.split_at(memchr::memchr(newline, all).unwrap_or(all.len()));
        let line: Vec<u8> = first.iter().copied().filter(|&b| b != b'"').collect();
        let rest = &rest[..rest.len().min(PREFIX)];
        let dialect = detect(&[&line, rest].concat(), rest.len() < PREFIX, newline, options);
        self.separator = dialect.separator;
        self.lines.back_to_first();
        let mut record = Record::new();
        let push = |field: &[u8]| {
            record.push(field.to_vec());
            Ok::<(), Infallible>(())
        };
        let Ok(()) = match dialect.separator {
            b' ' => split_spaces(&line, push),
            separator => split_plain(&line, separator, push),
        };
        (dialect, record)
    }

    /// Goes to the next line that is not blank.
    fn next_line(&mut self) -> Result<bool> {
        while self.lines.advance()? {
            let line = self.lines.current();
            let blank = if self.separator == b' ' { line.trim_ascii().is_empty() } else { line.is_empty() };
            if !blank {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Calls `field` with each field of the current record, which may lengthen by lines.
    fn each(&mut self, mut field: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.separator == b' ' {
            return split_spaces(self.lines.current(), field);
        }
        if memchr::memchr(b'"', self.lines.current()).is_none() {
            return split_plain(self.lines.current(), self.separator, field);
        }
        self.close_quotes()?;
        let mut start = 0;
        for &end in &self.ends {
            field(&self.text[start..end])?;
            start = end;
        }
        Ok(())
    }

    /// Splits the current record into `text` and `ends`, with as many lines as its quotes need.
    fn close_quotes(&mut self) -> Result<()> {
        let mut open = None;
        loop {
            open = split_quoted(self.lines.current(), self.separator, open, &mut self.text, &mut self.ends);
            if open.is_none() {
                return Ok(());
            }
            if !self.lines.lengthen()? {
                let error = Error::data("a quote is opened and never closed")
                    .at_file(self.lines.file())
                    .hint("close the quote; a quote inside a quoted cell is written twice");
                return Err(match self.count {
                    0 => error.at_line(self.lines.line()),
                    _ => error.at_row(self.row()),
                });
            }
        }
    }

    /// Checks the number of cells of the current record.
    fn check_width(&mut self) -> Result<()> {
        let mut found = 0;
        self.each(|_| {
            found += 1;
            Ok(())
        })?;
        if found == self.width {
            return Ok(());
        }
        let first = self.lines.line();
        let lines = match self.lines.count() {
            0 | 1 => String::new(),
            n => format!("; its quotes go from line {first} to {}", first + n - 1),
        };
        let what = format!("the row has {} where the first row has {}{lines}", cells(found, "cell"), self.width);
        Err(Error::data(what)
            .at_file(self.lines.file())
            .at_row(self.row())
            .at_column((found.min(self.width) + 1).to_string())
            .hint(if self.separator == b' ' {
                "a missing value must be written (as NA) in a file separated by spaces; else give `separator`"
            } else {
                "complete the row; quote a cell that contains the separator, or give `separator`"
            }))
    }

    /// Notes a row that cannot be used. Where it is one of several lines because of an open quote, reading goes on with its
    /// second line.
    fn refuse(&mut self, error: Error) -> Result<()> {
        let error = error.at_row(self.row());
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        let mut is_row = |line: &[u8]| {
            split_quoted(line, self.separator, None, &mut text, &mut ends).is_none() && ends.len() == self.width
        };
        let mut others = self.lines.current().split(|b| matches!(b, b'\n' | b'\r')).skip(1);
        if self.lines.count() > 1 && others.any(&mut is_row) {
            if self.returns == MOST_RETURNS {
                return Err(error);
            }
            self.returns += 1;
            self.lines.back_to_first();
        }
        self.log.refuse(error)
    }

    /// Appends rows without quotes, on all threads.
    fn fill_plain(&mut self, max: usize, columns: &mut [ColumnBuilder]) -> Result<usize> {
        if columns.len() != self.width {
            return Ok(0);
        }
        // About as many bytes as the rows have, so that few are parsed in vain.
        let row = self.lines.position() / self.count.max(1) + 1;
        let wanted = (max as u64).saturating_mul(row).clamp(1, AHEAD as u64) as usize;
        let (newline, separator) = (self.lines.newline(), self.separator);
        let line = self.lines.next_number();
        let text = Text { text: self.lines.ahead(wanted)?, newline, separator, first: [self.count + 1, line] };
        let [rows, bytes] = self.plain.parse(text, max, columns)?;
        // Where there are few, looking for them costs more than it brings: the next try is after twice as many rows.
        self.patience = if rows < 16 { (2 * self.patience).clamp(16, PATIENCE) } else { 0 };
        self.one_by_one = self.patience;
        self.log.lines.extend(line..line + rows as u64);
        self.lines.skip(bytes, rows as u64);
        self.count += rows as u64;
        Ok(rows)
    }

    /// The current row.
    fn row(&self) -> Row {
        Row::at_line(self.count, self.lines.line())
    }

    /// Appends the current record to the columns. After an error the columns are of unequal length, which
    /// does not matter because reading ends there.
    fn append(&mut self, columns: &mut [ColumnBuilder]) -> Result<()> {
        let row = self.row();
        let separator = self.separator;
        let mut count = 0;
        let plain = separator != b' ' && memchr::memchr(b'"', self.lines.current()).is_none();
        let done = if plain {
            // The bulk of all files: number cells are read where they stand, in one pass over the bytes.
            let mut rest = self.lines.current();
            loop {
                // Here a cell is due, because the row began or a separator was passed.
                count += 1;
                let Some(column) = columns.get_mut(count - 1) else {
                    break Ok(());
                };
                if let (Cells::Number(values), None) = (&mut column.cells, &column.kept)
                    && column.form.is_none()
                    && let Some((value, used)) = number::prefix(rest)
                {
                    if used == rest.len() {
                        column.points.note(rest, value, values.len());
                        values.push(value);
                        break Ok(());
                    }
                    if rest[used] == separator {
                        column.points.note(&rest[..used], value, values.len());
                        values.push(value);
                        rest = &rest[used + 1..];
                        continue;
                    }
                }
                let Some(at) = memchr::memchr(separator, rest) else {
                    break column.push(rest, row);
                };
                if let Err(error) = column.push(&rest[..at], row) {
                    break Err(error);
                }
                rest = &rest[at + 1..];
            }
        } else {
            self.each(|field| {
                if let Some(column) = columns.get_mut(count) {
                    column.push(field, row)?;
                }
                count += 1;
                Ok(())
            })
        };
        if done.is_ok() && count == self.width {
            return Ok(());
        }
        // A cell that stands in the wrong column is not the mistake: the missing or extra one is.
        self.check_width()?;
        done
    }
}

impl RowSource for Delimited {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        self.log.clear();
        let mut rows = 0;
        while rows < max {
            if self.one_by_one == 0 && !self.pending && self.separator != b' ' {
                rows += self.fill_plain(max - rows, columns)?;
                if rows == max {
                    break;
                }
            }
            self.one_by_one = self.one_by_one.saturating_sub(1);
            if self.pending {
                self.pending = false;
            } else if !self.next_line()? {
                break;
            }
            self.count += 1;
            if self.log.passes_over()
                && let Err(error) = self.check_width()
            {
                self.refuse(error)?;
                continue;
            }
            self.log.lines.push(self.lines.line());
            self.append(columns)?;
            rows += 1;
        }
        Ok(rows)
    }

    fn log(&mut self) -> Option<&mut RowLog> {
        Some(&mut self.log)
    }

    fn remaining(&self) -> Option<usize> {
        let read = self.lines.position();
        let rest = self.length?.saturating_sub(read) as f64;
        let row = read as f64 / self.count.max(1) as f64;
        Some((rest / row.max(1.0)) as usize)
    }
}

/// The first records under a separator, as the reader would split them.
fn sample(prefix: &[u8], whole: bool, separator: u8, newline: u8) -> Vec<Record> {
    let input: Box<dyn Read + Send> = Box::new(Cursor::new(prefix.to_vec()));
    let mut rows = Delimited {
        lines: Lines::new(input, Path::new("").into(), newline),
        separator,
        width: 0,
        pending: false,
        text: Vec::new(),
        ends: Vec::new(),
        length: None,
        count: 0,
        log: RowLog::default(),
        returns: 0,
        plain: PlainRows::default(),
        one_by_one: 0,
        patience: 0,
    };
    let mut records = Vec::new();
    // An error is a quote that the prefix does not close: what stands before it is the sample.
    while let Ok(Some(record)) = rows.record() {
        records.push(record);
        if records.len() > SAMPLE {
            break;
        }
    }
    let cut = !whole || records.len() > SAMPLE;
    if cut && records.len() > 1 {
        records.pop();
    }
    records
}

/// Finds separator and header where they are not given.
pub(crate) fn detect(prefix: &[u8], whole: bool, newline: u8, options: &ReadOptions) -> Dialect {
    let (separator, records) = match options.separator {
        Some(separator) => (separator, sample(prefix, whole, separator, newline)),
        None => find_separator(prefix, whole, newline),
    };
    let header = options.header.unwrap_or_else(|| find_header(&records, &options.label));
    Dialect { separator, header, newline }
}

/// How well a separator fits: agreeing rows and number cells in thousandths, and cells in a row.
type Score = (usize, u64, usize);

/// The separator that splits the first lines into the same number of cells, at least two; among several the
/// one that leaves the largest fraction of numbers, then the most cells. Spaces only come after the others,
/// because texts contain them.
fn find_separator(prefix: &[u8], whole: bool, newline: u8) -> (u8, Vec<Record>) {
    let mut best: Option<(Score, u8, Vec<Record>)> = None;
    for separator in [b',', b'\t', b';', b'|', b' '] {
        if separator == b' ' && matches!(&best, Some(((1000, ..), ..))) {
            break;
        }
        if separator != b' ' && memchr::memchr(separator, prefix).is_none() {
            continue;
        }
        let records = sample(prefix, whole, separator, newline);
        let mut counts: Vec<usize> = records.iter().map(Vec::len).collect();
        counts.sort_unstable();
        // The middle count is that of most rows, even when one of them is ragged.
        let Some(&count) = counts.get(counts.len() / 2) else {
            continue;
        };
        let agree = counts.iter().filter(|&&c| c == count).count();
        let agree = agree * 1000 / counts.len();
        if count < 2 || agree < 500 {
            continue;
        }
        let cells = || records.iter().flatten();
        let numbers = cells().filter(|c| value_like(c)).count();
        let fraction = (numbers * 1000 / cells().count().max(1)) as u64;
        let score = (agree, fraction, count);
        if best.as_ref().is_none_or(|(top, ..)| score > *top) {
            best = Some((score, separator, records));
        }
    }
    match best {
        Some((_, separator, records)) => (separator, records),
        None => (b',', sample(prefix, whole, b',', newline)),
    }
}

/// Whether the first row holds names: it has no number while a later row has one; or no row has one at all;
/// or it holds the name of the label column. A cell such as `29.7%` or a date is a number here where the cells below it are
/// written like that as well.
pub(super) fn find_header(records: &[Record], label: &Label) -> bool {
    let Some((first, later)) = records.split_first() else {
        return false;
    };
    let number = |cell: &Vec<u8>| matches!(number::parse(cell), Parsed::Number(_) | Parsed::Infinite);
    let is = |cell: &Vec<u8>, name: &str| cell.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    if let Label::Name(name) = label
        && first.iter().any(|cell| cell.trim_ascii() == name.as_bytes())
    {
        return true;
    }
    let written = |cell: &Vec<u8>| matches!(number::parse(cell), Parsed::Text) && value_like(cell);
    let like_later = |(index, cell): (usize, &Vec<u8>)| {
        let mut below = later.iter().filter_map(|row| row.get(index)).peekable();
        written(cell) && below.peek().is_some() && below.all(written)
    };
    if !first.iter().any(number) && !first.iter().enumerate().any(like_later) {
        return true;
    }
    // Numbers can be names, counted up (a data frame made of an array); the label's name beside them shows it,
    // unless it is a class that later rows have too.
    let mut numbers = first.iter().filter_map(|cell| match number::parse(cell) {
        Parsed::Number(value) => Some(value),
        _ => None,
    });
    let Some(start) = numbers.next().filter(|n| [0.0, 1.0].contains(n)) else {
        return false;
    };
    numbers.zip(1..).all(|(n, more)| n == start + f64::from(more))
        && first.iter().enumerate().any(|(index, cell)| {
            LABEL_NAMES.iter().any(|name| is(cell, name))
                && !later.is_empty()
                && !later.iter().any(|row| row.get(index).is_some_and(|c| c == cell))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect(text: &str, label: Label) -> (u8, bool) {
        let options = ReadOptions { label, ..ReadOptions::default() };
        let found = detect(text.as_bytes(), true, newline_of(text.as_bytes()), &options);
        (found.separator, found.header)
    }

    #[test]
    fn separator_and_header_are_found() {
        let name = |n: &str| Label::Name(n.into());
        for (text, label, want) in [
            ("a,b\n1,2\n", Label::Auto, (b',', true)),
            ("1,2\n3,4\n", Label::Auto, (b',', false)),
            ("a\tb\n1\t2\n", Label::Auto, (b'\t', true)),
            ("1\t2\n", Label::Auto, (b'\t', false)),
            ("a;b\n1.5;2\n", Label::Auto, (b';', true)),
            ("a|b\n1|2\n", Label::Auto, (b'|', true)),
            ("1 2 3\n4 5 6", Label::Last, (b' ', false)),
            ("  1   2 3  \n 4 5\t6", Label::Last, (b' ', false)),
            ("first name,age\nann b,3\n", Label::Auto, (b',', true)),
            ("red,big\nblue,small\n", Label::Auto, (b',', true)),
            ("red,1\nblue,2\n", Label::Last, (b',', false)),
            ("0,1,label\n5,6,x\n7,8,y\n", Label::Auto, (b',', true)),
            ("5,6,y\n7,8,y\n", Label::Last, (b',', false)),
            ("5,6,y\n7,8,n\n", Label::Last, (b',', false)),
            ("0,1,y\n0,1,y\n", Label::Last, (b',', false)),
            (",0,1,y\na,5,6,x\n", Label::Auto, (b',', true)),
            ("0,1,2\n5,6,x\n7,8,y\n", name("2"), (b',', true)),
            ("\"a,1\";b\n\"c,2\";3\n", Label::Auto, (b';', true)),
            ("a,\"b\nc\"\n1,2\n", Label::Auto, (b',', true)),
            ("a,b,c\n1,2,3\n4,5\n6,7,8\n", Label::Auto, (b',', true)),
            ("x\n1\n2\n", Label::None, (b',', true)),
            ("1\n2\n", Label::None, (b',', false)),
            ("a,b\r1,2\r3,4\r", Label::Auto, (b',', true)),
            ("inf,1\n2,3\n", Label::Auto, (b',', false)),
            ("", Label::Auto, (b',', false)),
        ] {
            assert_eq!(dialect(text, label), want, "{text:?}");
        }
    }

    #[test]
    fn a_cut_prefix_does_not_mislead() {
        let options = ReadOptions::default();
        let found = detect(b"a,b,c\n1,2,3\n4,5", false, b'\n', &options);
        assert_eq!((found.separator, found.header), (b',', true));
    }
}
