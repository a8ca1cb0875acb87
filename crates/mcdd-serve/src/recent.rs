//! Rows and unknown rows of the last hour, minute by minute.

use std::time::{Duration, Instant};

const MINUTES: usize = 60;

/// Counts of the last hour.
pub(crate) struct Recent {
    began: Instant,
    /// The minute that the last count belongs to, since the beginning.
    minute: u64,
    counts: [(u64, u64); MINUTES],
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { began: Instant::now(), minute: 0, counts: [(0, 0); MINUTES] }
    }
}

impl Recent {
    pub(crate) fn add(&mut self, rows: u64, unknown: u64) {
        self.add_at(self.began.elapsed(), rows, unknown);
    }

    /// Rows and unknown rows of the last hour.
    pub(crate) fn sums(&mut self) -> (u64, u64) {
        self.forget(self.began.elapsed());
        self.counts.iter().fold((0, 0), |(a, b), (rows, unknown)| (a + rows, b + unknown))
    }

    /// Rows and unknown rows of each of the last 60 minutes, the current one last.
    pub(crate) fn minutes(&mut self) -> Vec<(u64, u64)> {
        self.forget(self.began.elapsed());
        let last = self.minute as usize % MINUTES;
        (1..=MINUTES).map(|i| self.counts[(last + i) % MINUTES]).collect()
    }

    fn add_at(&mut self, now: Duration, rows: u64, unknown: u64) {
        self.forget(now);
        let at = &mut self.counts[self.minute as usize % MINUTES];
        *at = (at.0 + rows, at.1 + unknown);
    }

    /// Empties the minutes that have passed.
    fn forget(&mut self, now: Duration) {
        let minute = now.as_secs() / 60;
        let passed = (minute - self.minute).min(MINUTES as u64);
        (1..=passed).for_each(|i| self.counts[((minute + 1 - i) % MINUTES as u64) as usize] = (0, 0));
        self.minute = minute;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_remembered() {
        let mut recent = Recent::default();
        let sum = |r: &Recent| r.counts.iter().map(|c| c.0).sum::<u64>();
        let minute = |m: u64| Duration::from_secs(60 * m);
        recent.add_at(minute(0), 5, 1);
        recent.add_at(minute(59), 7, 0);
        assert_eq!(sum(&recent), 12);
        recent.add_at(minute(60), 1, 0);
        assert_eq!(sum(&recent), 8);
        assert_eq!(recent.counts[60 % MINUTES], (1, 0));
        recent.add_at(minute(500), 2, 2);
        assert_eq!(sum(&recent), 2);
        let mut recent = Recent::default();
        recent.add(5, 1);
        assert_eq!((recent.minutes().len(), recent.minutes()[59], recent.sums()), (60, (5, 1), (5, 1)));
    }
}
