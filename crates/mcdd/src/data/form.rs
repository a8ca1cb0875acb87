//! How a cell is written that is a number and does not look like one: `29.7%`, `$1,200.50`, `1.234,56`, `yes`,
//! `31.12.2025`.
//!
//! A column has one form. It is found once, over all cells of the training data (`recognize.rs`), stored in the
//! schema, and applied to every cell after that. A cell that is not written in it is an error.

use serde::{Deserialize, Serialize};

use super::number::{self, Parsed};
use super::time::{DateOrder, TimeForm};
use crate::error::{Error, Result};

/// How the cells of a column are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Numbers with a unit, thousands separators or a decimal comma.
    Number(NumberForm),
    /// Two words, read as 0 and 1.
    Boolean(Words),
    /// Dates and times, read as seconds.
    Time(TimeForm),
}

/// How numbers are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberForm {
    /// What stands before the fraction.
    pub decimal: Decimal,
    /// What stands between groups of three digits, in the cells that have it.
    pub group: Option<Group>,
    /// `%`, or a sign or code of a currency. All cells have the percent sign; that of a currency may be left out.
    pub unit: Option<String>,
}

/// What stands before the fraction of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decimal {
    /// `1.5`
    Point,
    /// `1,5`
    Comma,
}

/// What stands between the thousands of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// `1,234`
    Comma,
    /// `1.234`
    Point,
    /// `1 234`, also with the spaces that do not break a line
    Space,
    /// `1'234`
    Apostrophe,
}

/// The words for true and false. A cell may be any of them, in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Words {
    /// `true`, `false`
    TrueFalse,
    /// `yes`, `no`
    YesNo,
    /// `t`, `f`
    TF,
    /// `y`, `n`
    YN,
}

/// The units that are recognized; one that ends in another comes before it.
pub(super) const UNITS: [&str; 38] = [
    "%", "US$", "R$", "$", "€", "£", "¥", "₹", "₽", "₩", "₺", "₴", "₪", "₫", "USD", "EUR", "GBP", "JPY", "CHF", "CNY",
    "INR", "AUD", "CAD", "NZD", "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "RUB", "TRY", "BRL", "MXN", "ZAR", "KRW",
    "SGD", "HKD",
];

/// The longest number that is looked at, in bytes.
const LONGEST: usize = 128;

impl Decimal {
    fn is(self, c: char) -> bool {
        c == if self == Decimal::Point { '.' } else { ',' }
    }
}

impl Group {
    fn is(self, c: char) -> bool {
        match self {
            Group::Comma => c == ',',
            Group::Point => c == '.',
            Group::Space => matches!(c, ' ' | '\u{a0}' | '\u{2009}' | '\u{202f}'),
            Group::Apostrophe => matches!(c, '\'' | '’'),
        }
    }
}

impl Words {
    /// All of them.
    pub(super) const ALL: [Words; 4] = [Words::TrueFalse, Words::YesNo, Words::TF, Words::YN];

    /// The words for false and true.
    pub(super) fn words(self) -> [&'static str; 2] {
        match self {
            Words::TrueFalse => ["false", "true"],
            Words::YesNo => ["no", "yes"],
            Words::TF => ["f", "t"],
            Words::YN => ["n", "y"],
        }
    }

    /// The value of one of these words.
    pub(super) fn value(self, text: &str) -> Option<f64> {
        let at = self.words().iter().position(|word| word.eq_ignore_ascii_case(text))?;
        Some(at as f64)
    }
}

