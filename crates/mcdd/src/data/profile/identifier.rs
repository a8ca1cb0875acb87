//! Identifiers and row counters: columns that tell rows apart and say nothing about new ones.
//!
//! A measurement must not be taken for one. Numbers with a fraction are measurements, even if each occurs once, unless
//! they grow by the same step from row to row. Whole numbers are identifiers if they count the rows, or if they are all
//! different where chance would have repeated some: `n` numbers drawn from a range of `r` have `n² / 2r` pairs of equal ones
//! on average. Names such as `id` make less evidence enough. Columns without names need the strongest.

use super::super::column::{Column, MISSING};
use super::super::table::Table;
use super::super::text::positional_name;

/// The number of equal pairs that chance would give, above which all-different numbers are so on purpose.
const EXPECTED_PAIRS: f64 = 20.0;
/// Rows from which a column counts rows by its values alone.
const COUNTER_ROWS: usize = 20;
/// Rows from which a column without a name counts rows.
const NAMELESS_ROWS: usize = 50;
/// Rows from which values under a name such as `id` are looked at.
const NAMED_ROWS: usize = 5;
/// Digits from which whole numbers of one length may be codes.
const CODE_DIGITS: i32 = 7;

/// Why a column is an identifier.
const COUNTER: &str = "counts the rows";
const UNIQUE: &str = "a whole number that differs in every row";
const NAMED: &str = "an identifier by its name, and different in most rows";
const CODE: &str = "a code that differs in every row";
const ADDRESS: &str = "an address that differs in every row";

/// What the name of a column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// Columns have no names: pixels, sensors, features of a network.
    None,
    /// The name of an index that a tool wrote: `Unnamed: 0`, `index`, an empty one.
    Index,
    /// The name of an identifier: `id`, `customer_id`, `uuid`.
    Id,
    /// Any other.
    Other,
}

/// What the name of the column at a position in the file says.
fn name_of(name: &str, at: usize) -> Name {
    let name = name.trim();
    let folded: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    const INDEX: [&str; 10] =
        ["index", "idx", "rowindex", "rownames", "rowname", "rownumber", "rownum", "rowno", "level0", "unnamed"];
    // What pandas calls the index in a Parquet file.
    if name.starts_with("__index_level_") {
        return Name::Index;
    }
    if name == positional_name(at) || name.starts_with("Unnamed: ") || name.starts_with('#') && folded.is_empty() {
        return Name::Index;
    }
    if INDEX.contains(&folded.as_str()) {
        return Name::Index;
    }
    const ID: [&str; 9] = ["id", "ids", "uid", "uuid", "guid", "oid", "rowid", "identifier", "identification"];
    if ID.contains(&folded.as_str()) {
        return Name::Id;
    }
    // A word of its own: customer_id, id_customer, customer id, customerId, CustomerID; not fluid, GRID or idle.
    let lower = name.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
    if words.clone().count() > 1 && words.any(|w| ["id", "uuid", "guid"].contains(&w)) {
        return Name::Id;
    }
    let camel = ["Id", "ID", "Uuid", "UUID"]
        .iter()
        .filter_map(|end| name.strip_suffix(end))
        .any(|rest| rest.chars().next_back().is_some_and(char::is_lowercase));
    if camel { Name::Id } else { Name::Other }
}

/// The columns that are identifiers, and why. `columns` are those of the table as they are read.
pub(super) fn find(table: &Table, columns: &[&Column]) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    // One column without a name is an index; several are a table without names.
    let nameless = |at: usize| !table.named || table.names[at] == positional_name(position(table, at));
    let several = (0..table.names.len()).filter(|&at| nameless(at)).count() > 1;
    for (at, (name, &column)) in table.names.iter().zip(columns).enumerate() {
        if table.kept.contains(name) {
            continue;
        }
        let what = match nameless(at) && (several || !table.named) {
            true => Name::None,
            false => name_of(name, position(table, at)),
        };
        let why = match column {
            Column::Number(values) => numbers(values, what)
                .or_else(|| (what == Name::Other && codes(values) && unrelated(table, columns, at)).then_some(UNIQUE)),
            Column::Text { codes, names } => texts(codes, names, what),
        };
        found.extend(why.map(|why| (at, why)));
    }
    found
}

