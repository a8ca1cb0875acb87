//! `mcdd completions`: shell completion scripts.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd completions bash > ~/.local/share/bash-completion/completions/mcdd
  mcdd completions zsh > ~/.zfunc/_mcdd
  mcdd completions fish > ~/.config/fish/completions/mcdd.fish";

/// Print a shell completion script
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Shell
    shell: Shell,
}

/// Runs the command.
pub fn run<C: clap::CommandFactory>(args: Args) -> anyhow::Result<ExitCode> {
    // To memory first: the generator panics on a write error.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "mcdd", &mut script);
    ui::print_data(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