impl NumberForm {
    /// The value of a text; `None` where it is not in this form. It may be infinite.
    pub(super) fn value(&self, text: &str) -> Option<f64> {
        let mut text = text.trim();
        if text.len() > LONGEST {
            return None;
        }
        let (mut signs, mut negative) = (0, false);
        // As accountants write what is below zero.
        if let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) {
            (signs, negative, text) = (1, true, inner.trim());
        }
        let unit = self.unit.as_deref();
        let mut found = false;
        loop {
            if let Some(rest) = text.strip_prefix(['-', '−', '+']) {
                signs += 1;
                negative |= !text.starts_with('+');
                text = rest.trim_start();
            } else if let Some(rest) = unit.filter(|&u| !found && u != "%").and_then(|u| text.strip_prefix(u)) {
                found = true;
                text = rest.trim_start();
            } else {
                break;
            }
        }
        if let Some(rest) = unit.filter(|_| !found).and_then(|u| text.strip_suffix(u)) {
            found = true;
            text = rest.trim_end();
        }
        if signs > 1 || (unit == Some("%") && !found) {
            return None;
        }
        self.digits(text).map(|value| if negative { -value } else { value })
    }

    /// The value of a text without sign and unit.
    fn digits(&self, text: &str) -> Option<f64> {
        let mut plain = [0u8; LONGEST];
        let (mut length, mut run, mut groups, mut fraction) = (0, 0, 0, false);
        for (at, c) in text.char_indices() {
            let byte = match c {
                '0'..='9' => {
                    run += 1;
                    c as u8
                }
                _ if !fraction && self.decimal.is(c) => {
                    if groups > 0 && run != 3 {
                        return None;
                    }
                    fraction = true;
                    b'.'
                }
                _ if !fraction && self.group.is_some_and(|g| g.is(c)) => {
                    let fits = if groups == 0 { (1..=3).contains(&run) && plain[0] != b'0' } else { run == 3 };
                    if !fits {
                        return None;
                    }
                    (groups, run) = (groups + 1, 0);
                    continue;
                }
                'e' | 'E' if groups == 0 && length > 0 => {
                    let exponent = &text.as_bytes()[at..];
                    plain.get_mut(length..length + exponent.len())?.copy_from_slice(exponent);
                    length += exponent.len();
                    run = 3;
                    break;
                }
                _ => return None,
            };
            *plain.get_mut(length)? = byte;
            length += 1;
        }
        if groups > 0 && !fraction && run != 3 {
            return None;
        }
        match number::parse(&plain[..length]) {
            Parsed::Number(value) => Some(value),
            Parsed::Infinite if plain[0].is_ascii_digit() || plain[0] == b'.' => Some(f64::INFINITY),
            _ => None,
        }
    }

    /// A cell in this form.
    fn example(&self) -> String {
        let digits = match (self.decimal, self.group) {
            (Decimal::Point, None) => "1234.5",
            (Decimal::Comma, None) => "1234,5",
            (Decimal::Point, Some(Group::Space)) => "1 234.5",
            (Decimal::Point, Some(Group::Apostrophe)) => "1'234.5",
            (Decimal::Point, Some(_)) => "1,234.5",
            (Decimal::Comma, Some(Group::Space)) => "1 234,5",
            (Decimal::Comma, Some(Group::Apostrophe)) => "1'234,5",
            (Decimal::Comma, Some(_)) => "1.234,5",
        };
        match self.unit.as_deref() {
            Some("%") => if self.decimal == Decimal::Point { "12.5%" } else { "12,5%" }.into(),
            Some(unit) => format!("{unit} {digits}"),
            None => digits.into(),
        }
    }
}

impl Form {
    /// Reads a whole cell.
    pub(super) fn parse(&self, cell: &[u8]) -> Parsed {
        let cell = cell.trim_ascii();
        if number::is_missing(cell) {
            return Parsed::Missing;
        }
        let Ok(text) = std::str::from_utf8(cell) else {
            return Parsed::Text;
        };
        let value = match self {
            Form::Number(form) => form.value(text),
            Form::Boolean(_) => Words::ALL.iter().find_map(|words| words.value(text)),
            Form::Time(form) => form.seconds(text),
        };
        match value {
            Some(value) if value.is_finite() => Parsed::Number(value),
            Some(_) => Parsed::Infinite,
            None => Parsed::Text,
        }
    }

    /// The value of a cell that is stored as a number, and not as a text; `None` where that does not fit.
    pub(super) fn number(&self, value: f64) -> Option<f64> {
        let fits = match self {
            Form::Number(form) => form.unit.as_deref() != Some("%"),
            Form::Boolean(_) => value == 0.0 || value == 1.0,
            Form::Time(_) => false,
        };
        (fits || value.is_nan()).then_some(value)
    }

    /// What a cell should be: `a percentage such as 12.5%`.
    pub(super) fn expected(&self) -> String {
        match self {
            Form::Number(form) => {
                let what = match form.unit.as_deref() {
                    Some("%") => "a percentage",
                    Some(_) => "an amount",
                    None => "a number",
                };
                format!("{what} such as {}", form.example())
            }
            Form::Boolean(words) => {
                let [no, yes] = words.words();
                format!("{yes} or {no}")
            }
            Form::Time(form) => {
                let what = if form.order == DateOrder::Clock { "a time" } else { "a date" };
                format!("{what} such as {}", form.example())
            }
        }
    }

