//! Dates and times as numbers: parsing, the calendar, and the cycles that a network gets beside the number.

use serde::{Deserialize, Serialize};

/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// How the dates or times of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeForm {
    /// The order of day, month and year.
    pub order: DateOrder,
    /// Whether a cell of the training data has a time of day.
    pub times: bool,
    /// Whether cells have a time zone. They are converted to UTC.
    pub zone: bool,
}

/// The order of day, month and year. A date that begins with its year (`2025-12-31`) is read in every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DateOrder {
    /// `2025-12-31`, `2025/12/31`
    YearFirst,
    /// `31.12.2025`, `31/12/2025`
    DayFirst,
    /// `12/31/2025`
    MonthFirst,
    /// No date, only a time: `13:45`
    Clock,
}

/// A cycle: its place in [0, 1) becomes two inputs, sine and cosine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cycle {
    /// The time of day.
    TimeOfDay,
    /// The day of the week.
    DayOfWeek,
    /// The day of the year.
    DayOfYear,
}

/// What a cell says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    /// Since 1970-01-01 00:00, or since midnight where there is no date.
    pub seconds: f64,
    pub time: bool,
    pub zone: bool,
}

impl TimeForm {
    /// The seconds of a cell; `None` if it is not written in this form.
    pub(super) fn seconds(self, text: &str) -> Option<f64> {
        // A date without a time has no zone to convert from.
        parse(text, self.order).filter(|m| m.zone == self.zone).map(|m| m.seconds)
    }

    /// A number of seconds in the year-first form, to the minute.
    pub(super) fn show(self, seconds: f64) -> String {
        let seconds = if self.times { (seconds / 60.0).round() * 60.0 } else { (seconds / DAY).round() * DAY };
        let days = (seconds / DAY).floor();
        let minutes = ((seconds - days * DAY) / 60.0) as u32;
        let clock = format!("{:02}:{:02}", minutes / 60, minutes % 60);
        if self.order == DateOrder::Clock {
            return if days == 0.0 { clock } else { format!("{seconds:.0} s") };
        }
        // Years beyond four digits come from values far out of range only.
        if !(-719_162.0..2_932_897.0).contains(&days) {
            return format!("{:.0} days after 1970-01-01", days);
        }
        let (year, month, day) = civil(days as i64);
        let zone = if self.zone { " UTC" } else { "" };
        if self.times {
            format!("{year:04}-{month:02}-{day:02} {clock}{zone}")
        } else {
            format!("{year:04}-{month:02}-{day:02}")
        }
    }

    /// In words.
    pub(super) fn what(self) -> &'static str {
        match (self.order, self.times) {
            (DateOrder::Clock, _) => "times",
            (_, true) => "dates with times",
            (_, false) => "dates",
        }
    }

    /// A cell in this form.
    pub(super) fn example(self) -> &'static str {
        match (self.order, self.times, self.zone) {
            (DateOrder::Clock, ..) => "13:45",
            (_, true, true) => "2025-12-31T13:45:00Z",
            (DateOrder::YearFirst, true, false) => "2025-12-31 13:45",
            (DateOrder::DayFirst, true, false) => "31.12.2025 13:45",
            (DateOrder::MonthFirst, true, false) => "12/31/2025 13:45",
            (DateOrder::YearFirst, false, _) => "2025-12-31",
            (DateOrder::DayFirst, false, _) => "31.12.2025",
            (DateOrder::MonthFirst, false, _) => "12/31/2025",
        }
    }
}

impl Cycle {
    /// All of them.
    pub(super) const ALL: [Cycle; 3] = [Cycle::TimeOfDay, Cycle::DayOfWeek, Cycle::DayOfYear];

