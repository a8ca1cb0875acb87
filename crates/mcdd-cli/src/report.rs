//! Reports and figures of a model, and names of files.

use std::path::{Path, PathBuf};

use mcdd::files::{check_folder, write_beside};
use mcdd::report::figure::Theme;
use mcdd::report::model::Report;

use crate::places::Places;
use crate::ui;

/// The options of a report.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Report")]
pub struct Reporting {
    /// Write a report: thresholds, curves, classes, latent space, notable rows; a single HTML file
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,

    /// Write the plots of the report into this folder, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,
}

impl Reporting {
    /// Whether a report or figures are wanted.
    pub fn wanted(&self) -> bool {
        self.report.is_some() || self.figures.is_some()
    }

    /// Checks before long work that the outputs can be written, and do not overwrite another file of the command.
    pub fn check<'a>(&'a self, places: &mut Places<'a>) -> mcdd::Result<()> {
        if let Some(page) = &self.report {
            places.file(page, "report")?;
        }
        if let Some(folder) = &self.figures {
            places.folder(folder, "figures")?;
            std::fs::create_dir_all(folder).map_err(|e| mcdd::Error::io(e, folder))?;
            check_folder(folder)?;
        }
        Ok(())
    }

    /// Writes the report and the figures that are wanted.
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

/// The command line, so that it can be run again.
pub fn command() -> String {
    let mut words = std::env::args_os().map(|a| quoted(&a.to_string_lossy()));
    words.next();
    std::iter::once("mcdd".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell, if needed.
pub fn quoted(text: &str) -> String {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-=:,+".contains(c)) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Names of paths: their last parts, if these differ.
pub fn file_names(paths: &[&Path]) -> Vec<String> {
    let short: Vec<String> = paths.iter().map(|p| file_name(p)).collect();
    let differ = short.iter().collect::<std::collections::BTreeSet<_>>().len() == short.len();
    if differ { short } else { paths.iter().map(|p| p.display().to_string()).collect() }
}

/// The last part of a path.
pub fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}