    /// In a few words, after the name of a column: `percent, decimal comma`.
    pub fn describe(&self) -> String {
        match self {
            Form::Number(form) => {
                let unit = form.unit.as_deref().map(|unit| match unit {
                    "%" => "percent".into(),
                    unit => format!("currency {unit}"),
                });
                let comma = (form.decimal == Decimal::Comma).then_some("decimal comma");
                let group = match (form.group, unit.as_deref().or(comma)) {
                    (Some(Group::Space), _) => Some("thousands separated by spaces"),
                    (Some(Group::Apostrophe), _) => Some("thousands separated by '"),
                    (Some(_), None) => Some("thousands separators"),
                    _ => None,
                };
                let words: Vec<&str> = unit.as_deref().into_iter().chain(comma).chain(group).collect();
                if words.is_empty() { "numbers".into() } else { words.join(", ") }
            }
            Form::Boolean(words) => {
                let [no, yes] = words.words();
                format!("{yes}/{no}")
            }
            Form::Time(form) => {
                let order = match form.order {
                    DateOrder::DayFirst => ", day first",
                    DateOrder::MonthFirst => ", month first",
                    DateOrder::YearFirst | DateOrder::Clock => "",
                };
                format!("{}{order}{}", form.what(), if form.zone { ", in UTC" } else { "" })
            }
        }
    }

    /// The error that a cell is something else.
    pub(super) fn refuse(&self, cell: &str) -> Error {
        Error::data(format!("{cell} is not {}, as the column was in training", self.expected()))
            .hint("write the cell as in the training data, or leave it empty if it is missing")
    }

    /// Checks a form from an untrusted file.
    pub(super) fn validate(&self) -> Result<(), &'static str> {
        match self {
            Form::Number(form) => {
                if form.unit.as_deref().is_some_and(|unit| !UNITS.contains(&unit)) {
                    return Err("its unit is not known");
                }
                match (form.decimal, form.group) {
                    (Decimal::Point, Some(Group::Point)) | (Decimal::Comma, Some(Group::Comma)) => {
                        Err("its thousands and its fraction have the same separator")
                    }
                    _ => Ok(()),
                }
            }
            Form::Time(form) if form.order == DateOrder::Clock && (form.zone || !form.times) => {
                Err("its times cannot be read")
            }
            Form::Time(form) if form.zone && !form.times => Err("its dates have a time zone"),
            Form::Boolean(_) | Form::Time(_) => Ok(()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(decimal: Decimal, group: Option<Group>, unit: Option<&str>) -> NumberForm {
        NumberForm { decimal, group, unit: unit.map(str::to_owned) }
    }

    /// Every form of numbers, with a percent sign, a currency and without.
    pub(in super::super) fn forms() -> Vec<NumberForm> {
        let mut forms = Vec::new();
        for unit in [None, Some("%"), Some("$"), Some("€"), Some("EUR")] {
            for decimal in [Decimal::Point, Decimal::Comma] {
                for group in [None, Some(Group::Comma), Some(Group::Point), Some(Group::Space), Some(Group::Apostrophe)]
                {
                    let form = form(decimal, group, unit);
                    if Form::Number(form.clone()).validate().is_ok() {
                        forms.push(form);
                    }
                }
            }
        }
        forms
    }

    /// A number as this form writes it; `style` selects where sign and unit stand.
    pub(in super::super) fn write(form: &NumberForm, cents: i64, style: usize) -> String {
        let (whole, rest) = ((cents / 100).unsigned_abs(), cents.unsigned_abs() % 100);
        let separator = match form.group {
            None => "",
            Some(Group::Comma) => ",",
            Some(Group::Point) => ".",
            Some(Group::Space) => [" ", "\u{a0}", "\u{202f}"][style % 3],
            Some(Group::Apostrophe) => ["'", "’"][style % 2],
        };
        let digits = whole.to_string();
        let mut text = String::new();
        for (at, digit) in digits.char_indices() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push_str(separator);
            }
            text.push(digit);
        }
        text.push(if form.decimal == Decimal::Point { '.' } else { ',' });
        text.push_str(&format!("{rest:02}"));
        let negative = cents < 0;
        let text = match (form.unit.as_deref(), style % 3) {
            (None, _) => text,
            (Some("%"), 0) => text + " %",
            (Some("%"), _) => text + "%",
            (Some(unit), 0) => format!("{unit}{text}"),
            (Some(unit), 1) => format!("{text} {unit}"),
            (Some(unit), _) => format!("{unit} {text}"),
        };
        match (negative, style % 4) {
            (false, _) => text,
            (true, 0) => format!("({text})"),
            (true, _) => format!("-{text}"),
        }
    }