    /// In words, for the names of inputs.
    pub fn name(self) -> &'static str {
        match self {
            Cycle::TimeOfDay => "time of day",
            Cycle::DayOfWeek => "day of week",
            Cycle::DayOfYear => "day of year",
        }
    }

    fn period(self) -> f64 {
        match self {
            Cycle::TimeOfDay => DAY,
            Cycle::DayOfWeek => 7.0 * DAY,
            Cycle::DayOfYear => 365.25 * DAY,
        }
    }

    /// The place in the cycle, in [0, 1).
    fn place(self, seconds: f64) -> f64 {
        let days = (seconds / DAY).floor();
        match self {
            Cycle::TimeOfDay => (seconds - days * DAY) / DAY,
            // 1970-01-01 was a Thursday.
            Cycle::DayOfWeek => (days + 3.0).rem_euclid(7.0) / 7.0,
            Cycle::DayOfYear => {
                let days = days.clamp(-1e9, 1e9) as i64;
                let (year, ..) = civil(days);
                let first = days_of(year, 1, 1);
                (days - first) as f64 / (days_of(year + 1, 1, 1) - first) as f64
            }
        }
    }

    /// Sine and cosine.
    pub(super) fn inputs(self, seconds: f64) -> [f32; 2] {
        let angle = std::f64::consts::TAU * self.place(seconds);
        [libm::sin(angle) as f32, libm::cos(angle) as f32]
    }

    /// The cycles that some moments show: those that differ between them, where they span two periods at least. In a
    /// shorter span the number itself says the same. Times without a date are always a cycle.
    pub(super) fn shown_by(form: TimeForm, seconds: impl Iterator<Item = f64> + Clone) -> Vec<Cycle> {
        let fold = |start: f64, pick: fn(f64, f64) -> f64| seconds.clone().fold(start, pick);
        let span = fold(f64::NEG_INFINITY, f64::max) - fold(f64::INFINITY, f64::min);
        let clock = form.order == DateOrder::Clock;
        let differs = |cycle: Cycle| {
            let mut places = seconds.clone().map(|s| cycle.place(s));
            places.next().is_some_and(|first| places.any(|place| place != first))
        };
        let shown = |cycle: &Cycle| match cycle {
            Cycle::TimeOfDay if clock => differs(*cycle),
            _ => !clock && span >= 2.0 * cycle.period() && differs(*cycle),
        };
        Cycle::ALL.into_iter().filter(shown).collect()
    }
}

/// Days since 1970-01-01 of a date in the Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * i64::from((month + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted + 2) / 5 + 1) as u32;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Seconds since 1970-01-01 in the form that [`parse`] reads. `None` outside of the years 1 to 9999.
#[cfg_attr(not(feature = "arrow"), allow(dead_code))]
pub(super) fn timestamp(seconds: i64, nanos: u32, zone: bool) -> Option<String> {
    let mut text = date(seconds.div_euclid(86_400))?;
    text.push('T');
    text.push_str(&clock(seconds.rem_euclid(86_400), nanos));
    text.push_str(if zone { "Z" } else { "" });
    Some(text)
}

/// Days since 1970-01-01 as a date.
#[cfg_attr(not(feature = "arrow"), allow(dead_code))]
pub(super) fn date(days: i64) -> Option<String> {
    if !(-719_162..2_932_897).contains(&days) {
        return None;
    }
    let (year, month, day) = civil(days);
    Some(format!("{year:04}-{month:02}-{day:02}"))
}

/// Seconds since midnight as a time.
#[cfg_attr(not(feature = "arrow"), allow(dead_code))]
pub(super) fn clock(seconds: i64, nanos: u32) -> String {
    let mut text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if nanos > 0 {
        text.push_str(format!(".{nanos:09}").trim_end_matches('0'));
    }
    text
}

/// Takes `least` to `most` digits.
fn digits(text: &mut &[u8], least: usize, most: usize) -> Option<u32> {
    let count = text.iter().take(most).take_while(|b| b.is_ascii_digit()).count();
    if count < least || text.get(count).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let (number, rest) = text.split_at(count);
    *text = rest;
    Some(number.iter().fold(0, |n, &d| n * 10 + u32::from(d - b'0')))
}

