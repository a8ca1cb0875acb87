//! `mcdd figure`: one subcommand per figure.

mod latent;
mod results;
mod samples;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use mcdd::files::write_beside;
use mcdd::report::figure::{Figure, Theme};

use crate::places::Places;
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd figure latent flowers.csv --label species --ood tulip -o planes    planes.svg and planes.png
  mcdd figure nu-latent flowers.csv --label species --ood tulip
  mcdd figure samples flowers.mcdd test.csv --rows 3 --theme dark
  mcdd figure bars gas shuttle            from folders of mcdd bench
  mcdd figure nu gas-nu                   from mcdd bench gas --methods nu -o gas-nu";

/// Draw figures of methods, models and benchmarks as SVG (for light and dark pages) and as PNG
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    figure: Name,
}

#[derive(Subcommand, Clone, Debug)]
enum Name {
    Latent(latent::Args),
    NuLatent(latent::NuArgs),
    Samples(samples::Args),
    Bars(results::BarsArgs),
    Nu(results::NuArgs),
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.figure {
        Name::Latent(args) => latent::run(args),
        Name::NuLatent(args) => latent::run_nu(args),
        Name::Samples(args) => samples::run(args),
        Name::Bars(args) => results::bars(args),
        Name::Nu(args) => results::nu(args),
    }
}

/// The files of a figure.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// Write NAME.svg and NAME.png [default: the name of the figure]
    #[arg(short, long, value_name = "NAME")]
    output: Option<PathBuf>,

    /// Background of the PNG; the SVG follows its viewer
    #[arg(long, value_enum, default_value = "light")]
    theme: ThemeName,

    /// Print only errors
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ThemeName {
    Light,
    Dark,
}

/// The common name of both files, if one of them or neither extension is given.
fn base(name: &Path) -> PathBuf {
    let ends = name.extension().is_some_and(|e| e == "svg" || e == "png");
    if ends { name.with_extension("") } else { name.to_owned() }
}

impl Output {
    /// The two files.
    fn files(&self, default: &str) -> [PathBuf; 2] {
        let name = self.output.as_deref().map_or_else(|| default.into(), base);
        [".svg", ".png"].map(|end| {
            let mut file = name.clone().into_os_string();
            file.push(end);
            file.into()
        })
    }

    /// For one of several figures: the given name with the name of the figure appended.
    fn named(&self, figure: &str) -> Output {
        let output = self.output.as_ref().map(|o| {
            let mut name = base(o).into_os_string();
            name.push(format!("-{figure}"));
            name.into()
        });
        Output { output, ..self.clone() }
    }

    /// Checks before long work that the files can be written.
    ///
    /// # Errors
    /// If the folder does not exist, or a file is one of the inputs.
    pub fn check<'a>(&self, default: &str, inputs: impl IntoIterator<Item = &'a Path>) -> mcdd::Result<()> {
        let inputs: Vec<&Path> = inputs.into_iter().collect();
        self.files(default).iter().try_for_each(|f| Places::reading(inputs.iter().copied()).file(f, "output"))
    }

    /// Writes the figure.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, default: &str, figure: &Figure) -> anyhow::Result<ExitCode> {
        let theme = match self.theme {
            ThemeName::Light => Theme::Light,
            ThemeName::Dark => Theme::Dark,
        };
        let [svg, png] = self.files(default);
        let put = |path: &Path, bytes: &[u8]| {
            write_beside(path, |to| to.write_all(bytes).map_err(|e| mcdd::Error::io(e, path)))
        };
        put(&svg, figure.svg().as_bytes())?;
        put(&png, &figure.png(theme)?)?;
        if !self.quiet {
            ui::note(&format!("wrote {} and {}", svg.display(), png.display()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
