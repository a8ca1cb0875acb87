//! Positions along an axis, its ticks, and how numbers are formatted.

use super::font;

/// A tick with its label.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub at: f64,
    pub label: String,
}

/// A range of numbers along a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub low: f64,
    pub high: f64,
    pub log: bool,
    pub ticks: Vec<Tick>,
}

/// The direction of an axis: labels side by side need more room than labels above each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    X,
    Y,
}

/// A number with a fixed number of decimals, commas between thousands and a minus sign; in scientific notation if it is very
/// large or small.
pub(super) fn plain(value: f64, decimals: usize) -> String {
    if value != 0.0 && !(1e-5..1e7).contains(&value.abs()) {
        let text = format!("{value:.1e}").replace(".0e", "e");
        return text.replace('-', "−");
    }
    let text = format!("{:.*}", decimals, value.abs());
    let (whole, rest) = text.split_once('.').map_or((&text[..], None), |(w, r)| (w, Some(r)));
    let mut out = String::new();
    let negative = value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if negative {
        out.push('−');
    }
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if let Some(rest) = rest {
        out.push('.');
        out.push_str(rest);
    }
    out
}

/// A number with `digits` significant digits, as short as possible.
pub(super) fn short(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { "n/a".into() };
    }
    let power = libm::floor(libm::log10(value.abs())) as i32;
    let decimals = (digits as i32 - 1 - power).clamp(0, 9) as usize;
    let text = plain(value, decimals);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn power(exponent: i32) -> f64 {
    // Parsed from text: exact, and the same on every system.
    format!("1e{exponent}").parse().unwrap_or(f64::MAX)
}

/// Multiples of 1, 2 or 5 times a power of ten, at most `most` of them.
fn linear_ticks(low: f64, high: f64, most: usize) -> Vec<Tick> {
    let span = high - low;
    let most = most.max(1) as f64;
    let mut exponent = libm::floor(libm::log10(span / most)) as i32 - 1;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            let step = factor * power(exponent);
            let (first, last) = (libm::ceil(low / step - 1e-9), libm::floor(high / step + 1e-9));
            if last - first + 1.0 <= most {
                let decimals = (-exponent).clamp(0, 12) as usize;
                let count = (last - first + 1.0).max(0.0) as usize;
                let numbers = (0..count).map(|i| (first + i as f64) * step);
                return numbers.map(|at| Tick { at, label: plain(at, decimals) }).collect();
            }
        }
        exponent += 1;
    }
}

/// Powers of ten, or every second, third, … one.
fn log_ticks(low: f64, high: f64, most: usize) -> Vec<Tick> {
    let exponent = |v: f64, up: bool| {
        let e = libm::log10(v);
        (if up { libm::ceil(e - 1e-9) } else { libm::floor(e + 1e-9) }) as i32
    };
    let (first, last) = (exponent(low, true), exponent(high, false));
    if last - first < 1 {
        return linear_ticks(low, high, most).into_iter().filter(|t| t.at > 0.0).collect();
    }
    let step = (1..).find(|s| (last - first) / s < most.max(1) as i32).unwrap_or(1);
    let label = |e: i32| plain(power(e), (-e).clamp(0, 12) as usize);
    (first..=last).filter(|e| e % step == 0).map(|e| Tick { at: power(e), label: label(e) }).collect()
}

impl Axis {
    /// An axis of `length` pixels, with as many ticks as fit, labels in font size `size`.
    pub(super) fn new(low: f64, high: f64, log: bool, length: f64, size: f64, along: Along) -> Axis {
        let (mut low, mut high) = (low.min(high), low.max(high));
        if high - low <= 1e-12 * high.abs().max(low.abs()).max(1e-12) {
            // A single number is in the middle of the axis.
            let around = if low == 0.0 { 1.0 } else { 0.1 * low.abs() };
            (low, high) = if log { (low / 2.0, high * 2.0) } else { (low - around, high + around) };
        }
        let mut axis = Axis { low, high, log, ticks: Vec::new() };
        for most in (1..=9).rev() {
            axis.ticks = if log { log_ticks(low, high, most) } else { linear_ticks(low, high, most) };
            if axis.has_room(length, size, along) {
                break;
            }
        }
        axis
    }

    /// Whether the labels do not overlap.
    fn has_room(&self, length: f64, size: f64, along: Along) -> bool {
        self.ticks.windows(2).all(|pair| {
            let apart = (self.place(pair[1].at) - self.place(pair[0].at)) * length;
            let needed = match along {
                Along::X => {
                    (font::width(&pair[0].label, size, false) + font::width(&pair[1].label, size, false)) / 2.0 + size
                }
                Along::Y => 2.2 * size,
            };
            apart >= needed
        })
    }

    /// The position of a number, 0 to 1 within the range.
    pub(super) fn place(&self, value: f64) -> f64 {
        if self.log {
            let (low, high) = (libm::log(self.low), libm::log(self.high));
            (libm::log(value.max(f64::MIN_POSITIVE)) - low) / (high - low)
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// The width of the widest label.
    pub(super) fn label_width(&self, size: f64) -> f64 {
        self.ticks.iter().map(|t| font::width(&t.label, size, false)).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|t| t.label.as_str()).collect()
    }

    #[test]
    fn numbers_are_formatted() {
        assert_eq!(plain(1234567.0, 0), "1,234,567");
        assert_eq!(plain(-1234.5, 1), "−1,234.5");
        assert_eq!(plain(-0.0001, 2), "0.00");
        assert_eq!(plain(123.0, 0), "123");
        assert_eq!(plain(2e9, 0), "2e9");
        assert_eq!(plain(-2.5e-9, 0), "−2.5e−9");
        assert_eq!(short(0.012345, 3), "0.0123");
        assert_eq!(short(98.0, 4), "98");
        assert_eq!(short(12345.6, 3), "12,346");
        assert_eq!(short(-0.5, 3), "−0.5");
    }

    #[test]
    fn ticks_are_round_numbers() {
        let axis = |low, high, log| Axis::new(low, high, log, 400.0, 11.0, Along::X);
        assert_eq!(labels(&axis(0.0, 100.0, false)), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&axis(-1.0, 1.0, false)), ["−1.0", "−0.5", "0.0", "0.5", "1.0"]);
        assert_eq!(labels(&axis(1e-3, 1e3, true)), ["0.001", "0.01", "0.1", "1", "10", "100", "1,000"]);
        assert_eq!(labels(&axis(1e-12, 1e12, true)).len(), 9);
        assert_eq!(axis(1e-3, 1e3, true).place(1.0), 0.5);
        assert!(axis(5.0, 5.0, false).ticks.len() > 1 && axis(5.0, 5.0, true).ticks.len() > 1);
        assert!(axis(3.0, 7.0, true).ticks.len() > 1);
    }

    proptest! {
        #[test]
        fn ticks_lie_inside_and_do_not_overlap(
            low in -1e6..1e6f64, span in 1e-6..1e7f64, length in 60.0..900.0f64, log: bool, along: bool,
        ) {
            let low = if log { low.abs() + 1e-6 } else { low };
            let along = if along { Along::X } else { Along::Y };
            let axis = Axis::new(low, low + span, log, length, 11.0, along);
            prop_assert!(axis.ticks.len() <= 9);
            for t in &axis.ticks {
                let at = axis.place(t.at);
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&at), "{t:?} of {axis:?}");
            }
            prop_assert!(axis.has_room(length, 11.0, along));
            let steps: Vec<f64> = axis.ticks.windows(2).map(|p| p[1].at - p[0].at).collect();
            prop_assert!(steps.iter().all(|s| *s > 0.0));
        }
    }
}
