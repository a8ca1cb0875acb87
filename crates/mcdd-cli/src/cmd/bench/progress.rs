//! The progress of a benchmark, with the means so far.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use mcdd::protocol::results::{Cell, Results};
use mcdd::protocol::{GridCallback, Method};
use mcdd::train::Epoch;

use crate::ui;

/// Prints the number of computed cells and the means so far.
pub(super) struct Progress {
    quiet: bool,
    shown: Mutex<Option<Shown>>,
    noticed: AtomicBool,
}

struct Shown {
    bar: Option<ProgressBar>,
    /// Sum and number of AUROCs.
    means: BTreeMap<(usize, String), (f64, usize)>,
    /// Cells computed in this run.
    done: usize,
    total: usize,
    before: usize,
    start: Instant,
    printed: Instant,
}

impl Shown {
    fn take(&mut self, cell: &Cell) {
        if let Some(m) = &cell.measured {
            let mean = self.means.entry(Method::rank(&cell.method)).or_default();
            *mean = (mean.0 + m.detection.auroc, mean.1 + 1);
        }
    }

    /// Four methods per line.
    fn means(&self, separator: &str) -> String {
        let all: Vec<String> = self
            .means
            .iter()
            .map(|((_, name), (sum, n))| format!("{} {:.2}", ui::plain(name), 100.0 * sum / *n as f64))
            .collect();
        let lines: Vec<String> = all.chunks(4).map(|c| c.join(", ")).collect();
        lines.join(separator)
    }
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Progress {
        Progress { quiet, shown: Mutex::new(None), noticed: AtomicBool::new(false) }
    }

    pub(super) fn finish(&self) {
        if let Ok(Some(Shown { bar: Some(bar), .. })) = self.shown.lock().as_deref() {
            bar.finish_and_clear();
        }
    }
}

impl GridCallback for Progress {
    fn notices(&self, notices: &[String]) {
        // They are almost the same for every cell.
        if !self.quiet && !self.noticed.swap(true, Ordering::Relaxed) {
            notices.iter().for_each(|n| ui::note(n));
        }
    }

    fn begin(&self, done: usize, total: usize, results: &Results) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let bar = (!self.quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(total as u64).with_position(done as u64);
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} cells, {eta} left\n{msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        let now = Instant::now();
        let mut new = Shown { bar, means: BTreeMap::new(), done: 0, total, before: done, start: now, printed: now };
        results.cells().for_each(|c| new.take(c));
        if !self.quiet && done > 0 && done < total {
            ui::note(&format!("resuming: {done} of {total} cells are done"));
        }
        *shown = Some(new);
    }

    fn epoch(&self, method: &str, e: &Epoch, epochs: usize) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let Some(s) = shown.as_mut().filter(|_| !self.quiet) else { return };
        let accuracy =
            e.validation_accuracy.map_or(String::new(), |a| format!(", validation accuracy {}%", ui::percent(a)));
        let method = ui::plain(method);
        let text =
            format!("{method}: epoch {} of {epochs}, validation loss {:.4}{accuracy}", e.epoch + 1, e.validation_loss);
        if let Some(bar) = &s.bar {
            bar.set_message(text);
        } else if e.epoch + 1 == epochs || s.printed.elapsed().as_secs() >= 30 {
            let _ = writeln!(io::stderr(), "{text}");
            s.printed = Instant::now();
        }
    }

    fn done(&self, cell: &Cell) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let Some(s) = shown.as_mut().filter(|_| !self.quiet) else { return };
        s.take(cell);
        s.done += 1;
        if let Some(bar) = &s.bar {
            bar.set_message(format!("mean AUROC of cells so far: {}", s.means("\n  ")));
            bar.inc(1);
            return;
        }
        let all = s.before + s.done;
        let tenth = all * 10 / s.total != (all - 1) * 10 / s.total;
        if s.done == 1 || tenth || s.printed.elapsed().as_secs() >= 30 {
            let left = s.start.elapsed().as_secs_f64() / s.done as f64 * s.total.saturating_sub(all) as f64;
            let means = s.means(", ");
            let _ = writeln!(
                io::stderr(),
                "{all} of {} cells, {left:.0} s left; mean AUROC of cells so far: {means}",
                s.total
            );
            s.printed = Instant::now();
        }
    }

    fn stop(&self) -> bool {
        ui::stopped()
    }
}
