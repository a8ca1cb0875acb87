//! Output on stderr: errors, notes and progress.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
pub use mcdd::error::plain;
use mcdd::error::{is_harmful, plain_lines, rename_settings};
use mcdd::train::{Callback, Epoch};

fn color() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Prints a line, or several; what a terminal would obey was replaced.
fn print_line(color_code: &str, head: &str, text: &str) {
    let text = plain_lines(text);
    let line = if color() { format!("\x1b[{color_code}m{head}:\x1b[0m {text}\n") } else { format!("{head}: {text}\n") };
    // A closed stderr is not an error.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// The options of a command: the library's messages name settings, the command prints the options that set them.
pub struct Options(Vec<Name>);

/// An argument: its id, which is the setting's name in the library, and its long option, if it is not positional.
struct Name {
    id: String,
    long: Option<String>,
}

impl Options {
    /// The options of a command or a subcommand.
    pub fn of(command: &clap::Command) -> Options {
        let name = |a: &clap::Arg| Name { id: a.get_id().to_string(), long: a.get_long().map(str::to_owned) };
        Options(command.get_arguments().map(name).collect())
    }

    /// `--weight-decay` for `weight_decay`, `--method softmax` for `method=softmax`, `data` for a positional argument;
    /// none for what is not an argument of the command.
    pub fn rename(&self, setting: &str) -> Option<String> {
        let (name, value) = setting.split_once('=').map_or((setting, None), |(name, value)| (name, Some(value)));
        let by_long = || self.0.iter().find(|n| n.long.as_deref() == Some(&name.replace('_', "-")));
        match &self.0.iter().find(|n| n.id == name).or_else(by_long)?.long {
            Some(long) => Some(value.map_or(format!("--{long}"), |value| format!("--{long} {value}"))),
            None => Some(setting.to_owned()),
        }
    }
}

static OPTIONS: OnceLock<Options> = OnceLock::new();

/// Names settings by the options of this command from now on.
pub fn name_settings_by(command: &clap::Command) {
    // Only the first command of a process counts.
    let _ = OPTIONS.set(Options::of(command));
}

fn rename(setting: &str) -> Option<String> {
    OPTIONS.get()?.rename(setting)
}

/// A message of the library, with settings named by the options of the command.
pub fn with_options(text: &str) -> String {
    rename_settings(text, rename)
}

/// How hints of the library refer to what `mcdd methods` prints.
const LIST_OF_METHODS: &str = "see the list of methods";

/// Prints an error and, as the last line, its hint.
pub fn error(error: &anyhow::Error) {
    let ours = error.downcast_ref::<mcdd::Error>();
    let text = ours.map_or_else(|| error.to_string(), |e| e.message_with(rename));
    // Only an excerpt of a file has several lines.
    let lines: Vec<String> = text.lines().take(MOST_LINES).map(|line| cut(line, LONGEST)).collect();
    print_line("1;31", "error", &lines.join("\n  "));
    let hint = ours.and_then(|e| e.hint_with(rename)).map(|hint| hint.replace(LIST_OF_METHODS, "see mcdd methods"));
    let usage = "see mcdd --help for the commands, mcdd COMMAND --help for their options";
    print_line("1;36", "hint", &hint.map_or_else(|| usage.into(), |hint| cut(&hint, LONGEST)));
}

/// The longest message, in characters: names in it may have any length.
pub const LONGEST: usize = 2000;
/// The most lines of an error.
const MOST_LINES: usize = 100;

/// Prints a warning.
pub fn warning(text: &str) {
    print_line("1;33", "warning", &short(&rename_settings(text, rename), LONGEST));
}

/// Prints a note.
pub fn note(text: &str) {
    print_line("1;34", "note", &short(&rename_settings(text, rename), LONGEST));
}

/// Adds the name of stdout to an error of writing to it.
pub fn on_stdout(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<io::Error>() {
        Ok(e) => mcdd::Error::io(e, std::path::Path::new("standard output")).into(),
        Err(other) => other,
    }
}

/// Writes text for people to stdout, without what a terminal would obey.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_data(&plain_lines(text))
}

