//! The projection of latent vectors to a plane.

use crate::stats::eigen::Eigen;

/// The largest number of latent features in the PCA; of more, those with the largest variance.
const MOST: usize = 400;

/// The plane with the largest variance of known rows, or the latent space itself if it has two features.
pub(super) struct Projection {
    /// None if the two features are the plane.
    axes: Option<Axes>,
    latent: usize,
    /// The fraction of explained variance; none without a projection.
    pub explained: Option<f64>,
}

/// The features in use, their means, and two directions.
struct Axes {
    features: Vec<usize>,
    means: Vec<f64>,
    along: [Vec<f64>; 2],
}

/// A latent feature, clamped to finite numbers.
fn number(v: f32) -> f64 {
    if v.is_nan() { 0.0 } else { f64::from(v).clamp(-1e30, 1e30) }
}

impl Projection {
    /// Of latent vectors by rows.
    pub(super) fn of(z: &[f32], latent: usize) -> Projection {
        if latent <= 2 || z.is_empty() {
            return Projection { axes: None, latent, explained: None };
        }
        let n = (z.len() / latent) as f64;
        let mut means = vec![0.0; latent];
        z.chunks_exact(latent).for_each(|row| means.iter_mut().zip(row).for_each(|(m, &v)| *m += number(v) / n));
        let mut variances = vec![0.0; latent];
        for row in z.chunks_exact(latent) {
            variances.iter_mut().zip(row.iter().zip(&means)).for_each(|(s, (&v, m))| *s += (number(v) - m).powi(2) / n);
        }
        let mut features: Vec<usize> = (0..latent).collect();
        features.sort_by(|&a, &b| variances[b].total_cmp(&variances[a]));
        features.truncate(MOST);
        features.sort_unstable();
        let d = features.len();
        let mut covariance = vec![0.0; d * d];
        let mut centered = vec![0.0; d];
        for row in z.chunks_exact(latent) {
            centered.iter_mut().zip(&features).for_each(|(c, &f)| *c = number(row[f]) - means[f]);
            for (i, a) in centered.iter().enumerate() {
                covariance[i * d..(i + 1) * d].iter_mut().zip(&centered).for_each(|(s, b)| *s += a * b / n);
            }
        }
        let eigen = Eigen::of(&covariance, d);
        let total: f64 = variances.iter().sum();
        let seen: f64 = eigen.values.iter().take(2).sum();
        let along = [eigen.vector(0).to_vec(), eigen.vector(1).to_vec()];
        let means = features.iter().map(|&f| means[f]).collect();
        let explained = (total > 0.0).then(|| (seen / total).clamp(0.0, 1.0));
        Projection { axes: Some(Axes { features, means, along }), latent, explained }
    }

    /// The position of a latent vector.
    pub(super) fn place(&self, z: &[f32]) -> [f64; 2] {
        match &self.axes {
            None => [0, 1].map(|i| z.get(i).map_or(0.0, |&v| number(v))),
            Some(Axes { features, means, along }) => [0, 1].map(|i| {
                let terms = features.iter().zip(means).zip(&along[i]);
                terms.map(|((&f, m), a)| (number(z[f]) - m) * a).sum()
            }),
        }
    }

    /// The names of the axes.
    pub(super) fn names(&self) -> [String; 2] {
        match self.axes {
            None => ["z₁", "z₂"].map(Into::into),
            Some(_) => ["first component", "second component"].map(Into::into),
        }
    }

    /// A description.
    pub(super) fn caption(&self) -> String {
        match (&self.axes, self.explained) {
            (None, _) => "The latent space of the first network".into(),
            (Some(_), explained) => format!(
                "The latent space of the first network, {} features, projected on the two directions with the largest variance of the drawn known \
                 rows (PCA{}); distances in the plane are smaller than the true ones",
                self.latent,
                explained.map_or(String::new(), |s| format!(": {:.0}% of their variance", 100.0 * s))
            ),
        }
    }
}

/// The Euclidean distance of two latent vectors.
pub(super) fn distance(a: &[f32], b: &[f32]) -> f64 {
    libm::sqrt(a.iter().zip(b).map(|(&a, &b)| (number(a) - number(b)).powi(2)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    #[test]
    fn the_plane_has_the_largest_variance() {
        let mut random = Stream::new(2, "plane");
        // Two long directions within seven, one at an angle.
        let z: Vec<f32> = (0..500)
            .flat_map(|_| {
                let (a, b) = (9.0 * random.normal(), 5.0 * random.normal());
                let mut row = [0.0f32; 7].map(|_| (0.1 * random.normal()) as f32);
                row[1] += (0.6 * a) as f32;
                row[4] += (0.8 * a) as f32;
                row[6] -= b as f32;
                row
            })
            .collect();
        let p = Projection::of(&z, 7);
        assert!(p.explained.unwrap() > 0.99);
        let rows: Vec<&[f32]> = z.chunks_exact(7).collect();
        for pair in rows.windows(2) {
            let (a, b) = (p.place(pair[0]), p.place(pair[1]));
            let flat = (a[0] - b[0]).hypot(a[1] - b[1]);
            assert!(flat <= distance(pair[0], pair[1]) + 1e-6 && flat > distance(pair[0], pair[1]) - 1.5);
        }
        assert!(p.place(&[0.0, 6.0, 0.0, 0.0, 8.0, 0.0, 0.0])[0] > 9.0);
    }

    #[test]
    fn unusual_latents_are_placed() {
        assert_eq!(Projection::of(&[1.0, 2.0], 2).place(&[3.0, 4.0]), [3.0, 4.0]);
        assert_eq!(Projection::of(&[1.0], 1).place(&[3.0]), [3.0, 0.0]);
        let wide = Projection::of(&vec![f32::MAX; 3 * 1000], 1000);
        assert!(wide.place(&vec![f32::NAN; 1000]).iter().all(|v| v.is_finite()));
    }
}
