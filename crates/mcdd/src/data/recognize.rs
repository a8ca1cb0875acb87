//! Finds the form of a column: over all its texts at once, and where they leave two readings, over the other columns and
//! the separator of the file. A column is in one form or in none; it is never read half one way and half another.

use super::form::{Decimal, Form, Group, NumberForm, UNITS, Words};
use super::number::{self, Parsed};
use super::text::quoted;
use super::time::{self, DateOrder, TimeForm};

/// With more different texts than this a column is more likely to be spoiled by a few cells than to hold categories.
pub(super) const FEW_TEXTS: usize = 20;

/// How many texts are looked at to find the form that most are in.
const SAMPLE: usize = 1000;

/// The ways to write a number, the simple ones first.
const NUMBERS: [(Decimal, Option<Group>); 8] = [
    (Decimal::Point, None),
    (Decimal::Comma, None),
    (Decimal::Point, Some(Group::Comma)),
    (Decimal::Comma, Some(Group::Point)),
    (Decimal::Point, Some(Group::Space)),
    (Decimal::Comma, Some(Group::Space)),
    (Decimal::Point, Some(Group::Apostrophe)),
    (Decimal::Comma, Some(Group::Apostrophe)),
];

const ORDERS: [DateOrder; 4] = [DateOrder::YearFirst, DateOrder::DayFirst, DateOrder::MonthFirst, DateOrder::Clock];

/// The points in the plain numbers of a text file. `1.500` is 1.5, or 1500 where fractions follow a comma.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Points {
    /// Whether some point cannot stand between thousands: as in `0.5` or `5.0`. Then it is before a fraction in all cells.
    pub decimal: bool,
    /// The row of the first such point, where it is known.
    pub first: Option<u32>,
    /// Else the rows of the cells with a point, all of the form `1.500`.
    pub grouped: Vec<u32>,
}

impl Points {
    /// Those of numbers with a decimal point.
    pub(super) fn decimal() -> Points {
        Points { decimal: true, ..Points::default() }
    }

    /// Looks at the cell of a row, whose value is known.
    #[inline]
    pub(super) fn note(&mut self, cell: &[u8], value: f64, row: usize) {
        let integral = value == value as i64 as f64;
        if self.decimal || (integral && memchr::memchr(b'.', cell).is_none()) {
            return;
        }
        self.look(cell, row);
    }

    #[cold]
    fn look(&mut self, cell: &[u8], row: usize) {
        let digits = match cell {
            [b'-' | b'+', digits @ ..] => digits,
            digits => digits,
        };
        let thousands = match digits {
            [whole @ .., b'.', a, b, c] => {
                (1..=3).contains(&whole.len())
                    && whole[0] != b'0'
                    && whole.iter().chain([a, b, c]).all(u8::is_ascii_digit)
            }
            _ => false,
        };
        match u32::try_from(row).ok() {
            Some(row) if thousands => self.grouped.push(row),
            first => *self = Points { first, ..Points::decimal() },
        }
    }

    /// Those of some rows, in their order.
    pub(super) fn select(&self, rows: &[usize]) -> Points {
        let has = |row: &usize| u32::try_from(*row).is_ok_and(|row| self.grouped.binary_search(&row).is_ok());
        let grouped = match self.grouped.is_empty() {
            true => Vec::new(),
            false => (0u32..).zip(rows).filter(|(_, row)| has(row)).map(|(at, _)| at).collect(),
        };
        let first = rows.iter().position(|&row| self.first.is_some_and(|first| first as usize == row));
        Points { decimal: self.decimal, first: first.and_then(|at| u32::try_from(at).ok()), grouped }
    }
}

/// What the texts of a column can be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Finding {
    /// This.
    One(Form),
    /// Numbers with a decimal point or with a decimal comma, and a text that differs between the two.
    Number(NumberForm, NumberForm, Option<String>),
    /// Dates with the day or the month first, and a text that differs between the two.
    Date(TimeForm, Option<String>),
}

/// The form of a column, and what was assumed where the texts leave two readings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub form: Form,
    pub assumed: Option<String>,
    /// Whether the cells are plain numbers.
    pub plain: bool,
}

/// The unit of a text that may be a number.
fn unit(text: &str) -> Option<&'static str> {
    let text = text.trim();
    let text = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
    let text = text.trim_start_matches(['-', '−', '+', ' ']).trim();
    UNITS.into_iter().find(|unit| text.ends_with(unit) || (*unit != "%" && text.starts_with(unit)))
}

