//! Networks for the class: the last two of an ensemble of Deep-MCDD, from which alone the class comes. Their `nu` is smaller, so that classes count more and
//! distances less, and the epoch with the lowest validation loss is kept. The last one reads its inputs also as a
//! piecewise-linear code in bins (Gorishniy et al. 2022), which lets it bend at a value of a single column, as a tree does.
//! The confidence comes from the others alone. `docs/default.md` has what this brings.

use serde::{Deserialize, Serialize};

use crate::head::HeadConfig;
use crate::net::{Bin, Graph};

use super::{Select, Settings};

/// The most codes of a network: more would make its first layer most of its work.
const MAX_CODES: usize = 512;
/// The most rows that quantiles are taken from.
const ROWS: usize = 20_000;
/// The number of networks for the class.
const COUNT: usize = 2;
/// The factor of their `nu`.
const NU: f64 = 0.3;

/// What a member of an ensemble is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Role {
    /// Whether it is for the class, and not for the confidence.
    pub for_class: bool,
    /// Whether its network has bins.
    pub binned: bool,
}

/// The networks of an ensemble.
#[derive(Clone, Debug, PartialEq)]
pub struct Graphs {
    /// What most members have.
    pub plain: Graph,
    /// What the last member has, if it is something else: the same with bins.
    pub binned: Option<Graph>,
}

impl From<Graph> for Graphs {
    fn from(plain: Graph) -> Graphs {
        Graphs { plain, binned: None }
    }
}

impl Graphs {
    /// Networks for rows of `x`, one of them with bins if the settings say so. Quantiles are those of `rows`.
    pub(crate) fn fit(plain: Graph, x: &[f32], rows: &[usize], settings: &Settings) -> Graphs {
        let wanted = settings.bins.filter(|_| is_for_class(settings.members - 1, settings));
        let bins = wanted.map(|most| bins(x, plain.input, rows, plain.clip(), most));
        let binned = bins.filter(|bins| !bins.is_empty()).map(|bins| plain.clone().with_bins(bins));
        Graphs { plain, binned }
    }

    /// What a member is for.
    pub(crate) fn role(&self, member: usize, settings: &Settings) -> Role {
        let binned = self.binned.is_some() && member + 1 == settings.members;
        Role { for_class: is_for_class(member, settings), binned }
    }

    /// The network of members with bins, or without.
    pub(crate) fn get(&self, binned: bool) -> &Graph {
        self.binned.as_ref().filter(|_| binned).unwrap_or(&self.plain)
    }
}

impl Settings {
    /// The number of networks that are for the class.
    pub(crate) fn class_members(&self) -> usize {
        let some = self.bins.is_some() && matches!(self.head, HeadConfig::DeepMcdd(_)) && self.members >= 2 * COUNT;
        if some { COUNT } else { 0 }
    }
}

/// Whether a member is for the class.
fn is_for_class(member: usize, settings: &Settings) -> bool {
    member + settings.class_members() >= settings.members
}

/// The settings of a member: those for the class have a smaller `nu`, and the epoch with the lowest validation loss.
pub(super) fn member_settings(member: usize, settings: &Settings) -> Settings {
    let mut own = settings.clone();
    if let (HeadConfig::DeepMcdd(config), true) = (&mut own.head, is_for_class(member, settings)) {
        config.nu *= NU;
        own.select = Select::Best;
    }
    own
}

