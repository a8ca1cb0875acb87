//! What goes to stderr: errors, notices and progress.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use mcdd::train::{Epoch, Watch};

fn colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn say(colour_code: &str, head: &str, text: &str) {
    let line =
        if colour() { format!("\x1b[{colour_code}m{head}:\x1b[0m {text}\n") } else { format!("{head}: {text}\n") };
    // Where nobody listens there is nobody to tell.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Prints an error and, as its last line, what to do about it.
pub fn error(error: &anyhow::Error) {
    say("1;31", "error", &plain(&error.to_string()));
    let hint = error.downcast_ref::<mcdd::Error>().and_then(mcdd::Error::hint_text);
    say("1;36", "hint", hint.unwrap_or("mcdd --help explains the commands, mcdd COMMAND --help their options"));
}

/// Something that the user should know.
pub fn warning(text: &str) {
    say("1;33", "warning", &plain(text));
}

/// Something that was done.
pub fn note(text: &str) {
    say("1;34", "note", &plain(text));
}

/// Names stdout in an error of writing to it.
pub fn on_stdout(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<io::Error>() {
        Ok(e) => mcdd::Error::io(e, std::path::Path::new("standard output")).into(),
        Err(other) => other,
    }
}

/// Writes to stdout.
pub fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().lock().write_all(text.as_bytes()).map_err(|e| on_stdout(e.into()))
}

/// Text from a file without the characters that a terminal obeys.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Whether an error is only that the reader of our output has gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|e| e.downcast_ref::<io::Error>());
    io.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

static STOP: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C asks training to stop; a second one ends the program.
pub fn catch_interrupts() {
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    });
}

/// Shows training go by: a bar on a terminal, else a line now and then.
pub struct Progress {
    bar: Option<ProgressBar>,
    total: usize,
    members: usize,
    lines: Option<Mutex<Lines>>,
}

struct Lines {
    done: usize,
    said: Option<Instant>,
    start: Instant,
}

impl Progress {
    /// For so many members of so many epochs.
    pub fn new(members: usize, epochs: usize, quiet: bool) -> Progress {
        let total = members * epochs;
        let terminal = io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let bar = ProgressBar::new(total as u64);
            let plain = "{bar:30} {pos}/{len} epochs  {msg}  {eta} left";
            let style = ProgressStyle::with_template(&if colour() {
                plain.replace("bar:30", "bar:30.cyan")
            } else {
                plain.into()
            });
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        let lines = (!quiet && !terminal).then(|| Mutex::new(Lines { done: 0, said: None, start: Instant::now() }));
        Progress { bar, total, members, lines }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Watch for Progress {
    fn epoch(&self, member: usize, e: &Epoch) {
        let accuracy = e.held_out_accuracy.map_or("n/a".into(), |a| format!("{}%", percent(a)));
        let text = format!("loss {:.4}, held-out loss {:.4}, held-out accuracy {accuracy}", e.loss, e.held_out_loss);
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.inc(1);
            return;
        }
        let Some(lines) = &self.lines else { return };
        let Ok(mut lines) = lines.lock() else { return };
        lines.done += 1;
        // The first, the last, every tenth part, and one every ten seconds.
        let tenth = lines.done * 10 / self.total != (lines.done - 1) * 10 / self.total;
        if lines.done == 1 || tenth || lines.said.is_some_and(|s| s.elapsed().as_secs() >= 10) {
            let left = lines.start.elapsed().as_secs_f64() / lines.done as f64 * (self.total - lines.done) as f64;
            let who = if self.members > 1 { format!("member {}, ", member + 1) } else { String::new() };
            let _ = writeln!(io::stderr(), "{who}epoch {}: {text}, {left:.0} s left", e.epoch + 1);
            lines.said = Some(Instant::now());
        }
    }

    fn stop(&self) -> bool {
        STOP.load(Ordering::Relaxed)
    }
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}