fn number_form((decimal, group): (Decimal, Option<Group>), unit: Option<&str>) -> NumberForm {
    NumberForm { decimal, group, unit: unit.map(str::to_owned) }
}

fn reads(form: &NumberForm, text: &str) -> bool {
    form.value(text).is_some_and(f64::is_finite)
}

/// Whether a text is a number in some form.
pub(super) fn number_like(text: &str) -> bool {
    let unit = unit(text);
    text.bytes().any(|b| b.is_ascii_digit()) && NUMBERS.iter().any(|&n| reads(&number_form(n, unit), text))
}

/// Whether a cell is a number, a date or a time in some form.
pub(super) fn value_like(cell: &[u8]) -> bool {
    match number::parse(cell) {
        Parsed::Text => {}
        _ => return true,
    }
    let is = |text: &str| number_like(text) || ORDERS.iter().any(|&order| time::parse(text, order).is_some());
    cell.iter().any(u8::is_ascii_digit) && std::str::from_utf8(cell).is_ok_and(is)
}

/// What all of these texts can be; `None` where no form fits every one.
pub(super) fn find(texts: &[&str]) -> Option<Finding> {
    let words = |words: &Words| texts.iter().all(|text| words.value(text).is_some());
    if texts.is_empty() {
        return None;
    }
    if let Some(words) = Words::ALL.into_iter().find(words) {
        return Some(Finding::One(Form::Boolean(words)));
    }
    find_number(texts).or_else(|| find_time(texts))
}

fn find_number(texts: &[&str]) -> Option<Finding> {
    // Plain numbers are texts only where somebody wants them to be.
    let plain = |text: &&str| matches!(number::parse(text.as_bytes()), Parsed::Number(_));
    if !number_like(texts[0]) || texts.iter().all(plain) {
        return None;
    }
    let mut units = texts.iter().filter_map(|text| unit(text));
    let first = units.next();
    if units.any(|unit| Some(unit) != first) {
        return None;
    }
    let fits = |form: &NumberForm| texts.iter().all(|text| reads(form, text));
    let of =
        |decimal: Decimal| NUMBERS.into_iter().filter(|n| n.0 == decimal).map(|n| number_form(n, first)).find(fits);
    match (of(Decimal::Point), of(Decimal::Comma)) {
        (Some(form), None) | (None, Some(form)) => Some(Finding::One(Form::Number(open(form)))),
        (Some(point), Some(comma)) => {
            let differs = texts.iter().find(|text| point.value(text) != comma.value(text)).map(|t| (*t).to_owned());
            Some(Finding::Number(point, comma, differs))
        }
        (None, None) => None,
    }
}

/// The form with the common thousands separator, where no cell has one: the numbers may grow.
fn open(form: NumberForm) -> NumberForm {
    let usual = if form.decimal == Decimal::Point { Group::Comma } else { Group::Point };
    NumberForm { group: form.group.or(Some(usual)), ..form }
}

fn find_time(texts: &[&str]) -> Option<Finding> {
    let first = ORDERS.iter().find_map(|&order| time::parse(texts[0], order))?;
    // Whether all are in this order, and whether some have a time.
    let times = |order: DateOrder| {
        texts.iter().try_fold(false, |times, text| {
            time::parse(text, order).filter(|m| m.zone == first.zone).map(|m| times || m.time)
        })
    };
    let form = |order, times| TimeForm { order, times, zone: first.zone };
    for order in [DateOrder::YearFirst, DateOrder::Clock] {
        if let Some(times) = times(order) {
            return Some(Finding::One(Form::Time(form(order, times))));
        }
    }
    match (times(DateOrder::DayFirst), times(DateOrder::MonthFirst)) {
        (Some(times), None) => Some(Finding::One(Form::Time(form(DateOrder::DayFirst, times)))),
        (None, Some(times)) => Some(Finding::One(Form::Time(form(DateOrder::MonthFirst, times)))),
        (Some(times), Some(_)) => {
            let (day, month) = (form(DateOrder::DayFirst, times), form(DateOrder::MonthFirst, times));
            let differs = texts.iter().find(|text| day.seconds(text) != month.seconds(text)).map(|t| (*t).to_owned());
            Some(Finding::Date(day, differs))
        }
        (None, None) => None,
    }
}

/// Decides between the readings that are left, over all columns: `points` are those of the columns of plain numbers.
pub(super) struct Context {
    /// Whether fractions follow a comma.
    comma: bool,
    /// Whether a column shows it.
    shown: bool,
    /// Whether a column shows that the day is first, or the month.
    day_first: Option<bool>,
    separator: Option<u8>,
}

