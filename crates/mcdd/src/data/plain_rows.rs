//! Lines without quotes, parsed on all threads: the bulk of most files.
//!
//! Threads find the cells of their lines, and read plain numbers. Other cells (texts, missing cells, numbers that need a closer look)
//! go to their columns afterwards, in order, by the same function as those of any other row. A line with a quote, or with a
//! wrong number of cells, is left to the reader of single rows.

use super::column::{Cells, ColumnBuilder};
use super::decimal::{self, CELLS};
use super::number;
use crate::compute::bytes::either;
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd::{Kernel, Simd, dispatch};
use crate::error::{Result, Row};

/// Bytes of a part, about; a part is what one thread parses at a time.
const PART: usize = 1 << 16;

/// What to do with the cells of a column.
#[derive(Clone, Copy)]
enum Take {
    Skip,
    /// A plain number; with a point, if its column is known to have some.
    Number {
        decimal: bool,
    },
    /// Anything else.
    Text,
}

/// Buffers of [`PlainRows::parse`].
#[derive(Debug, Default)]
pub(super) struct PlainRows {
    parts: Vec<Part>,
}

#[derive(Debug, Default)]
struct Part {
    /// The cells of all columns of numbers, row by row.
    numbers: Vec<f64>,
    /// Where the cells of all other columns are, row by row.
    texts: Vec<[u32; 2]>,
    /// The cells of columns of numbers that are none, in order, and where they are.
    others: Vec<Other>,
    rows: usize,
    /// Bytes of these rows.
    bytes: usize,
    /// Whether that is the whole part.
    whole: bool,
    /// Where the cells of all columns end, and where those of columns of numbers begin and end: buffers. Numbers whose ends are
    /// known can be read several at a time.
    ends: Vec<u32>,
    starts: Vec<u32>,
    stops: Vec<u32>,
}

/// The columns of a text.
struct Takes {
    columns: Vec<Take>,
    /// How many are of numbers.
    numbers: usize,
    /// For each column of numbers 1 if its numbers may have a point, else 0; then those of the first columns again, so that the flags
    /// of as many cells as are read at once follow each other.
    points: Vec<u8>,
}

impl Takes {
    fn new(columns: &[ColumnBuilder]) -> Takes {
        let columns: Vec<Take> = columns.iter().map(take).collect();
        let flag = |take: &Take| match take {
            Take::Number { decimal } => Some(u8::from(*decimal)),
            Take::Skip | Take::Text => None,
        };
        let flags: Vec<u8> = columns.iter().filter_map(flag).collect();
        let again = if flags.is_empty() { 0 } else { CELLS };
        let points = flags.iter().copied().chain(flags.iter().copied().cycle().take(again)).collect();
        Takes { columns, numbers: flags.len(), points }
    }
}

#[derive(Clone, Copy, Debug)]
struct Other {
    /// The place in `numbers`.
    number: usize,
    place: [u32; 2],
}

/// Lines to parse.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    /// Whole lines.
    pub text: &'a [u8],
    pub newline: u8,
    pub separator: u8,
    /// The number of the first row, and of its line.
    pub first: [u64; 2],
}

impl Text<'_> {
    fn row(&self, index: usize) -> Row {
        Row::at_line(self.first[0] + index as u64, self.first[1] + index as u64)
    }
}