/// Writes JSON to stdout. What a terminal would obey is escaped, which has the same meaning.
pub fn print_json(json: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = String::new();
    for c in (serde_json::to_string_pretty(json)? + "\n").chars() {
        match c {
            '\n' => text.push(c),
            c if is_harmful(c) => c.encode_utf16(&mut [0; 2]).iter().for_each(|u| text += &format!("\\u{u:04x}")),
            c => text.push(c),
        }
    }
    print_data(&text)
}

/// Writes to stdout as it is.
pub fn print_data(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| on_stdout(e.into()))
}

/// A name or a cell in a table of text: without control characters, and cut after `max` characters.
pub fn short(text: &str, max: usize) -> String {
    cut(&plain(text), max)
}

fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Whether an error only means that the reader of the output has closed it.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|e| e.downcast_ref::<io::Error>());
    io.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

static STOP: AtomicBool = AtomicBool::new(false);

/// Makes Ctrl-C stop training after the current step; a second Ctrl-C ends the program.
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

/// Shows the progress of training: a bar on a terminal, otherwise a line from time to time.
pub struct Progress {
    quiet: bool,
    /// What an example is called.
    item: &'static str,
    shown: Mutex<Option<Shown>>,
}

/// The state of a training run that has started.
struct Shown {
    bar: Option<ProgressBar>,
    members: usize,
    /// Epochs of all members, and those that are done.
    total: usize,
    done: usize,
    /// Rows of an epoch, and those that were trained on since the start.
    rows: usize,
    seen: usize,
    /// About the last epoch.
    last: String,
    printed: Instant,
    start: Instant,
}

impl Shown {
    /// Rows a second, and the seconds that are left; none before the first step.
    fn speed(&self) -> Option<(f64, f64)> {
        let rate = self.seen as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        // Of epochs that have begun, what was seen after the last one that is done.
        let begun = self.seen % self.rows.max(1);
        let left = (self.total.saturating_sub(self.done) * self.rows).saturating_sub(begun);
        (self.seen > 0).then(|| (rate, left as f64 / rate))
    }

    /// The speed and the time left, in words.
    fn pace(&self, item: &str) -> String {
        match self.speed() {
            Some((rate, left)) => {
                let digits = usize::from(rate < 10.0);
                format!(", {rate:.digits$} {item}s a second, {} left", duration(left))
            }
            // A method that does not report its steps.
            None => {
                let each = self.start.elapsed().as_secs_f64() / self.done.max(1) as f64;
                format!(", {} left", duration(each * self.total.saturating_sub(self.done) as f64))
            }
        }
    }
}

/// `40 s`, `26 min`, `3.2 h`.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

impl Progress {
    /// Prints nothing before training starts, and nothing at all if `quiet`. `item` is what an example is called.
    pub fn new(quiet: bool, item: &'static str) -> Progress {
        Progress { quiet, item, shown: Mutex::new(None) }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Ok(Some(Shown { bar: Some(bar), .. })) = self.shown.lock().as_deref() {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: usize) -> ProgressBar {
    let bar = ProgressBar::new(total as u64);
    let plain = "{bar:30} {msg}".to_owned();
    let template = if color() { plain.replace("bar:30", "bar:30.cyan") } else { plain };
    bar.set_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A bar for a download; none if stderr is not a terminal.
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

    fn begin(&self, members: usize, epochs: usize, rows: usize) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let total = members * epochs;
        let bar = (!self.quiet && io::stderr().is_terminal()).then(|| bar(total * rows));
        let (printed, start) = (Instant::now(), Instant::now());
        *shown = Some(Shown { bar, members, total, done: 0, rows, seen: 0, last: String::new(), printed, start });
    }

    fn step(&self, rows: usize) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let Some(s) = shown.as_mut().filter(|_| !self.quiet) else { return };
        s.seen += rows;
        if let Some(bar) = &s.bar {
            if s.printed.elapsed().as_millis() < 100 {
                return;
            }
            s.printed = Instant::now();
            let networks = if s.members > 1 { format!(" of {} networks", s.members) } else { String::new() };
            bar.set_position((s.done * s.rows + s.seen % s.rows.max(1)) as u64);
            bar.set_message(format!("{}/{} epochs{networks}{}{}", s.done, s.total, s.last, s.pace(self.item)));
        } else if s.printed.elapsed().as_secs() >= 60 {
            let (total, part) = (s.total, 100 * (s.seen % s.rows.max(1)) / s.rows.max(1));
            let now = match s.members {
                1 => format!("epoch {} of {total}, {part}%", s.done + 1),
                members => format!("{} of {total} epochs of {members} networks", s.done),
            };
            let _ = writeln!(io::stderr(), "{now}{}", s.pace(self.item));
            s.printed = Instant::now();
        }
    }

