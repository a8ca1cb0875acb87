//! `mcdd completions`: completion scripts for shells.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd completions bash > ~/.local/share/bash-completion/completions/mcdd
  mcdd completions zsh > ~/.zfunc/_mcdd
  mcdd completions fish > ~/.config/fish/completions/mcdd.fish";

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub fn run<C: clap::CommandFactory>(args: Args) -> anyhow::Result<ExitCode> {
    // To memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "mcdd", &mut script);
    ui::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
