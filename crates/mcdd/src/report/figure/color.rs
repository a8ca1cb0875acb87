//! Colors by role, in a light and a dark theme.
//!
//! The ten colors of classes and methods were found from those of Okabe and Ito by moving them apart as people with
//! normal color vision and with each kind of color blindness see them, on white and on dark backgrounds.

/// The background of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// Dark on white.
    #[default]
    Light,
    /// Light on nearly black.
    Dark,
}

/// The role of a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Paint {
    /// The background.
    Surface,
    /// Text and important lines.
    Ink,
    /// Secondary text and lines: tick labels, captions, frames.
    Muted,
    /// Grid lines.
    Grid,
    /// A class or a method; colors repeat after [`SERIES`].
    Series(usize),
    /// Values below the mean.
    Below,
    /// Values above it.
    Above,
}

/// The number of different series colors.
pub const SERIES: usize = 10;

const LIGHT: [u32; SERIES] =
    [0x0466b1, 0xc74702, 0x18995d, 0xb3608f, 0xe6a80c, 0x64bde2, 0x6a0a70, 0xa9ae55, 0x3d29c0, 0x4f4f4f];
const DARK: [u32; SERIES] =
    [0x2b83e4, 0xe15a1c, 0x40be78, 0xd28ab6, 0xffd046, 0x8fe4ff, 0xb02fa0, 0xc8dd88, 0x8558ff, 0x707070];

impl Paint {
    /// Red, green and blue.
    pub(super) fn rgb(self, theme: Theme) -> [u8; 3] {
        let (light, dark) = match self {
            Paint::Surface => (0xffffff, 0x15181c),
            Paint::Ink => (0x1c1e21, 0xe9ebee),
            Paint::Muted => (0x5b6168, 0xa4abb3),
            Paint::Grid => (0xe3e6e9, 0x30353b),
            Paint::Series(i) => (LIGHT[i % SERIES], DARK[i % SERIES]),
            // The same in both themes: they are used in images, which have one version.
            Paint::Below => (0x2a84c6, 0x2a84c6),
            Paint::Above => (0xe06c1f, 0xe06c1f),
        };
        let [_, r, g, b] = u32::to_be_bytes(if theme == Theme::Light { light } else { dark });
        [r, g, b]
    }

    /// As a CSS color.
    pub(super) fn css(self, theme: Theme) -> String {
        let [r, g, b] = self.rgb(theme);
        format!("#{r:02x}{g:02x}{b:02x}")
    }

    /// The suffix of its CSS class.
    pub(super) fn name(self) -> String {
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

/// All colors as CSS variables, for a page with figures: `--ink:#1c1e21;…`.
pub(in crate::report) fn variables(theme: Theme) -> String {
    let own = [Paint::Surface, Paint::Ink, Paint::Muted, Paint::Grid];
    let all = own.into_iter().chain((0..SERIES).map(Paint::Series));
    all.map(|p| format!("--{}:{};", p.name(), p.css(theme))).collect()
}

/// The rules that give the parts of an embedded figure the colors of its page.
pub(in crate::report) fn classes() -> String {
    let own = [Paint::Surface, Paint::Ink, Paint::Muted, Paint::Grid];
    let all = own.into_iter().chain((0..SERIES).map(Paint::Series)).map(Paint::name);
    all.map(|name| format!(".f-{name}{{fill:var(--{name})}}.k-{name}{{stroke:var(--{name})}}")).collect()
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

    /// CIE L*a*b* of a color after a transform of linear red, green and blue that simulates color vision.
    fn seen(rgb: [u8; 3], eyes: [[f64; 3]; 3]) -> [f64; 3] {
        let linear = rgb.map(|v| {
            let v = f64::from(v) / 255.0;
            if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        });
        let times = |m: [[f64; 3]; 3], v: [f64; 3]| m.map(|row| (0..3).map(|i| row[i] * v[i]).sum::<f64>());
        let rgb = times(eyes, linear).map(|v| v.clamp(0.0, 1.0));
        let xyz = [[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8729]];
        let [x, y, z] = times(xyz, rgb).map(|t| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// By the matrices of Machado, Oliveira and Fernandes (2009) for full deutan, protan and tritan blindness.
    #[test]
    fn series_colors_differ_for_every_color_vision() {
        let kinds = [
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
            [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
            [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
        ];
        for theme in [Theme::Light, Theme::Dark] {
            for eyes in kinds {
                let all: Vec<_> = (0..SERIES).map(|i| seen(Paint::Series(i).rgb(theme), eyes)).collect();
                for i in 0..SERIES {
                    for j in 0..i {
                        let apart = (0..3).map(|c| (all[i][c] - all[j][c]).powi(2)).sum::<f64>().sqrt();
                        assert!(apart > 15.0, "{theme:?} {i} {j}: {apart:.1}");
                    }
                }
            }
        }
    }

    #[test]
    fn contrast_is_sufficient_in_both_themes() {
        for theme in [Theme::Light, Theme::Dark] {
            assert!(contrast(Paint::Ink, Paint::Surface, theme) > 12.0);
            assert!(contrast(Paint::Muted, Paint::Surface, theme) > 4.5);
            for i in 0..SERIES {
                assert!(contrast(Paint::Series(i), Paint::Surface, theme) > 2.0, "{i} {theme:?}");
            }
        }
    }
}