    #[test]
    fn numbers_in_disguise() {
        use {Decimal::*, Group as G};
        for (text, form, want) in [
            ("29.7%", form(Point, None, Some("%")), Some(29.7)),
            ("-3 %", form(Point, None, Some("%")), Some(-3.0)),
            ("3", form(Point, None, Some("%")), None),
            ("1,234,567.5", form(Point, Some(G::Comma), None), Some(1_234_567.5)),
            ("1234567.5", form(Point, Some(G::Comma), None), Some(1_234_567.5)),
            ("12,34", form(Point, Some(G::Comma), None), None),
            ("1234,567", form(Point, Some(G::Comma), None), None),
            ("0,123", form(Point, Some(G::Comma), None), None),
            ("1,234,56", form(Point, Some(G::Comma), None), None),
            ("1,,234", form(Point, Some(G::Comma), None), None),
            (",234", form(Point, Some(G::Comma), None), None),
            ("1'234", form(Point, Some(G::Apostrophe), None), Some(1234.0)),
            ("1\u{202f}234,5", form(Comma, Some(G::Space), None), Some(1234.5)),
            ("1.234,56", form(Comma, Some(G::Point), None), Some(1234.56)),
            ("1,5", form(Comma, None, None), Some(1.5)),
            (",5", form(Comma, None, None), Some(0.5)),
            ("1,5e3", form(Comma, None, None), Some(1500.0)),
            ("1,5,2", form(Comma, None, None), None),
            ("1.5", form(Comma, Some(G::Point), None), None),
            ("1.500", form(Comma, Some(G::Point), None), Some(1500.0)),
            ("(1,200)", form(Point, Some(G::Comma), None), Some(-1200.0)),
            ("($1,200.50)", form(Point, Some(G::Comma), Some("$")), Some(-1200.5)),
            ("-$5", form(Point, None, Some("$")), Some(-5.0)),
            ("$-5", form(Point, None, Some("$")), Some(-5.0)),
            ("-$-5", form(Point, None, Some("$")), None),
            ("(-5)", form(Point, None, None), None),
            ("1200 €", form(Point, None, Some("€")), Some(1200.0)),
            ("EUR 12", form(Point, None, Some("EUR")), Some(12.0)),
            ("12", form(Point, None, Some("EUR")), Some(12.0)),
            ("$ 12 $", form(Point, None, Some("$")), None),
            ("−2,5", form(Comma, None, None), Some(-2.5)),
            ("1e999", form(Point, None, None), Some(f64::INFINITY)),
            ("", form(Point, None, None), None),
            (".", form(Point, None, None), None),
            ("-", form(Point, None, None), None),
            ("inf", form(Point, None, None), None),
            ("1é", form(Point, None, None), None),
            ("1e5é", form(Point, None, None), None),
        ] {
            assert_eq!(form.value(text), want, "{text:?} {form:?}");
        }
        assert_eq!(form(Point, None, None).value(&"1".repeat(200)), None);
        for form in forms() {
            let text = form.example();
            assert!(form.value(&text).is_some(), "{text}");
        }
    }

    #[test]
    fn typed_cells_fit_some_forms() {
        let percent = Form::Number(form(Decimal::Point, None, Some("%")));
        let amount = Form::Number(form(Decimal::Comma, Some(Group::Point), Some("€")));
        let words = Form::Boolean(Words::YesNo);
        assert_eq!((percent.number(3.0), amount.number(3.0)), (None, Some(3.0)));
        assert_eq!((words.number(1.0), words.number(2.0)), (Some(1.0), None));
        assert_eq!((words.parse(b" YES "), words.parse(b"False")), (Parsed::Number(1.0), Parsed::Number(0.0)));
        assert_eq!((words.parse(b"maybe"), words.parse(b"NA")), (Parsed::Text, Parsed::Missing));
        assert_eq!(percent.expected(), "a percentage such as 12.5%");
        assert_eq!(amount.describe(), "currency €, decimal comma");
        assert!(percent.refuse("\"x\"").hint_text().is_some());
    }

    proptest! {
        #[test]
        fn what_a_form_writes_it_reads(cents in -10_000_000_000i64..10_000_000_000, style in 0usize..12) {
            let want = cents as f64 / 100.0;
            for form in forms() {
                let text = write(&form, cents, style);
                prop_assert_eq!(form.value(&text), Some(want), "{} {:?}", text, form);
            }
        }

        #[test]
        fn anything_is_read_without_a_panic(text in "[-+(]?[$€%]?[0-9.,' eE]{0,20}[$€%)é]?", unit in "[$€%]?") {
            for mut form in forms() {
                form.unit = Some(unit.clone()).filter(|u| !u.is_empty());
                if let Some(value) = form.value(&text) {
                    prop_assert!(!value.is_nan());
                }
            }
        }

        #[test]
        fn a_hostile_form_is_refused_or_works(text in "\\{\"(number|boolean|time)\":(\"[a-z_]{0,9}\"|\\{\"decimal\":\"(comma|point|x)\",\"group\":(null|\"point\"|\"comma\"),\"unit\":(null|\"%\"|\"é\")\\})\\}") {
            if let Ok(form) = serde_json::from_str::<Form>(&text)
                && form.validate().is_ok()
            {
                let (_, _, _) = (form.parse(b"1.234,5%"), form.describe(), form.expected());
            }
        }
    }
}