impl Context {
    pub(super) fn new<'a>(
        findings: impl Iterator<Item = &'a Finding>,
        mut points: impl Iterator<Item = &'a Points>,
        separator: Option<u8>,
    ) -> Context {
        let (mut comma, mut point, mut day, mut month) = (false, points.any(|p| p.decimal), false, false);
        for finding in findings {
            match finding {
                Finding::One(Form::Number(form)) => match form.decimal {
                    Decimal::Comma => comma = true,
                    Decimal::Point => point = true,
                },
                Finding::One(Form::Time(form)) => {
                    day |= form.order == DateOrder::DayFirst;
                    month |= form.order == DateOrder::MonthFirst;
                }
                _ => {}
            }
        }
        Context {
            comma: if comma == point { separator == Some(b';') } else { comma },
            shown: comma != point,
            day_first: (day != month).then_some(day),
            separator,
        }
    }

    /// The form of a column of plain numbers, where its file shows that they are written with a decimal comma.
    pub(super) fn of_plain(&self, values: &[f64], points: &Points) -> Option<Decision> {
        if !(self.comma && self.shown && self.separator.is_some()) || points.decimal {
            return None;
        }
        let first = points.grouped.first().and_then(|&row| values.get(row as usize));
        let assumed = first.map(|value| {
            format!(
                "\"{value:.3}\" is taken as {:.0}, with a thousands separator, as other columns show",
                value * 1000.0
            )
        });
        let form = Form::Number(number_form((Decimal::Comma, Some(Group::Point)), None));
        Some(Decision { form, assumed, plain: true })
    }

    /// The form of a column of texts.
    pub(super) fn decide(&self, finding: Finding) -> Decision {
        match finding {
            Finding::One(form) => Decision { form, assumed: None, plain: false },
            Finding::Number(point, comma, differs) => {
                let form = if self.comma { comma } else { point };
                let form = if self.shown { open(form) } else { form };
                let assumed = differs.and_then(|text| {
                    let what = match (form.decimal, text.contains(',')) {
                        (Decimal::Comma, true) => "decimal comma",
                        (Decimal::Point, false) => "decimal point",
                        _ => "thousands separator",
                    };
                    let why = if self.shown { ", as other columns show" } else { "" };
                    let value = number::show(form.value(&text)?);
                    Some(format!("{} is taken as {value}, with a {what}{why}", quoted(&text)))
                });
                Decision { form: Form::Number(form), assumed, plain: false }
            }
            Finding::Date(form, differs) => {
                let slashes = differs.as_ref().is_some_and(|text| text.contains('/'));
                let local = !slashes || self.separator == Some(b';') || (self.comma && self.shown);
                let day_first = self.day_first.unwrap_or(local);
                let order = if day_first { DateOrder::DayFirst } else { DateOrder::MonthFirst };
                let form = TimeForm { order, ..form };
                let assumed = differs.and_then(|text| {
                    let date = TimeForm { times: false, zone: false, ..form }.show(form.seconds(&text)?);
                    let why = if self.day_first.is_some() { ", as other columns show" } else { "" };
                    let first = if day_first { "day" } else { "month" };
                    Some(format!("{} is taken as {date}, with the {first} first{why}", quoted(&text)))
                });
                Decision { form: Form::Time(form), assumed, plain: false }
            }
        }
    }
}

/// A form that many texts are in and some are not.
pub(super) struct Nearly {
    pub form: Form,
    /// Which texts are not in it.
    pub others: Vec<usize>,
}

/// The form that most of the texts are in; `None` where fewer than half are.
pub(super) fn nearly(texts: &[&str]) -> Option<Nearly> {
    let sample = &texts[..texts.len().min(SAMPLE)];
    let mut units: Vec<Option<&str>> = vec![None];
    for text in sample {
        let unit = unit(text);
        if units.len() < 4 && !units.contains(&unit) {
            units.push(unit);
        }
    }
    let numbers = NUMBERS.into_iter().flat_map(|n| units.iter().map(move |&unit| Form::Number(number_form(n, unit))));
    let times = ORDERS.into_iter().flat_map(|order| {
        [false, true].map(|zone| Form::Time(TimeForm { order, times: true, zone: zone && order != DateOrder::Clock }))
    });
    let reads = |form: &Form, text: &str| matches!(form.parse(text.as_bytes()), Parsed::Number(_));
    let read = |form: &Form| sample.iter().filter(|text| reads(form, text)).count();
    // Of equals the first, which is the simplest.
    let mut best: Option<(usize, Form)> = None;
    for form in numbers.chain(times) {
        let read = read(&form);
        if best.as_ref().is_none_or(|(most, _)| read > *most) {
            best = Some((read, form));
        }
    }
    let (read, form) = best?;
    if 2 * read < sample.len() {
        return None;
    }
    let others = (0..texts.len()).filter(|&i| !reads(&form, texts[i])).collect();
    Some(Nearly { form, others })
}

