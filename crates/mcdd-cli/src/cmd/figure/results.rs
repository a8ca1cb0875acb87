//! `mcdd figure bars` and `nu`: figures of the results of `mcdd bench`.

use std::path::PathBuf;
use std::process::ExitCode;

use mcdd::protocol::results::{self, About, Cell};
use mcdd::report::bench::{Study, against_nu, comparisons};

use super::Output;

/// Draw the methods of one or more results folders as bars
#[derive(clap::Args, Clone, Debug)]
pub struct BarsArgs {
    /// Folders of mcdd bench, one panel each
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,

    /// Methods, separated by commas [default: those that all folders have; if these include the paper's, its two figures:
    /// deep-mcdd and soft-mcdd with deep-svdd and alad, and with protonet and deep-ncm]
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

/// Runs `mcdd figure bars`.
pub fn bars(args: BarsArgs) -> anyhow::Result<ExitCode> {
    let loaded: Vec<(About, Vec<Cell>)> = args.folders.iter().map(|f| results::load(f)).collect::<mcdd::Result<_>>()?;
    let studies: Vec<Study> = loaded.iter().map(|(about, cells)| Study::new(about, cells)).collect();
    let methods = args.methods.as_ref().map(|all| all.iter().map(|m| m.trim()).collect::<Vec<_>>());
    let figures = comparisons(&studies, methods.as_deref())?;
    let several = figures.len() > 1;
    for (name, figure) in figures {
        let output = if several { args.output.named(name) } else { args.output.clone() };
        output.write(name, &figure)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `mcdd figure nu`.
pub fn nu(args: NuArgs) -> anyhow::Result<ExitCode> {
    let (about, cells) = results::load(&args.folder)?;
    args.output.write("nu", &against_nu(&Study::new(&about, &cells))?)
}