impl PlainRows {
    /// Appends the first rows of a text to the columns: at most `max`, and none after the first line with a quote or a wrong
    /// number of cells. Returns their number and how many bytes they have.
    ///
    /// # Errors
    /// If a cell cannot be used.
    pub(super) fn parse(&mut self, from: Text, max: usize, columns: &mut [ColumnBuilder]) -> Result<[usize; 2]> {
        let takes = Takes::new(columns);
        let numbers = takes.numbers;
        if numbers == 0 {
            return Ok([0; 2]);
        }
        // A quote may stand around a line's end.
        let text = match memchr::memchr(b'"', from.text) {
            Some(quote) => &from.text[..after_last(from.newline, &from.text[..quote])],
            None => from.text,
        };
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let least = PART.min(rest.len() - 1);
            let cut = memchr::memchr(from.newline, &rest[least..]);
            let (piece, more) = rest.split_at(cut.map_or(rest.len(), |at| least + at + 1));
            pieces.push(piece);
            rest = more;
        }
        self.parts.resize_with(pieces.len().max(self.parts.len()), Part::default);
        let parts = &mut self.parts[..pieces.len()];
        Pool::shared().split(chunks(parts, 1), |i, part| {
            let [part] = part else { return };
            dispatch(Parse { part, text: pieces[i], from, max, takes: &takes });
        });
        let takes = takes.columns;
        let mut done = [0; 2];
        // Parts whose numbers are still to be appended.
        let mut waiting: Vec<(&Part, usize)> = Vec::with_capacity(parts.len());
        for (part, piece) in parts.iter().zip(&pieces) {
            let wanted = part.rows.min(max - done[0]);
            let row_of = |row| from.row(done[0] + row);
            let rows = if part.others.is_empty() {
                part.append_texts(piece, wanted, &takes, row_of, columns)?;
                waiting.push((part, wanted));
                wanted
            } else {
                append_numbers(&mut waiting, numbers, &takes, columns);
                part.append(piece, wanted, numbers, &takes, row_of, columns)?
            };
            done[0] += rows;
            if rows < part.rows {
                // The bytes of these rows.
                done[1] += memchr::memchr_iter(from.newline, piece).nth(rows.wrapping_sub(1)).map_or(0, |at| at + 1);
                break;
            }
            done[1] += part.bytes;
            if !part.whole || done[0] == max {
                break;
            }
        }
        append_numbers(&mut waiting, numbers, &takes, columns);
        Ok(done)
    }
}

/// Appends the numbers of the first rows of some parts to the columns of numbers, on all threads. `numbers` is their count.
fn append_numbers(parts: &mut Vec<(&Part, usize)>, numbers: usize, takes: &[Take], columns: &mut [ColumnBuilder]) {
    /// Columns of a task: what lies together in memory.
    const TOGETHER: usize = 8;
    let mut values: Vec<&mut Vec<f64>> = Vec::with_capacity(numbers);
    for (column, take) in columns.iter_mut().zip(takes) {
        if let (Cells::Number(to), Take::Number { .. }) = (&mut column.cells, take) {
            values.push(to);
        }
    }
    // A column that is none of numbers any more has ended the rows before this.
    if values.len() == numbers {
        Pool::shared().split(chunks(&mut values, TOGETHER), |group, values| {
            for &(part, rows) in parts.iter().filter(|(_, rows)| *rows > 0) {
                for (i, values) in (group * TOGETHER..).zip(values.iter_mut()) {
                    values.extend(part.numbers[i..].iter().step_by(numbers).take(rows));
                }
            }
        });
    }
    parts.clear();
}

/// What to do with a column.
fn take(column: &ColumnBuilder) -> Take {
    match (&column.cells, &column.form, &column.kept) {
        (Cells::Skip, _, None) => Take::Skip,
        (Cells::Number(_), None, None) => Take::Number { decimal: column.points.decimal },
        _ => Take::Text,
    }
}

/// Where the last line of a text ends.
fn after_last(newline: u8, text: &[u8]) -> usize {
    memchr::memrchr(newline, text).map_or(0, |at| at + 1)
}

/// Finds the bytes of a text that are one of two. Returns their places, in `buffer`.
#[inline(always)]
fn find_ends<'a>(text: &[u8], wanted: [u8; 2], buffer: &'a mut Vec<u32>) -> &'a [u32] {
    let mut count = 0;
    let (blocks, rest) = text.as_chunks::<64>();
    for (i, block) in blocks.iter().enumerate() {
        let mut found = either(block, wanted);
        if buffer.len() < count + 64 {
            buffer.resize(2 * count + 64, 0);
        }
        let Some(places) = buffer[count..].first_chunk_mut::<64>() else { break };
        let new = found.count_ones() as usize;
        for place in &mut places[..new.min(64)] {
            *place = (64 * i) as u32 + found.trailing_zeros();
            found &= found.wrapping_sub(1);
        }
        count += new;
    }
    let at = text.len() - rest.len();
    buffer.resize(buffer.len().max(count + rest.len()), 0);
    for end in memchr::memchr2_iter(wanted[0], wanted[1], rest) {
        buffer[count] = (at + end) as u32;
        count += 1;
    }
    &buffer[..count]
}