#[cfg(test)]
mod tests {
    use super::super::form::tests::{forms, write};
    use super::*;
    use proptest::prelude::*;

    fn alone(texts: &[&str], separator: u8) -> Option<Decision> {
        let finding = find(texts)?;
        Some(Context::new([&finding].into_iter(), [].iter(), Some(separator)).decide(finding))
    }

    fn values(texts: &[&str], separator: u8) -> Option<Vec<f64>> {
        let form = alone(texts, separator)?.form;
        let value = |text: &&str| match form.parse(text.as_bytes()) {
            Parsed::Number(value) => value,
            other => panic!("{text} is {other:?} in {form:?}"),
        };
        Some(texts.iter().map(value).collect())
    }

    #[test]
    fn the_whole_column_decides() {
        let number = |texts: &[&str]| values(texts, b',');
        assert_eq!(number(&["29.7%", "3%"]), Some(vec![29.7, 3.0]));
        assert_eq!(number(&["29,7%", "3%"]), Some(vec![29.7, 3.0]));
        assert_eq!(number(&["1,234", "5.5"]), Some(vec![1234.0, 5.5]));
        assert_eq!(number(&["1,234", "5,5"]), Some(vec![1.234, 5.5]));
        assert_eq!(number(&["1,234", "0,125"]), Some(vec![1.234, 0.125]));
        assert_eq!(number(&["1,234", "1,234,567"]), Some(vec![1234.0, 1_234_567.0]));
        assert_eq!(number(&["1.234,5", "7"]), Some(vec![1234.5, 7.0]));
        assert_eq!(number(&["$1,200.50", "$900", "(30)"]), Some(vec![1200.5, 900.0, -30.0]));
        assert_eq!(number(&["1 234", "56"]), Some(vec![1234.0, 56.0]));
        // No common form.
        for texts in [
            &["1,5", "2.5"][..],
            &["$5", "€5"],
            &["5%", "5"],
            &["1,234.5", "1 234"],
            &["1", "2"],
            &["5%", "$5"],
            &["1,5", "abc"],
            &["yes", "t"],
            &["yes", "no", "maybe"],
            &["2025-01-01", "12:30"],
            &["2025-01-01T10:00Z", "2025-01-01T10:00"],
            &["13/01/2025", "01/13/2025"],
            &["abc"],
        ] {
            assert_eq!(find(texts), None, "{texts:?}");
        }
        assert_eq!(find(&[]), None);
    }

    #[test]
    fn what_stays_open_is_assumed_and_said() {
        let said = |texts: &[&str], separator| alone(texts, separator).and_then(|d| d.assumed).unwrap();
        assert_eq!(values(&["1,234"], b','), Some(vec![1234.0]));
        assert_eq!(said(&["1,234"], b','), "\"1,234\" is taken as 1234, with a thousands separator");
        assert_eq!(values(&["1,234"], b';'), Some(vec![1.234]));
        assert_eq!(said(&["7,000", "1,234"], b';'), "\"7,000\" is taken as 7, with a decimal comma");
        assert_eq!(said(&["1.234 €"], b','), "\"1.234 €\" is taken as 1.234, with a decimal point");
        assert_eq!(values(&["03/04/2025"], b','), Some(vec![1_741_046_400.0]));
        assert_eq!(said(&["03/04/2025"], b','), "\"03/04/2025\" is taken as 2025-03-04, with the month first");
        assert_eq!(said(&["03/04/2025"], b';'), "\"03/04/2025\" is taken as 2025-04-03, with the day first");
        assert_eq!(said(&["03.04.2025"], b','), "\"03.04.2025\" is taken as 2025-04-03, with the day first");
        // Nothing to assume.
        for texts in [&["5%", "7%"][..], &["1,5"], &["31/12/2025", "03/04/2025"], &["05/05/2025"]] {
            assert_eq!(alone(texts, b',').unwrap().assumed, None, "{texts:?}");
        }
        // Another column shows it.
        let (open, shown) = (find(&["1,234"]).unwrap(), find(&["2,5"]).unwrap());
        let context = Context::new([&open, &shown].into_iter(), [].iter(), Some(b','));
        let decision = context.decide(open.clone());
        assert_eq!(decision.form.parse(b"1,234"), Parsed::Number(1.234));
        assert!(decision.assumed.unwrap().contains("as other columns show"));
        let plain = context.of_plain(&[7.0, 1.5], &Points { grouped: vec![1], ..Points::default() }).unwrap();
        assert!(plain.assumed.unwrap().starts_with("\"1.500\" is taken as 1500"));
        let decimal = Points::decimal();
        assert!(context.of_plain(&[1.5], &decimal).is_none());
        let context = Context::new([&open].into_iter(), [&decimal].into_iter(), Some(b';'));
        assert_eq!(context.decide(open).form.parse(b"1,234"), Parsed::Number(1234.0));
        let (open, shown) = (find(&["03/04/2025"]).unwrap(), find(&["13/04/2025"]).unwrap());
        let context = Context::new([&open, &shown].into_iter(), [].iter(), Some(b','));
        assert_eq!(context.decide(open).form.parse(b"03/04/2025"), Parsed::Number(1_743_638_400.0));
    }