/// Takes one of these bytes.
fn one_of(text: &mut &[u8], bytes: &[u8]) -> Option<u8> {
    let (&first, rest) = text.split_first()?;
    if !bytes.contains(&first) {
        return None;
    }
    *text = rest;
    Some(first)
}

/// Reads a date, a date with a time, or with [`DateOrder::Clock`] a time.
pub(super) fn parse(text: &str, order: DateOrder) -> Option<Moment> {
    let mut rest = text.trim().as_bytes();
    if order == DateOrder::Clock {
        let seconds = time(&mut rest)?;
        return rest.is_empty().then_some(Moment { seconds, time: true, zone: false });
    }
    let days = day(&mut rest, order)?;
    if rest.is_empty() {
        return Some(Moment { seconds: days as f64 * DAY, time: false, zone: false });
    }
    one_of(&mut rest, b"Tt ")?;
    rest = rest.trim_ascii_start();
    let seconds = time(&mut rest)?;
    let offset = if rest.is_empty() { None } else { Some(offset(rest)?) };
    let seconds = days as f64 * DAY + seconds - offset.unwrap_or(0.0);
    Some(Moment { seconds, time: true, zone: offset.is_some() })
}

/// The days since 1970-01-01 of a date.
fn day(rest: &mut &[u8], order: DateOrder) -> Option<i64> {
    let year_first = rest.iter().take_while(|b| b.is_ascii_digit()).count() == 4;
    let (year, month, day) = if year_first {
        let year = digits(rest, 4, 4)?;
        let separator = one_of(rest, b"-/.")?;
        let month = digits(rest, 1, 2)?;
        one_of(rest, &[separator])?;
        (year, month, digits(rest, 1, 2)?)
    } else {
        let first = digits(rest, 1, 2)?;
        let separator = one_of(rest, b"-/.")?;
        let second = digits(rest, 1, 2)?;
        one_of(rest, &[separator])?;
        let year = digits(rest, 4, 4)?;
        match order {
            DateOrder::DayFirst => (year, second, first),
            DateOrder::MonthFirst => (year, first, second),
            DateOrder::YearFirst | DateOrder::Clock => return None,
        }
    };
    if year == 0 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let days = days_of(i64::from(year), month, day);
    // A day that the month does not have falls into the next one.
    (day <= 31 && civil(days).1 == month).then_some(days)
}

/// `13:45`, `13:45:10.25`, `1:45 pm`: the seconds since midnight.
fn time(rest: &mut &[u8]) -> Option<f64> {
    let mut hour = digits(rest, 1, 2)?;
    one_of(rest, b":")?;
    let minute = digits(rest, 2, 2)?;
    let mut seconds = 0.0;
    if one_of(rest, b":").is_some() {
        let whole = digits(rest, 2, 2)?;
        // 60 is a leap second.
        if whole > 60 {
            return None;
        }
        seconds = f64::from(whole);
        if one_of(rest, b".,").is_some() {
            let count = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            if !(1..=18).contains(&count) {
                return None;
            }
            let (fraction, after) = rest.split_at(count);
            *rest = after;
            let value = fraction.iter().fold(0u64, |n, &d| n * 10 + u64::from(d - b'0'));
            seconds += value as f64 / libm::pow(10.0, count as f64);
        }
    }
    let after = rest.trim_ascii_start();
    if let Some([half, m, more @ ..]) = Some(after)
        && m.eq_ignore_ascii_case(&b'm')
        && matches!(half.to_ascii_lowercase(), b'a' | b'p')
    {
        if !(1..=12).contains(&hour) {
            return None;
        }
        hour = hour % 12 + if half.eq_ignore_ascii_case(&b'p') { 12 } else { 0 };
        *rest = more;
    }
    (hour < 24 && minute < 60).then(|| f64::from(hour * 3600 + minute * 60) + seconds)
}

