//! What goes to stderr: errors, notices and progress.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use mcdd::train::{Callback, Epoch};

fn color() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn say(color_code: &str, head: &str, text: &str) {
    let line = if color() { format!("\x1b[{color_code}m{head}:\x1b[0m {text}\n") } else { format!("{head}: {text}\n") };
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

/// A name or a cell in a table of text: without control characters, and cut after `max` characters.
pub fn short(text: &str, max: usize) -> String {
    let mut out: String = plain(text).chars().take(max).collect();
    if text.chars().nth(max).is_some() {
        out.push('…');
    }
    out
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

/// Whether Ctrl-C was pressed.
pub fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Shows training go by: a bar on a terminal, else a line now and then.
pub struct Progress {
    quiet: bool,
    shown: Mutex<Option<Shown>>,
}

/// Training that has begun.
struct Shown {
    bar: Option<ProgressBar>,
    members: usize,
    total: usize,
    done: usize,
    said: Instant,
    start: Instant,
}

impl Progress {
    /// Shows nothing before training begins, and nothing at all if it should be quiet.
    pub fn new(quiet: bool) -> Progress {
        Progress { quiet, shown: Mutex::new(None) }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Ok(Some(Shown { bar: Some(bar), .. })) = self.shown.lock().as_deref() {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: usize, members: usize) -> ProgressBar {
    let bar = ProgressBar::new(total as u64);
    let networks = if members > 1 { format!(" of {members} networks") } else { String::new() };
    let plain = format!("{{bar:30}} {{pos}}/{{len}} epochs{networks}  {{msg}}  {{eta}} left");
    let template = if color() { plain.replace("bar:30", "bar:30.cyan") } else { plain };
    bar.set_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A bar for a file that comes in, where stderr is a terminal.
pub fn bytes_bar(name: &str) -> Option<ProgressBar> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::no_length();
    let plain = "{bar:30} {bytes}/{total_bytes}  {msg}  {bytes_per_sec}  {eta} left";
    let template = if color() { plain.replace("bar:30", "bar:30.cyan") } else { plain.into() };
    bar.set_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(name.to_owned());
    Some(bar)
}

impl Callback for Progress {
    fn notices(&self, notices: &[String]) {
        if !self.quiet {
            notices.iter().for_each(|n| note(n));
        }
    }

    fn begin(&self, members: usize, epochs: usize) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let total = members * epochs;
        let bar = (!self.quiet && io::stderr().is_terminal()).then(|| bar(total, members));
        let now = Instant::now();
        *shown = Some(Shown { bar, members, total, done: 0, said: now, start: now });
    }

    fn epoch(&self, member: usize, e: &Epoch) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let Some(s) = shown.as_mut().filter(|_| !self.quiet) else { return };
        let accuracy = e.validation_accuracy.map_or("n/a".into(), |a| format!("{}%", percent(a)));
        let text = format!("loss {:.4}, held-out loss {:.4}, held-out accuracy {accuracy}", e.loss, e.validation_loss);
        s.done += 1;
        if let Some(bar) = &s.bar {
            bar.set_message(text);
            bar.inc(1);
            return;
        }
        // The first, the last, every tenth part, and one every ten seconds.
        let tenth = s.done * 10 / s.total != (s.done - 1) * 10 / s.total;
        if s.done == 1 || tenth || s.said.elapsed().as_secs() >= 10 {
            let left = s.start.elapsed().as_secs_f64() / s.done as f64 * (s.total - s.done.min(s.total)) as f64;
            let who = if s.members > 1 { format!("network {} of {}, ", member + 1, s.members) } else { String::new() };
            let epochs = s.total / s.members;
            let _ = writeln!(io::stderr(), "{who}epoch {} of {epochs}: {text}, {left:.0} s left", e.epoch + 1);
            s.said = Instant::now();
        }
    }

    fn stop(&self) -> bool {
        stopped()
    }
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}