    fn epoch(&self, member: usize, e: &Epoch) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let Some(s) = shown.as_mut().filter(|_| !self.quiet) else { return };
        let accuracy = e.validation_accuracy.map_or("n/a".into(), |a| format!("{}%", percent(a)));
        let text =
            format!("loss {:.4}, validation loss {:.4}, validation accuracy {accuracy}", e.loss, e.validation_loss);
        s.done += 1;
        if s.bar.is_some() {
            // The next step shows it.
            s.last = format!("  {text}");
            return;
        }
        // The first epoch, each tenth of the run, and every ten seconds.
        let tenth = s.done * 10 / s.total != (s.done - 1) * 10 / s.total;
        if s.done == 1 || tenth || s.printed.elapsed().as_secs() >= 10 {
            let who = if s.members > 1 { format!("network {} of {}, ", member + 1, s.members) } else { String::new() };
            let epochs = s.total / s.members;
            let _ = writeln!(io::stderr(), "{who}epoch {} of {epochs}: {text}{}", e.epoch + 1, s.pace(self.item));
            s.printed = Instant::now();
        }
    }

    fn stop(&self) -> bool {
        stopped()
    }
}

/// A fraction as a percentage.
pub fn percent(fraction: f64) -> String {
    format!("{:.2}", 100.0 * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    #[test]
    fn the_time_left_is_that_of_the_rows_left() {
        let start = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let shown = |done, seen| Shown {
            bar: None,
            members: 2,
            total: 8,
            done,
            rows: 100,
            seen,
            last: String::new(),
            printed: start,
            start,
        };
        // 250 rows in 10 seconds, 550 of 800 are left.
        let (rate, left) = shown(2, 250).speed().unwrap();
        assert!((rate - 25.0).abs() < 0.5 && (left - 22.0).abs() < 0.5, "{rate} {left}");
        // Four epochs of an earlier run: 350 are left.
        let (_, left) = shown(4, 50).speed().unwrap();
        assert!((left - 70.0).abs() < 1.0, "{left}");
        assert!(shown(2, 0).pace("row").ends_with("30 s left"), "{}", shown(2, 0).pace("row"));
        assert_eq!(shown(2, 250).pace("image"), ", 25 images a second, 22 s left");
        assert_eq!([59.6, 1560.0, 9000.0].map(duration), ["60 s", "26 min", "2.5 h"]);
    }

    #[test]
    fn settings_are_named_by_the_options_of_the_command() {
        let command = Command::new("train").args([
            Arg::new("data"),
            Arg::new("folder").long("data"),
            Arg::new("lr").long("lr"),
            Arg::new("weight_decay").long("weight-decay"),
            Arg::new("method").long("method"),
            Arg::new("place").long("data-dir"),
        ]);
        let options = Options::of(&command);
        for (setting, expected) in [
            ("lr", Some("--lr")),
            ("weight_decay", Some("--weight-decay")),
            ("method=deep-mcdd:nu=1", Some("--method deep-mcdd:nu=1")),
            // A positional argument stays a word, and comes before an option of the same name.
            ("data", Some("data")),
            ("data_dir", Some("--data-dir")),
            ("epochs", None),
        ] {
            assert_eq!(options.rename(setting).as_deref(), expected, "{setting}");
        }
        let error = mcdd::train::Settings::builder().lr(0.0).build().unwrap_err();
        assert_eq!(error.message_with(|setting| options.rename(setting)), "--lr is 0");
    }
}
