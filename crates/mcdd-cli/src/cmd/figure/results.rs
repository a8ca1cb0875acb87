//! Figures of what `mcdd bench` has found.

use std::path::PathBuf;
use std::process::ExitCode;

use mcdd::protocol::results::{self, About, Cell};
use mcdd::report::bench::{Study, against_nu, comparison};
use mcdd::report::figure::SERIES;

use super::Output;

/// Draw the methods of one or more results folders as bars
#[derive(clap::Args, Clone, Debug)]
pub struct BarsArgs {
    /// Folders of mcdd bench, a panel each
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,

    /// Methods, with commas [default: those that all folders have; where these are the paper's, two figures as it has
    /// them: deep-mcdd and soft-mcdd with deep-svdd and alad, and with protonet and deep-ncm]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    methods: Option<Vec<String>>,

    #[command(flatten)]
    output: Output,
}

/// Draw every metric against nu
#[derive(clap::Args, Clone, Debug)]
pub struct NuArgs {
    /// Folder of mcdd bench DATA --methods nu
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    #[command(flatten)]
    output: Output,
}

/// Against methods that know no classes, and against those that measure the distance to a center.
const PAPER: [(&str, &str, [&str; 4]); 2] = [
    (
        "bars-detectors",
        "Deep-MCDD beside detectors that know no classes",
        ["deep-svdd", "alad", "soft-mcdd", "deep-mcdd"],
    ),
    (
        "bars-classifiers",
        "Deep-MCDD beside other distance classifiers",
        ["protonet", "deep-ncm", "soft-mcdd", "deep-mcdd"],
    ),
];

/// Runs `mcdd figure bars`.
pub fn bars(args: BarsArgs) -> anyhow::Result<ExitCode> {
    let loaded: Vec<(About, Vec<Cell>)> = args.folders.iter().map(|f| results::load(f)).collect::<mcdd::Result<_>>()?;
    let studies: Vec<Study> = loaded.iter().map(|(about, cells)| Study::new(about, cells)).collect();
    if let Some(methods) = &args.methods {
        let methods: Vec<&str> = methods.iter().map(|m| m.trim()).collect();
        return args.output.write("bars", &comparison("Classes never seen", &studies, &methods)?);
    }
    if studies.iter().any(|s| PAPER.iter().any(|(_, _, methods)| methods.iter().any(|m| !s.methods.contains(m)))) {
        let there = |m: &&str| studies.iter().all(|s| s.methods.contains(m));
        let methods: Vec<&str> = studies[0].methods.iter().copied().filter(there).take(SERIES).collect();
        return args.output.write("bars", &comparison("Classes never seen", &studies, &methods)?);
    }
    for (name, title, methods) in PAPER {
        args.output.named(name).write(name, &comparison(title, &studies, &methods)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `mcdd figure nu`.
pub fn nu(args: NuArgs) -> anyhow::Result<ExitCode> {
    let (about, cells) = results::load(&args.folder)?;
    args.output.write("nu", &against_nu(&Study::new(&about, &cells))?)
}
