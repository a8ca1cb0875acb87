//! `mcdd figure latent` and `nu-latent`: latent spaces of networks with two latent features.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::error::count;
use mcdd::head::{HeadConfig, config};
use mcdd::model::Model;
use mcdd::protocol::Split;
use mcdd::report::figure::{LatentSpace, latent_spaces, short_number};
use mcdd::report::{Shown, latent_space, method_name};
use mcdd::train::{Preset, Run, Select, Settings};

use super::Output;
use crate::options::{self, Columns, Opened, Reading};
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd figure latent gas --ood 3                                 the paper's Figure 1
  mcdd figure latent flowers.csv --label species --ood tulip --methods deep-mcdd,deep-mcdd:nu=0.01

Each method is trained with two latent features and otherwise as published, without the class \
and without a fifth of the other rows. These test rows are drawn in the color of their class, rows \
of the class that was left out are hollow.";

/// Draw the 2-D latent spaces of methods, with one class left out of training
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Methods to compare; settings follow a name, as in deep-mcdd:nu=0.1
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "softmax,deep-ncm,soft-mcdd,deep-mcdd")]
    methods: Vec<String>,

    #[command(flatten)]
    common: Common,
}

const NU_EXAMPLES: &str = "\
Examples:
  mcdd figure nu-latent gas --ood 3
  mcdd figure nu-latent mnist --ood 7 --limit 10000 --nu 0.001,0.1,10";

/// Draw the 2-D latent spaces of Deep-MCDD for several nu, with one class left out of training
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = NU_EXAMPLES)]
pub struct NuArgs {
    /// Weights of the distance term relative to the classification term
    #[arg(long, value_name = "NU,…", value_delimiter = ',', default_value = "0.001,0.01,0.1,1")]
    nu: Vec<f64>,

    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Clone, Debug)]
struct Common {
    /// Files, or the name of a data set (see mcdd datasets)
    #[arg(required = true, value_name = "DATA")]
    data: Vec<String>,

    /// Folder of the data sets [default: MCDD_DATA]
    #[arg(long = "data", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// The class that is left out of training
    #[arg(long, value_name = "CLASS")]
    ood: String,

    /// Use at most N rows, a random sample stratified by class [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Number of epochs
    #[arg(long, value_name = "N", default_value_t = 100)]
    epochs: usize,

    /// Random seed
    #[arg(long, default_value_t = 0)]
    seed: u64,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    columns: Columns,

    /// Number of threads; does not change the result [default: all cores]
    #[arg(long, value_name = "N", help_heading = "Running", value_parser = options::thread_count)]
    threads: Option<usize>,

    #[command(flatten)]
    output: Output,
}

/// The largest number of panels.
const MOST: usize = 12;

/// Runs `latent`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let heads = args.methods.iter().map(|m| Ok((title(m), HeadConfig::parse(m.trim())?)));
    let heads = heads.collect::<mcdd::Result<Vec<_>>>()?;
    let names: Vec<&str> = heads.iter().map(|(title, _)| title.as_str()).collect();
    let title = format!("Latent spaces of {}", listed(&names));
    draw(&args.common, "latent", &title, &heads)
}

/// Runs `nu-latent`.
pub fn run_nu(args: NuArgs) -> anyhow::Result<ExitCode> {
    let heads = args.nu.iter().map(|&nu| (format!("ν = {nu}"), config::DeepMcdd { nu, ..Default::default() }.into()));
    let heads: Vec<_> = heads.collect();
    draw(&args.common, "nu-latent", "Latent spaces of Deep-MCDD for several ν", &heads)
}

/// `Deep-MCDD (nu=0.1)` for `deep-mcdd:nu=0.1`.
fn title(method: &str) -> String {
    let (name, settings) = method.trim().split_once(':').unwrap_or((method.trim(), ""));
    let name = method_name(name);
    if settings.is_empty() { name.into() } else { format!("{name} ({})", settings.replace(':', ", ")) }
}