/// The position of a feature column in the file, where a column without a name has its number from.
fn position(table: &Table, at: usize) -> usize {
    let mut position = at;
    for &(dropped, _) in &table.dropped {
        position += usize::from(dropped <= position);
    }
    let label = table.label_column.as_ref().and_then(|label| label.position);
    position + usize::from(label.is_some_and(|label| label <= position))
}

/// The steps between values are all the same.
fn counts(values: &[f64]) -> bool {
    let [first, second, ..] = values else {
        return false;
    };
    let step = second - first;
    if step == 0.0 || !step.is_finite() {
        return false;
    }
    let room = 1e-9 * (first.abs() + step.abs() * values.len() as f64);
    let room = if room < 0.25 * step.abs() { room } else { 0.0 };
    values.iter().enumerate().all(|(row, value)| (value - (first + step * row as f64)).abs() <= room)
}

/// Whether a sample of the values has hardly two equal ones, so that counting all is worth it.
fn may_differ(values: &[f64]) -> bool {
    const SAMPLE: usize = 64;
    let step = (values.len() / SAMPLE).max(1);
    let mut some: Vec<f64> = values.iter().copied().step_by(step).take(SAMPLE).collect();
    some.sort_unstable_by(f64::total_cmp);
    some.windows(2).filter(|w| w[0] == w[1]).count() * 16 <= some.len()
}

fn numbers(values: &[f64], name: Name) -> Option<&'static str> {
    let rows = values.len();
    let enough = match name {
        Name::None => NAMELESS_ROWS,
        Name::Other => COUNTER_ROWS,
        Name::Index | Name::Id => NAMED_ROWS,
    };
    if rows < enough {
        return None;
    }
    if counts(values) {
        let by_one = values.iter().all(|v| v.fract() == 0.0) && (values[1] - values[0]).abs() == 1.0;
        return (name != Name::None || by_one).then_some(COUNTER);
    }
    if name == Name::None || !values.iter().all(|v| v.is_nan() || v.fract() == 0.0) {
        return None;
    }
    // Indices of several tables, one after the other.
    if name == Name::Index && values.windows(2).filter(|w| w[1] - w[0] == 1.0).count() * 10 >= (rows - 1) * 9 {
        return Some(COUNTER);
    }
    if name == Name::Other && !may_differ(values) {
        return None;
    }
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let (present, repeated) = (sorted.len(), sorted.windows(2).filter(|w| w[0] == w[1]).count());
    let distinct = present - repeated;
    let range = sorted.last()? - sorted.first()? + 1.0;
    match name {
        Name::Id => return (distinct * 2 >= present && distinct >= NAMED_ROWS).then_some(NAMED),
        // An index in another order, or of a part of its rows.
        Name::Index if repeated == 0 && range <= 20.0 * present as f64 => return Some(COUNTER),
        _ => {}
    }
    let pairs = (present as f64).powi(2) / (2.0 * range);
    (repeated == 0 && present == rows && pairs >= EXPECTED_PAIRS).then_some(UNIQUE)
}