    #[test]
    fn points_between_thousands_are_kept() {
        let note = |cells: &[&str]| {
            let mut points = Points::default();
            for (row, cell) in cells.iter().enumerate() {
                points.note(cell.as_bytes(), cell.parse().unwrap(), row);
            }
            points
        };
        assert_eq!(note(&["7", "1.500", "-2.000", "950", "12.345"]).grouped, [1, 2, 4]);
        for cell in ["0.500", "1.5", "1234.567", "1.5000", "1e-3", "5.0", "5.", "12.00", "7.0000"] {
            let points = note(&["1.500", cell]);
            assert!(points.decimal && points.grouped.is_empty() && points.first == Some(1), "{cell}");
            assert_eq!((points.select(&[1, 0]).first, points.select(&[0]).first), (Some(0), None));
        }
        assert_eq!(note(&["1.500", "3", "2.500"]).select(&[2, 1, 0, 2]).grouped, [0, 2, 3]);
    }

    #[test]
    fn the_cell_that_spoils_a_column_is_found() {
        let mut texts = vec!["29.7%"; 30];
        texts[17] = "n.a.";
        let found = nearly(&texts).unwrap();
        assert_eq!((found.form.expected(), found.others), ("a percentage such as 12.5%".into(), vec![17]));
        let dates = nearly(&["31.12.2025", "1.2.2025", "soon"]).unwrap();
        assert_eq!(dates.others, [2]);
        assert!(nearly(&["red", "blue", "5"]).is_none());
        assert!(nearly(&[]).is_none_or(|n| n.others.is_empty()));
    }

    proptest! {
        /// Texts of several forms: either all are read, each as its own form reads it, or none is.
        #[test]
        fn a_column_is_read_as_a_whole(
            cells in prop::collection::vec((0usize..34, -2_000_000i64..2_000_000, 0usize..12), 1..8),
            separator in prop::sample::select(vec![b',', b';', b'\t']),
        ) {
            let all = forms();
            let texts: Vec<String> =
                cells.iter().map(|&(form, cents, style)| write(&all[form % all.len()], cents, style)).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            if let Some(decision) = alone(&texts, separator) {
                for text in &texts {
                    prop_assert!(matches!(decision.form.parse(text.as_bytes()), Parsed::Number(_)), "{:?}", texts);
                }
                // Two decimals leave no doubt: no cell is read in another way than it was written.
                for (&(_, cents, _), text) in cells.iter().zip(&texts) {
                    prop_assert_eq!(decision.form.parse(text.as_bytes()), Parsed::Number(cents as f64 / 100.0), "{:?}", texts);
                }
            }
        }

        #[test]
        fn a_column_of_one_form_is_recognized(form in 0usize..34, cents in prop::collection::vec(-2_000_000i64..2_000_000, 1..8), style in 0usize..12) {
            let all = forms();
            let form = &all[form % all.len()];
            let texts: Vec<String> = cents.iter().map(|&c| write(form, c, style)).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let want: Vec<f64> = cents.iter().map(|&c| c as f64 / 100.0).collect();
            let plain = texts.iter().all(|text| text.parse::<f64>().is_ok());
            prop_assert_eq!(values(&texts, b','), (!plain).then_some(want), "{:?}", texts);
        }

        #[test]
        fn any_texts_are_looked_at_without_a_panic(texts in prop::collection::vec("\\PC{0,12}|[0-9,. %$-]{0,9}", 0..6)) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let _ = (alone(&texts, b','), nearly(&texts));
        }
    }
}