/// Parses a part: for each level of vectors.
struct Parse<'a> {
    part: &'a mut Part,
    text: &'a [u8],
    from: Text<'a>,
    max: usize,
    takes: &'a Takes,
}

impl Kernel for Parse<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.part.parse(self.text, self.from, self.max, self.takes);
    }
}

/// Reads a cell of a column of numbers.
fn one(text: &[u8], [start, end]: [u32; 2], point: u8) -> Option<f64> {
    let (start, end) = (start as usize, end as usize);
    let value = number::cell(text, start, end)?;
    // A point may stand between thousands.
    let plain = point == 1 || value == value as i64 as f64 && memchr::memchr(b'.', &text[start..end]).is_none();
    plain.then_some(value)
}

impl Part {
    #[inline(always)]
    fn parse(&mut self, text: &[u8], from: Text, max: usize, takes: &Takes) {
        self.starts.clear();
        self.stops.clear();
        self.texts.clear();
        self.others.clear();
        (self.rows, self.bytes, self.whole) = (0, 0, false);
        let mut buffer = std::mem::take(&mut self.ends);
        let ends = find_ends(text, [from.separator, from.newline], &mut buffer);
        for ends in ends.chunks_exact(takes.columns.len()).take(max) {
            if self.line(text, ends, from, takes).is_none() {
                break;
            }
            self.rows += 1;
            self.bytes = ends[ends.len() - 1] as usize + 1;
        }
        self.ends = buffer;
        self.whole = self.bytes == text.len();
        self.read(text, takes);
    }

    /// The cells of the next line, which end at `ends`; `None` if the line is blank or has another number of cells.
    #[inline(always)]
    fn line(&mut self, text: &[u8], ends: &[u32], from: Text, takes: &Takes) -> Option<()> {
        let (&end, separators) = ends.split_last()?;
        let is = |at: u32, byte| text.get(at as usize) == Some(&byte);
        if !is(end, from.newline) || separators.iter().any(|&at| !is(at, from.separator)) {
            return None;
        }
        let carriage_return = from.newline == b'\n' && end as usize > self.bytes && is(end - 1, b'\r');
        let last = end - u32::from(carriage_return);
        if last as usize == self.bytes {
            return None;
        }
        let mut start = self.bytes as u32;
        if takes.numbers == takes.columns.len() {
            self.starts.push(start);
            self.starts.extend(separators.iter().map(|&at| at + 1));
            self.stops.extend_from_slice(separators);
            self.stops.push(last);
            return Some(());
        }
        for (i, take) in takes.columns.iter().enumerate() {
            let end = *separators.get(i).unwrap_or(&last);
            match take {
                Take::Skip => {}
                Take::Text => self.texts.push([start, end]),
                Take::Number { .. } => {
                    self.starts.push(start);
                    self.stops.push(end);
                }
            }
            start = end + 1;
        }
        Some(())
    }

    /// Reads the cells of columns of numbers.
    #[inline(always)]
    fn read(&mut self, text: &[u8], takes: &Takes) {
        self.numbers.clear();
        self.numbers.resize(self.starts.len(), f64::NAN);
        let (starts, rest) = self.starts.as_chunks::<CELLS>();
        let (stops, _) = self.stops.as_chunks::<CELLS>();
        let (numbers, _) = self.numbers.as_chunks_mut::<CELLS>();
        let mut column = 0;
        for (i, ((starts, stops), numbers)) in starts.iter().zip(stops).zip(numbers).enumerate() {
            let Some(points) = takes.points[column..].first_chunk::<CELLS>() else { break };
            let mut others = decimal::cells(text, starts, stops, points, numbers);
            while others != 0 {
                let j = others.trailing_zeros() as usize % CELLS;
                others &= others - 1;
                let place = [starts[j], stops[j]];
                match one(text, place, points[j]) {
                    Some(value) => numbers[j] = value,
                    None => self.others.push(Other { number: CELLS * i + j, place }),
                }
            }
            column = (column + CELLS) % takes.numbers;
        }
        for number in self.starts.len() - rest.len()..self.starts.len() {
            let place = [self.starts[number], self.stops[number]];
            match one(text, place, takes.points[number % takes.numbers]) {
                Some(value) => self.numbers[number] = value,
                None => self.others.push(Other { number, place }),
            }
        }
    }