/// Whether whole numbers look like codes: all different, all of one length, and spread evenly over all numbers of
/// that length, as measurements are not.
fn codes(values: &[f64]) -> bool {
    if values.len() < NAMELESS_ROWS || values.iter().any(|v| v.is_nan() || v.fract() != 0.0 || *v < 1.0) {
        return false;
    }
    let (mut low, mut digits) = (1.0, 1);
    while values[0] >= 10.0 * low && digits < 18 {
        (low, digits) = (10.0 * low, digits + 1);
    }
    if digits < CODE_DIGITS || values.iter().any(|v| !(low..10.0 * low).contains(v)) {
        return false;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    if sorted.windows(2).any(|w| w[0] == w[1]) {
        return false;
    }
    // The Kolmogorov-Smirnov distance from the uniform distribution, at the level of 1%.
    let n = sorted.len() as f64;
    let distance = sorted.iter().enumerate().map(|(i, v)| ((v - low) / (9.0 * low) - (i as f64 + 0.5) / n).abs());
    distance.fold(0.0, f64::max) < 1.63 / n.sqrt()
}

/// Whether the numbers of a column have no linear relation to any other column of numbers, nor to the classes.
fn unrelated(table: &Table, columns: &[&Column], at: usize) -> bool {
    let Column::Number(values) = columns[at] else {
        return false;
    };
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let own: Vec<f64> = values.iter().map(|v| v - mean).collect();
    let spread = own.iter().map(|v| v * v).sum::<f64>();
    let related = |other: &Column| {
        let Column::Number(other) = other else {
            return false;
        };
        let present = || other.iter().zip(&own).filter(|(v, _)| !v.is_nan());
        let count = present().count() as f64;
        let mean = present().map(|(v, _)| v).sum::<f64>() / count.max(1.0);
        let both = present().map(|(v, own)| (v - mean) * own).sum::<f64>();
        let square = present().map(|(v, _)| (v - mean) * (v - mean)).sum::<f64>();
        // A column of numbers too large to be squared is taken for related, which keeps both.
        !(square.is_finite() && both.abs() <= 4.0 / n.sqrt() * (spread * square).sqrt())
    };
    if columns.iter().enumerate().any(|(i, column)| i != at && related(column)) {
        return false;
    }
    let Some(labels) = &table.labels else {
        return true;
    };
    let mut sums = vec![(0.0, 0.0); labels.names.len()];
    for (&code, value) in labels.codes.iter().zip(&own) {
        if let Some((sum, count)) = sums.get_mut(code as usize) {
            *sum += value;
            *count += 1.0;
        }
    }
    let between: f64 = sums.iter().filter(|(_, count)| *count > 0.0).map(|(sum, count)| sum * sum / count).sum();
    between / spread < (4.0 * sums.len() as f64 + 10.0) / n
}

fn texts(codes: &[u32], names: &[String], name: Name) -> Option<&'static str> {
    let present = codes.iter().filter(|&&code| code != MISSING).count();
    let named = matches!(name, Name::Index | Name::Id);
    if present < if named { NAMED_ROWS } else { COUNTER_ROWS } {
        return None;
    }
    let mut used = vec![false; names.len()];
    codes.iter().for_each(|&code| {
        if let Some(used) = used.get_mut(code as usize) {
            *used = true;
        }
    });
    let used: Vec<&str> = names.iter().zip(used).filter(|(_, used)| *used).map(|(name, _)| name.as_str()).collect();
    if named && used.len() * 2 >= present {
        return Some(NAMED);
    }
    if used.len() * 100 < present * 99 {
        return None;
    }
    let most = |test: &dyn Fn(&str) -> bool| used.iter().filter(|text| test(text)).count() * 100 >= used.len() * 95;
    if most(&is_uuid)
        || most(&|text| text.len() >= 8 && text.bytes().all(|b| b.is_ascii_hexdigit())) && one_length(&used)
    {
        return Some(CODE);
    }
    if most(&is_address) {
        return Some(ADDRESS);
    }
    (random_letters(&used) || numbered(&used)).then_some(CODE)
}

fn one_length(texts: &[&str]) -> bool {
    let length = texts.first().map_or(0, |text| text.len());
    texts.iter().filter(|text| text.len() == length).count() * 100 >= texts.len() * 95
}