/// At most `most` bins of each feature, each with the same number of rows; none for a feature whose quantiles have two values.
fn bins(x: &[f32], width: usize, rows: &[usize], clip: Option<f32>, most: usize) -> Vec<Bin> {
    let limit = clip.unwrap_or(f32::INFINITY);
    let every = rows.len().div_ceil(ROWS).max(1);
    let mut sorted: Vec<f32> = Vec::with_capacity(rows.len().min(ROWS));
    let mut edges_of = |feature: usize, count: usize| -> Vec<f32> {
        sorted.clear();
        sorted.extend(rows.iter().step_by(every).map(|&row| x[row * width + feature].clamp(-limit, limit)));
        sorted.sort_by(f32::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return Vec::new() };
        let mut edges: Vec<f32> = (0..=count).map(|i| sorted[i * last / count]).collect();
        edges.dedup();
        edges
    };
    let features: Vec<usize> = (0..width).filter(|&f| edges_of(f, most).len() > 2).collect();
    let count = most.min(MAX_CODES / features.len().max(1));
    if count < 2 {
        return Vec::new();
    }
    let of = |feature: usize| {
        let edges = edges_of(feature, count);
        let bin = |pair: &[f32]| Bin { feature, low: pair[0], high: pair[1] };
        edges.windows(2).map(bin).filter(|bin| bin.is_valid(width)).collect::<Vec<_>>()
    };
    features.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{Preset, graph};

    /// A number, a number that is mostly 0, and a category.
    fn rows(n: usize) -> Vec<f32> {
        (0..n).flat_map(|i| [i as f32 / n as f32, if i % 10 == 0 { i as f32 } else { 0.0 }, (i % 2) as f32]).collect()
    }

    #[test]
    fn bins_have_the_same_number_of_rows() {
        let (x, all) = (rows(1000), (0..1000).collect::<Vec<_>>());
        let found = bins(&x, 3, &all, Some(500.0), 4);
        let of = |feature| found.iter().filter(|b| b.feature == feature).map(|b| (b.low, b.high)).collect::<Vec<_>>();
        assert_eq!(of(0).len(), 4);
        for (bin, wanted) in of(0).iter().zip([0.0, 0.25, 0.5, 0.75]) {
            assert!((bin.0 - wanted).abs() < 0.002 && (bin.1 - wanted - 0.25).abs() < 0.002, "{bin:?}");
        }
        // Equal quantiles are one edge: the first three are 0, and the last is clipped.
        assert_eq!((of(1), of(2)), (vec![], vec![]));
        assert_eq!(bins(&x, 3, &all, None, 20).iter().filter(|b| b.feature == 1).count(), 2);
        // Rows that are not given do not count.
        let part: Vec<usize> = (0..100).collect();
        assert!(bins(&x, 3, &part, None, 4).iter().all(|b| b.high < 0.1 || b.feature == 1));
        assert!(bins(&x, 3, &[], None, 4).is_empty());
    }

    #[test]
    fn many_features_have_fewer_bins_or_none() {
        for (width, wanted) in [(60, 8 * 60), (100, 5 * 100), (256, 512), (257, 0), (784, 0)] {
            let x: Vec<f32> = (0..100 * width).map(|i| (i as f32 * 0.7).sin()).collect();
            let found = bins(&x, width, &(0..100).collect::<Vec<_>>(), None, 8);
            assert_eq!(found.len(), wanted, "{width}");
        }
    }

    #[test]
    fn the_last_two_members_are_for_the_class() {
        let (x, all) = (rows(50), (0..50).collect::<Vec<_>>());
        let fit = |settings: &Settings| Graphs::fit(graph(3, settings), &x, &all, settings);
        let best = Preset::Best.settings();
        let graphs = fit(&best);
        let role = |for_class, binned| Role { for_class, binned };
        let wanted = [role(false, false), role(false, false), role(true, false), role(true, true)];
        assert_eq!([0, 4, 5, 6].map(|m| graphs.role(m, &best)), wanted);
        assert!(graphs.get(true).widths().unwrap()[2] > 3);
        assert_eq!(graphs.get(false), &graph(3, &best));
        let nu = |member| match member_settings(member, &best).head {
            HeadConfig::DeepMcdd(config) => config.nu,
            _ => f64::NAN,
        };
        assert_eq!([0, 4, 5, 6].map(nu), [1.0, 1.0, NU, NU]);
        let select = |member| member_settings(member, &best).select;
        assert_eq!([4, 5].map(select), [Select::Last, Select::Best]);
        let softmax = Settings::builder().method("softmax").build().unwrap();
        let three = Settings { members: 3, ..best.clone() };
        let off = [Settings { bins: None, ..best }, Preset::Fast.settings(), Preset::Paper.settings(), softmax, three];
        for settings in off {
            assert!(fit(&settings).binned.is_none() && !is_for_class(settings.members - 1, &settings));
        }
    }
}