    /// Appends the cells of the first rows that are none of columns of numbers.
    fn append_texts(
        &self,
        text: &[u8],
        rows: usize,
        takes: &[Take],
        row_of: impl Fn(usize) -> Row,
        columns: &mut [ColumnBuilder],
    ) -> Result<()> {
        let places: Vec<usize> = (0..takes.len()).filter(|&i| matches!(takes[i], Take::Text)).collect();
        if places.is_empty() {
            return Ok(());
        }
        for (row, cells) in self.texts.chunks_exact(places.len()).take(rows).enumerate() {
            for (&at, &[from, to]) in places.iter().zip(cells) {
                columns[at].push(&text[from as usize..to as usize], row_of(row))?;
            }
        }
        Ok(())
    }

    /// Appends the first rows to the columns. Returns how many, fewer than `rows` if a column of numbers is none any more.
    fn append(
        &self,
        text: &[u8],
        rows: usize,
        numbers: usize,
        takes: &[Take],
        row_of: impl Fn(usize) -> Row,
        columns: &mut [ColumnBuilder],
    ) -> Result<usize> {
        let texts = self.texts.len() / self.rows.max(1);
        let cell = |[from, to]: [u32; 2]| &text[from as usize..to as usize];
        let mut others = self.others.iter().peekable();
        for row in 0..rows {
            let (mut number, mut text) = (row * numbers, row * texts);
            let mut changed = false;
            for (column, &take) in columns.iter_mut().zip(takes) {
                match (take, &mut column.cells) {
                    (Take::Skip, _) => {}
                    (Take::Text, _) => {
                        column.push(cell(self.texts[text]), row_of(row))?;
                        text += 1;
                    }
                    (Take::Number { .. }, cells) => {
                        match (others.next_if(|other| other.number == number), cells) {
                            (Some(other), _) => {
                                column.push(cell(other.place), row_of(row))?;
                                changed |= !matches!(self::take(column), Take::Number { .. });
                            }
                            (None, Cells::Number(values)) => values.push(self.numbers[number]),
                            (None, _) => {}
                        }
                        number += 1;
                    }
                }
            }
            if changed {
                return Ok(row + 1);
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::column::Want;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ends_are_where_the_bytes_are(text in "[,;\n+.\\-/0-9a-z\u{c}\u{ac}]{0,200}") {
            for wanted in [[b',', b'\n'], [b';', b'\r'], [0xc2, b'0']] {
                let mut buffer = vec![7];
                let ends = find_ends(text.as_bytes(), wanted, &mut buffer);
                let at: Vec<u32> = (0..).zip(text.bytes()).filter(|(_, b)| wanted.contains(b)).map(|(i, _)| i).collect();
                prop_assert_eq!(ends, at);
            }
        }
    }

    fn builders(wants: &[Want]) -> Vec<ColumnBuilder> {
        wants.iter().map(|&want| ColumnBuilder::new("x", want, std::path::Path::new("f").into())).collect()
    }

    fn numbers(column: &ColumnBuilder) -> &[f64] {
        match &column.cells {
            Cells::Number(values) => values,
            _ => &[],
        }
    }

    fn parse(text: &str, max: usize, columns: &mut [ColumnBuilder]) -> Result<[usize; 2]> {
        let text = Text { text: text.as_bytes(), newline: b'\n', separator: b',', first: [1, 2] };
        PlainRows::default().parse(text, max, columns)
    }

    #[test]
    fn parsing_stops_at_quotes_and_wrong_numbers_of_cells() {
        for (text, rows) in [
            ("1,x,2.5\n3,,4\n", 2),
            ("1,x,2.5\r\n3,,4\r\n", 2),
            ("1,x,2\n3,y\n4,z,5\n", 1),
            ("1,x,2\n3,y,4,5\n", 1),
            ("1,x,2\n\n3,y,4\n", 1),
            ("1,x,2\n3,\"y\",4\n", 1),
            ("1,x,2\n3,\"y\n\",4\n", 1),
            ("1,x,2\nNA,y,4\n", 2),
            ("1,x, 2\n", 1),
            ("1,x,\n", 1),
        ] {
            let mut columns = builders(&[Want::Number, Want::Skip, Want::Number]);
            let [found, bytes] = parse(text, 100, &mut columns).unwrap();
            assert_eq!(found, rows, "{text:?}");
            assert_eq!(numbers(&columns[0]).len(), rows);
            assert_eq!(numbers(&columns[2]).len(), rows);
            assert_eq!(bytes, text.split_inclusive('\n').take(rows).map(str::len).sum::<usize>(), "{text:?}");
        }
        // Texts alone are read one by one.
        assert_eq!(parse("1,2\n", 9, &mut builders(&[Want::Skip, Want::Text])).unwrap(), [0, 0]);
        // A cell that cannot be used has its row and its line.
        let e = parse("1,2\n3,oops\n", 9, &mut builders(&[Want::Number, Want::Feature])).unwrap_err();
        assert!(e.to_string().contains("row 2 (line 3)") && e.to_string().contains("oops"), "{e}");
    }

    #[test]
    fn columns_are_those_of_single_rows() {
        let text = "1,a,2,1.5\n3,b,NA,2\n,q,5,5%\n7,c,8,9\n1.500,d,1,2\n2.5,e,1,3\n";
        let wants = [Want::Auto, Want::Label, Want::Number, Want::Auto];
        let (mut all, mut single) = (builders(&wants), builders(&wants));
        let mut count = 0;
        let push = |line: &str, count: u64, columns: &mut [ColumnBuilder]| {
            for (column, cell) in columns.iter_mut().zip(line.split(',')) {
                column.push(cell.as_bytes(), Row::at_line(count + 1, count + 2)).unwrap();
            }
        };
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            push(line, i as u64, &mut single);
        }
        while count < lines.len() {
            let rest: String = lines[count..].iter().map(|l| format!("{l}\n")).collect();
            let [rows, bytes] = parse(&rest, 100, &mut all).unwrap();
            assert_eq!(rest[..bytes].lines().count(), rows);
            count += rows;
            if rows == 0 {
                push(lines[count], count as u64, &mut all);
                count += 1;
            }
        }
        let cells = |column: &ColumnBuilder| match &column.cells {
            Cells::Text(texts) => format!("{:?} {:?}", texts.codes, texts.names),
            cells => format!("{cells:?}"),
        };
        let show = |columns: &[ColumnBuilder]| -> Vec<String> {
            columns.iter().map(|column| format!("{} {:?}", cells(column), column.points)).collect()
        };
        assert_eq!(show(&all), show(&single));
    }

    #[test]
    fn parts_and_limits_give_the_same_rows() {
        let text: String = (0..30_000).map(|i| format!("{i},{}\n", i as f64 / 4.0)).collect();
        for max in [1, 7, 9_999, 30_000, 40_000] {
            let mut at = 0;
            let mut columns = builders(&[Want::Number, Want::Number]);
            while at < text.len() {
                let [rows, bytes] = parse(&text[at..], max, &mut columns).unwrap();
                assert!(rows > 0 && rows <= max);
                at += bytes;
                if max < 100 && numbers(&columns[0]).len() > 500 {
                    break;
                }
            }
            for (i, (&a, &b)) in numbers(&columns[0]).iter().zip(numbers(&columns[1])).enumerate() {
                assert_eq!([a, b], [i as f64, i as f64 / 4.0]);
            }
            assert!(max < 100 || numbers(&columns[1]).len() == 30_000);
        }
    }
}
