//! The state of a monitor in a small file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::watch::{Monitor, name_of};
use crate::error::{Error, Result};
use crate::files::{read_at_most, write_beside};
use crate::model::Calibration;

/// The version of the file.
const VERSION: u32 = 1;
/// The largest file that is read.
const MOST_BYTES: u64 = 1 << 26;

#[derive(Serialize, Deserialize)]
struct File<M> {
    mcdd_monitor: u32,
    #[serde(flatten)]
    monitor: M,
}

impl Monitor {
    /// Writes the state to a file, as JSON. A temporary file is renamed at the end, so a crash leaves the old file or the new one.
    ///
    /// # Errors
    /// If writing fails.
    pub fn save(&self, path: &Path) -> Result<()> {
        let file = File { mcdd_monitor: VERSION, monitor: self };
        let text = serde_json::to_string(&file).map_err(|e| Error::format(e.to_string()))?;
        write_beside(path, |to| to.write_all(text.as_bytes()).map_err(|e| Error::io(e, path)))
    }

    /// Reads a state for the model with these calibration rows. Everything in the file is checked.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or belongs to another model.
    pub fn load(path: &Path, calibration: &Calibration) -> Result<Monitor> {
        Self::from_json(&read_at_most(path, MOST_BYTES)?, calibration).map_err(|e| e.at_file(path))
    }

    fn from_json(text: &[u8], calibration: &Calibration) -> Result<Monitor> {
        let other = "give another file, or remove this one to begin again";
        let file: File<Monitor> = serde_json::from_slice(text)
            .map_err(|e| Error::format(format!("not the state of a monitor: {e}")).hint(other))?;
        if file.mcdd_monitor != VERSION {
            let version = file.mcdd_monitor;
            return Err(Error::format(format!("the state has version {version}, not {VERSION}")).hint(other));
        }
        let mut monitor = file.monitor;
        if monitor.calibration != name_of(calibration) {
            return Err(Error::setting("the state belongs to another model").hint(other));
        }
        if !(monitor.alpha > 0.0 && monitor.alpha < 1.0) || monitor.rows >= 1 << 50 || monitor.low > monitor.rows {
            return Err(Error::format("the state is damaged").hint(other));
        }
        monitor.history.validate(monitor.rows)?;
        for watched in monitor.parts.iter_mut().map(|(_, w)| w).chain([&mut monitor.score]) {
            watched.cells.validate()?;
            watched.evidence.prepare(watched.cells.gaps())?;
        }
        Ok(monitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_and_foreign_states_are_refused() {
        let calibration = Calibration::new((0..50).map(f64::from).collect()).unwrap();
        let mut monitor = Monitor::new(&calibration, 0.01).unwrap();
        (0..40).for_each(|i| monitor.add(f64::from(i)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        monitor.save(&path).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();
        let read = |text: &str, calibration: &Calibration| {
            std::fs::write(&path, text).unwrap();
            Monitor::load(&path, calibration)
        };
        assert!(read(&good, &calibration).is_ok());
        let other = Calibration::new((1..51).map(f64::from).collect()).unwrap();
        let e = read(&good, &other).unwrap_err();
        assert!(e.to_string().contains("another model") && e.hint_text().is_some(), "{e}");
        for (from, to) in [
            ("\"mcdd_monitor\":1", "\"mcdd_monitor\":2"),
            ("\"rows\":40,\"low\"", "\"rows\":41,\"low\""),
            ("\"alpha\":0.01", "\"alpha\":7"),
            ("\"seen\":[", "\"seen\":[3,"),
            ("\"gaps\":[", "\"gaps\":[0,"),
            ("\"capital\":[", "\"capital\":[-1,"),
        ] {
            assert!(good.contains(from), "{from} in {good}");
            assert!(read(&good.replace(from, to), &calibration).is_err(), "{to}");
        }
        // What is counted does not overflow.
        let last = good.replace("\"restarts\":0", "\"restarts\":18446744073709551615");
        assert_ne!(last, good);
        let mut last = read(&last, &calibration).unwrap();
        last.restart();
        assert_eq!(last.about().restarts, u64::MAX);
        for end in (0..good.len() - 1).step_by(17) {
            assert!(Monitor::from_json(&good.as_bytes()[..end], &calibration).is_err(), "{end}");
        }
        assert!(Monitor::new(&calibration, 0.0).is_err() && Monitor::new(&calibration, 1.0).is_err());
        let few = Calibration::new(vec![1.0; 8]).unwrap();
        assert!(Monitor::new(&few, 0.01).is_err());
    }
}
