//! Colours by what they are for, in a light and a dark theme.
//!
//! The ten colours of classes and methods begin as those of Okabe and Ito, which people with any common colour vision tell
//! apart; the first few are the ones that differ most. On dark ground each is the same hue, lighter.

/// What a figure is drawn on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// Dark on white.
    #[default]
    Light,
    /// Light on nearly black.
    Dark,
}

/// What a colour is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Paint {
    /// The ground.
    Surface,
    /// Text, and whatever must be seen.
    Ink,
    /// Second to it: tick labels, captions, frames.
    Muted,
    /// Lines that help to read and should not be seen otherwise.
    Grid,
    /// A class or a method; they repeat after [`SERIES`].
    Series(usize),
    /// Values below the mean.
    Below,
    /// Values above it.
    Above,
}

/// How many series have a colour of their own.
pub(super) const SERIES: usize = 10;

const LIGHT: [u32; SERIES] =
    [0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x882255, 0x8a8a2b, 0x4b3fb3, 0x757575];
const DARK: [u32; SERIES] =
    [0x3b93db, 0xf0793a, 0x2bc198, 0xe8a3cb, 0xf4bb3d, 0x93d6fb, 0xc7588e, 0xbcbc58, 0x9387f0, 0xa8a8a8];

impl Paint {
    /// Red, green and blue.
    pub fn rgb(self, theme: Theme) -> [u8; 3] {
        let (light, dark) = match self {
            Paint::Surface => (0xffffff, 0x15181c),
            Paint::Ink => (0x1c1e21, 0xe9ebee),
            Paint::Muted => (0x5b6168, 0xa4abb3),
            Paint::Grid => (0xe3e6e9, 0x30353b),
            Paint::Series(i) => (LIGHT[i % SERIES], DARK[i % SERIES]),
            // The same on both grounds: they are the colours of pictures, which have one version.
            Paint::Below => (0x2a84c6, 0x2a84c6),
            Paint::Above => (0xe06c1f, 0xe06c1f),
        };
        let [_, r, g, b] = u32::to_be_bytes(if theme == Theme::Light { light } else { dark });
        [r, g, b]
    }

    /// As CSS writes it.
    pub fn css(self, theme: Theme) -> String {
        let [r, g, b] = self.rgb(theme);
        format!("#{r:02x}{g:02x}{b:02x}")
    }

    /// A name for a class of CSS.
    pub fn name(self) -> String {
        match self {
            Paint::Surface => "bg".into(),
            Paint::Ink => "ink".into(),
            Paint::Muted => "mut".into(),
            Paint::Grid => "grid".into(),
            Paint::Series(i) => format!("s{}", i % SERIES),
            Paint::Below => "lo".into(),
            Paint::Above => "hi".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance by WCAG 2.
    fn luminance(rgb: [u8; 3]) -> f64 {
        let linear = |v: u8| {
            let v = f64::from(v) / 255.0;
            if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2])
    }

    fn contrast(a: Paint, b: Paint, theme: Theme) -> f64 {
        let (a, b) = (luminance(a.rgb(theme)), luminance(b.rgb(theme)));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_is_readable_and_marks_are_seen_on_both_grounds() {
        for theme in [Theme::Light, Theme::Dark] {
            assert!(contrast(Paint::Ink, Paint::Surface, theme) > 12.0);
            assert!(contrast(Paint::Muted, Paint::Surface, theme) > 4.5);
            for i in 0..SERIES {
                assert!(contrast(Paint::Series(i), Paint::Surface, theme) > 2.0, "{i} {theme:?}");
            }
        }
    }
}