fn listed(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

fn draw(common: &Common, name: &str, title: &str, heads: &[(String, HeadConfig)]) -> anyhow::Result<ExitCode> {
    if heads.is_empty() || heads.len() > MOST {
        let e = mcdd::Error::setting(format!("{} latent spaces cannot be drawn in one figure", heads.len()));
        return Err(e.hint(format!("give 1 to {MOST}")).into());
    }
    let quiet = common.output.quiet;
    let all = heads.iter().map(|(title, head)| {
        let base = Settings::builder()
            .preset(Preset::Paper)
            .select(Select::Last)
            .latent(2)
            .epochs(common.epochs)
            .seed(common.seed);
        let mut settings = base.build()?;
        settings.head = head.clone();
        settings.check()?;
        if head.classifies() && head.trained_by() == mcdd::head::Loop::Gradients {
            return Ok((title, settings));
        }
        Err(mcdd::Error::setting(format!("{title} does not classify in a latent space"))
            .hint("give methods such as softmax, deep-ncm, protonet, soft-mcdd and deep-mcdd"))
    });
    let all = all.collect::<mcdd::Result<Vec<_>>>()?;
    common.output.check(name, common.data.iter().map(Path::new))?;
    let Opened { table, coverage, .. } =
        options::open(&common.data, common.data_dir.clone(), &common.reading, &common.columns)?;
    let found = table.rows();
    let table = match common.limit {
        Some(limit) => table.sample(limit, common.seed)?,
        None => table,
    };
    let Split { train, test, unknown } = Split::new(&table, &common.ood, 0, 5, common.seed)?;
    let (mut panels, mut shown) = (Vec::new(), None);
    for (i, (title, settings)) in all.iter().enumerate() {
        if !quiet {
            let rows = count(train.rows(), "row");
            ui::note(&format!("training {title} ({} of {}) on {rows}", i + 1, all.len()));
        }
        let progress = ui::Progress::new(quiet, "row");
        let run = Run { threads: options::threads(common.threads), callback: &progress, ..Run::default() };
        let fitted = Model::fit_with(&train, settings, &run);
        progress.finish();
        let fitted = fitted?;
        if fitted.interrupted {
            ui::warning("stopped before the end; nothing was drawn");
            return Ok(ExitCode::from(130));
        }
        let (panel, counts) = latent_space(&fitted.model, title, &test, &unknown)?;
        panels.push(panel);
        shown = Some(counts);
    }
    let data = coverage.map_or(String::new(), |c| format!("{c}. "));
    let mut caption = data + &caption(common, found, table.rows(), train.rows(), shown);
    let circles = |p: &LatentSpace| p.spheres.iter().any(|s| s.radius.is_some());
    if panels.iter().any(circles) {
        caption += " Rows outside of all circles are unknown, which keeps 95% of the calibration rows.";
    }
    if !panels.iter().all(circles) {
        caption += " Methods without circles do not use distances to class means.";
    }
    let hollow = format!("{} (left out)", common.ood);
    let figure = latent_spaces(title, &caption, train.classes(), &hollow, &panels)?;
    common.output.write(name, &figure)
}

fn caption(common: &Common, found: usize, used: usize, trained: usize, shown: Option<Shown>) -> String {
    let n = |count: usize| short_number(count as f64, 12);
    let of = |some: usize, all: usize| if some == all { n(all) } else { format!("{} of {}", n(some), n(all)) };
    let mut text = String::new();
    if used < found {
        text += &format!("A random {} of {} rows are used. ", n(used), n(found));
    }
    text += &format!(
        "Each network was trained on {} rows ({} epochs, seed {}) without class {}. ",
        n(trained),
        n(common.epochs),
        common.seed,
        common.ood
    );
    if let Some(s) = shown {
        text += &format!(
            "Drawn are {} known test rows in the color of their class, and {} rows of class {}, \
             hollow. ",
            of(s.known, s.of_known),
            of(s.unknown, s.of_unknown),
            common.ood
        );
    }
    text + "The background has the color of the predicted class."
}
