//! `leasehold completions`: a shell's completion script.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, Failure, Output};

/// Which shell.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// Runs the command. The script is for a shell to read, whatever form the other answers have.
pub fn run(arguments: &CompletionsArguments, output: Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "leasehold", &mut script);
    output.text(&String::from_utf8_lossy(&script))
}