/// `550e8400-e29b-41d4-a716-446655440000`.
fn is_uuid(text: &str) -> bool {
    let text = text.trim_matches(['{', '}']);
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

/// An address of mail or of a page.
fn is_address(text: &str) -> bool {
    let mail =
        text.split_once('@').is_some_and(|(who, host)| !who.is_empty() && host.contains('.') && !text.contains(' '));
    mail || text.starts_with("http://") || text.starts_with("https://")
}

/// Letters and digits of one length that differ in most places, as random codes do: `aZ3kQ9xP`.
fn random_letters(texts: &[&str]) -> bool {
    let length = texts.first().map_or(0, |text| text.len());
    let plain = |text: &&&str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if !(6..=256).contains(&length) || !one_length(texts) || !texts.iter().all(|text| plain(&text)) {
        return false;
    }
    let mixed =
        |text: &&&str| text.bytes().any(|b| b.is_ascii_digit()) && text.bytes().any(|b| b.is_ascii_alphabetic());
    if texts.iter().filter(mixed).count() * 2 < texts.len() {
        return false;
    }
    let varied = (0..length).filter(|&at| {
        let mut seen = [false; 256];
        texts.iter().filter_map(|text| text.as_bytes().get(at)).for_each(|&b| seen[usize::from(b)] = true);
        seen.iter().filter(|seen| **seen).count() >= 12
    });
    let varied = varied.count();
    varied >= 4 && varied * 2 >= length
}

/// A word and a number: `C0001`, `INV-2024-0007`, `patient 17`.
fn numbered(texts: &[&str]) -> bool {
    /// What is before the last number, with its digits replaced, and the digits of the last number.
    fn parts(text: &str) -> Option<(String, &str)> {
        let word = text.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &text[word.len()..];
        let plain = word.chars().all(|c| c.is_alphanumeric() || "-_#/: ".contains(c));
        let begins = word.chars().next().is_some_and(char::is_alphabetic);
        let word: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        (plain && begins && (1..=15).contains(&digits.len())).then_some((word, digits))
    }
    let Some((word, _)) = texts.first().and_then(|text| parts(text)) else {
        return false;
    };
    let same: Vec<&str> = texts.iter().filter_map(|text| parts(text)).filter(|p| p.0 == word).map(|p| p.1).collect();
    if same.len() * 100 < texts.len() * 95 {
        return false;
    }
    let width = same[0].len();
    let padded = same.iter().all(|digits| digits.len() == width) && same.iter().any(|digits| digits.starts_with('0'));
    if !word.contains(' ') && (padded && width >= 4 || width >= 6 && same.iter().all(|digits| digits.len() == width)) {
        return true;
    }
    let values: Vec<f64> = same.iter().filter_map(|digits| digits.parse().ok()).collect();
    numbers(&values, Name::Other).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_identifiers() {
        for name in [
            "id",
            "ID",
            " Id ",
            "customer_id",
            "id_customer",
            "Customer ID",
            "customerId",
            "PassengerID",
            "uuid",
            "row id",
        ] {
            assert_eq!(name_of(name, 3), Name::Id, "{name}");
        }
        for name in [
            "Unnamed: 0",
            "Unnamed: 0.1",
            "index",
            "Index",
            "level_0",
            "row_names",
            "column 4",
            "#",
            "__index_level_0__",
        ] {
            assert_eq!(name_of(name, 3), Name::Index, "{name}");
        }
        for name in ["width", "fluid", "acid", "GRID", "paid", "idle", "solid", "column 5", "humid_1", "x", "Paid"] {
            assert_eq!(name_of(name, 3), Name::Other, "{name}");
        }
    }

    #[test]
    fn texts_that_are_codes() {
        let many = |f: &dyn Fn(u64) -> String| (0..60).map(|i| f(i * 7919 % 1000)).collect::<Vec<String>>();
        let found = |values: Vec<String>| texts(&(0..values.len() as u32).collect::<Vec<_>>(), &values, Name::Other);
        let mix = |i: u64| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (i << 40);
        for values in [
            many(&|i| format!("{:016x}", mix(i))),
            many(&|i| format!("{:08x}-e29b-41d4-a716-4466{:08x}", mix(i) >> 32, mix(i) as u32)),
            many(&|i| format!("C{i:05}")),
            many(&|i| format!("INV-{}-{i:04}", 2020 + i % 4)),
            (0..60).map(|i| format!("patient {i}")).collect(),
            many(&|i| format!("user{i}@mail.org")),
            many(&|i| format!("https://example.org/{i}")),
            (0..60)
                .map(|i| {
                    let letters = b"abcdefghijkmnpqrstuvwxyzABCDEFGH23456789";
                    (0..9).map(|p| letters[(mix(i * 31 + p) >> 33) as usize % letters.len()] as char).collect()
                })
                .collect(),
        ] {
            assert!(found(values.clone()).is_some(), "{:?}", &values[..3]);
        }
        for values in [
            many(&|i| format!("2024-{:02}-{:02} {:02}:{:02}", 1 + i % 12, 1 + i % 28, i % 24, i * 7 % 60)),
            many(&|i| format!("{i},{}", i % 10)),
            many(&|i| format!("{i}.5 kg")),
            many(&|i| format!("{i}%")),
            many(&|i| format!("USD {}", 1000 + i * 37)),
            many(&|i| format!("{} street {}", ["oak", "elm", "pine"][i as usize % 3], i)),
            many(&|i| format!("the {i} th sentence about {}", i * i)),
            many(&|i| format!("v1.{i}")),
        ] {
            assert_eq!(found(values.clone()), None, "{:?}", &values[..3]);
        }
    }
}