/// `Z`, `UTC`, `+02:00`, `-0530`, `+01`: the seconds that local time is ahead of UTC.
fn offset(rest: &[u8]) -> Option<f64> {
    let mut rest = rest.trim_ascii();
    if [&b"Z"[..], b"z", b"UTC", b"GMT"].contains(&rest) {
        return Some(0.0);
    }
    let sign = if one_of(&mut rest, b"+-")? == b'-' { -1.0 } else { 1.0 };
    if !rest.iter().all(|b| b.is_ascii_digit() || *b == b':') {
        return None;
    }
    let number = |at: usize| {
        let pair = rest.get(at..at + 2)?;
        pair.iter().all(u8::is_ascii_digit).then(|| u32::from(pair[0] - b'0') * 10 + u32::from(pair[1] - b'0'))
    };
    let (hours, minutes) = match rest.len() {
        2 => (number(0)?, 0),
        4 => (number(0)?, number(2)?),
        5 if rest[2] == b':' => (number(0)?, number(3)?),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then(|| sign * f64::from(hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(text: &str, order: DateOrder) -> Option<f64> {
        parse(text, order).map(|m| m.seconds)
    }

    #[test]
    fn forms_of_one_moment() {
        use DateOrder::*;
        let noon = 1_767_182_400.0; // 2025-12-31 12:00
        for (text, order) in [
            ("2025-12-31 12:00", YearFirst),
            ("2025-12-31T12:00:00Z", YearFirst),
            ("2025/12/31 12:00:00.000", DayFirst),
            ("2025-12-31T14:00:00+02:00", YearFirst),
            ("2025-12-31T06:30:00-0530", YearFirst),
            ("2025-12-31 13:00 +01", MonthFirst),
            ("31.12.2025 12:00", DayFirst),
            ("31/12/2025 12:00 PM", DayFirst),
            ("12/31/2025  12:00pm", MonthFirst),
            ("12-31-2025 12:00:00,0 UTC", MonthFirst),
        ] {
            assert_eq!(seconds(text, order), Some(noon), "{text}");
        }
        assert_eq!(seconds("12:00 am", Clock), Some(0.0));
        assert_eq!(seconds("9:05:07.5", Clock), Some(32_707.5));
        assert_eq!(seconds("29.2.2024", DayFirst), Some(1_709_164_800.0));
        assert_eq!(seconds("1.1.0001", DayFirst), Some(-62_135_596_800.0));
        for (text, order) in [
            ("2025-12-31", Clock),
            ("31.12.2025", MonthFirst),
            ("12/31/2025", DayFirst),
            ("31.12.2025", YearFirst),
            ("29.2.2025", DayFirst),
            ("31.4.2025", DayFirst),
            ("0.1.2025", DayFirst),
            ("2025-13-01", YearFirst),
            ("0000-01-01", YearFirst),
            ("2025-1/2", YearFirst),
            ("2025-01-02x", YearFirst),
            ("2025-01-02 25:00", YearFirst),
            ("2025-01-02 10:0", YearFirst),
            ("2025-01-02 10:00 +25:00", YearFirst),
            ("2025-01-02 10:00 +0é", YearFirst),
            ("13:00 pm", Clock),
            ("3:1", Clock),
            ("12:60", Clock),
            ("31.12.25", DayFirst),
            ("", YearFirst),
            ("20251231", YearFirst),
        ] {
            assert_eq!(parse(text, order), None, "{text}");
        }
    }

    #[test]
    fn cycles_need_two_periods() {
        let form = TimeForm { order: DateOrder::YearFirst, times: true, zone: false };
        let every = |step: f64, count: u32| (0..count).map(move |i| 1.7e9 + step * f64::from(i));
        assert_eq!(Cycle::shown_by(form, every(600.0, 100)), []);
        assert_eq!(Cycle::shown_by(form, every(3600.0, 100)), [Cycle::TimeOfDay]);
        assert_eq!(Cycle::shown_by(form, every(DAY, 30)), [Cycle::DayOfWeek]);
        assert_eq!(Cycle::shown_by(form, every(7.0 * DAY, 200)), [Cycle::DayOfYear]);
        assert_eq!(Cycle::shown_by(form, every(30_000.0, 3000)), Cycle::ALL);
        assert_eq!(Cycle::shown_by(form, std::iter::empty()), []);
        let clock = TimeForm { order: DateOrder::Clock, ..form };
        assert_eq!(Cycle::shown_by(clock, [0.0, 60.0].into_iter()), [Cycle::TimeOfDay]);
        // Monday, and the first of January.
        assert_eq!(Cycle::DayOfWeek.place(4.0 * DAY), 0.0);
        assert_eq!(Cycle::DayOfYear.inputs(0.0), [0.0, 1.0]);
        assert_eq!(Cycle::TimeOfDay.inputs(0.25 * DAY)[0], 1.0);
        assert!(Cycle::ALL.iter().all(|c| c.inputs(1e300).iter().chain(&c.inputs(-1e300)).all(|v| v.is_finite())));
    }

    #[test]
    fn moments_are_shown() {
        let form = TimeForm { order: DateOrder::DayFirst, times: false, zone: false };
        assert_eq!(form.show(1_767_182_400.0 - 40_000.0), "2025-12-31");
        assert_eq!(TimeForm { times: true, zone: true, ..form }.show(1_767_182_399.0), "2025-12-31 12:00 UTC");
        assert_eq!(TimeForm { times: true, order: DateOrder::Clock, ..form }.show(47_100.0), "13:05");
        assert!(form.show(1e18).contains("days after"));
        for order in [DateOrder::YearFirst, DateOrder::DayFirst, DateOrder::MonthFirst, DateOrder::Clock] {
            for (times, zone) in [(false, false), (true, false), (true, true)] {
                let form = TimeForm { order, times, zone: zone && order != DateOrder::Clock };
                assert!(form.seconds(form.example()).is_some(), "{form:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_comes_back(days in -719_162i64..2_932_897, second in 0i64..86_400, nanos in 0u32..1_000_000_000) {
            let (year, month, day) = civil(days);
            prop_assert_eq!(days_of(year, month, day), days);
            let midnight = days as f64 * DAY;
            for (text, order) in [
                (format!("{year:04}-{month:02}-{day:02}"), DateOrder::YearFirst),
                (format!("{year:04}/{month}/{day}"), DateOrder::MonthFirst),
                (format!("{day}.{month}.{year:04}"), DateOrder::DayFirst),
                (format!("{month:02}/{day:02}/{year:04}"), DateOrder::MonthFirst),
                (date(days).unwrap(), DateOrder::DayFirst),
            ] {
                prop_assert_eq!(seconds(&text, order), Some(midnight), "{}", text);
            }
            let whole = timestamp(days * 86_400 + second, nanos, true).unwrap();
            let moment = parse(&whole, DateOrder::DayFirst).unwrap();
            prop_assert!(moment.zone && moment.time);
            let want = midnight + second as f64 + f64::from(nanos) * 1e-9;
            prop_assert!((moment.seconds - want).abs() < 1e-4, "{}", whole);
            prop_assert_eq!(seconds(&clock(second, 0), DateOrder::Clock), Some(second as f64));
        }

        #[test]
        fn anything_is_read_without_a_panic(text in "[0-9TtZzapm :./,+é-]{0,30}") {
            for order in [DateOrder::YearFirst, DateOrder::DayFirst, DateOrder::MonthFirst, DateOrder::Clock] {
                if let Some(moment) = parse(&text, order) {
                    prop_assert!(moment.seconds.is_finite());
                }
            }
        }
    }
}
