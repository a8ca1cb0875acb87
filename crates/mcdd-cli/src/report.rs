//! Reports and figures of a model, for the commands that write them.

use std::path::{Path, PathBuf};

use mcdd::files::{check_folder, write_beside};
use mcdd::report::figure::Theme;
use mcdd::report::model::Report;

use crate::cmd::train::check_place;
use crate::ui;

/// Where a report goes.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Report")]
pub struct Reporting {
    /// Write a page to look at: thresholds, curves, classes, latent space, rows worth a look; one file, opens from disk
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,

    /// Write the plots of that page into this folder, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,
}

impl Reporting {
    /// Whether there is anything to gather.
    pub fn wanted(&self) -> bool {
        self.report.is_some() || self.figures.is_some()
    }

    /// Finds out before long work that something has no place to go, or that of another file.
    pub fn check<'a>(&self, others: impl IntoIterator<Item = &'a PathBuf>) -> mcdd::Result<()> {
        if let Some(page) = &self.report {
            check_place(page, "--report")?;
            if others.into_iter().any(|other| real(other) == real(page)) {
                return Err(mcdd::Error::setting("the report would take the place of another file of this command")
                    .at_file(page)
                    .hint("give --report another name"));
            }
        }
        if let Some(folder) = &self.figures {
            std::fs::create_dir_all(folder).map_err(|e| mcdd::Error::io(e, folder))?;
            check_folder(folder)?;
        }
        Ok(())
    }

    /// Writes what was asked for.
    pub fn write(&self, report: &Report, quiet: bool) -> mcdd::Result<()> {
        let put = |path: &Path, bytes: &[u8]| {
            write_beside(path, |to| to.write_all(bytes).map_err(|e| mcdd::Error::io(e, path)))
        };
        if let Some(path) = &self.report {
            put(path, report.page()?.as_bytes())?;
            if !quiet {
                ui::note(&format!("wrote {}; open it in a browser", path.display()));
            }
        }
        if let Some(folder) = &self.figures {
            let figures = report.figures()?;
            for (name, figure) in &figures {
                put(&folder.join(format!("{name}.svg")), figure.svg().as_bytes())?;
                put(&folder.join(format!("{name}.png")), &figure.png(Theme::Light)?)?;
            }
            if !quiet {
                let names: Vec<&str> = figures.iter().map(|(name, _)| *name).collect();
                ui::note(&format!("wrote {} to {}, as SVG and PNG", names.join(", "), folder.display()));
            }
        }
        Ok(())
    }
}

/// The command as it was typed, so that it can be typed again.
pub fn command() -> String {
    let mut words = std::env::args_os().map(|a| quoted(&a.to_string_lossy()));
    words.next();
    std::iter::once("mcdd".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// As a shell takes it.
pub fn quoted(text: &str) -> String {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-=:,+".contains(c)) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// The same for all paths to a file, be it there or not.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let there = |folder: PathBuf| path.file_name().map(|name| folder.join(name));
    let absent = || folder.canonicalize().ok().and_then(there);
    path.canonicalize().ok().or_else(absent).unwrap_or_else(|| path.to_owned())
}

/// What paths are called: their last parts, if these differ.
pub fn file_names(paths: &[&Path]) -> Vec<String> {
    let short: Vec<String> = paths.iter().map(|p| file_name(p)).collect();
    let differ = short.iter().collect::<std::collections::BTreeSet<_>>().len() == short.len();
    if differ { short } else { paths.iter().map(|p| p.display().to_string()).collect() }
}

/// The last part of a path, which is enough to know a file by.
pub fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}
