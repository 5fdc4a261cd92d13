//! `strandline completions`: shell completions, from the same definitions as `--help`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::failure::Outcome;
use crate::out;

/// Print a shell's completions.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline completions bash >~/.local/share/bash-completion/completions/strandline
  strandline completions zsh >/usr/local/share/zsh/site-functions/_strandline
  strandline completions fish >~/.config/fish/completions/strandline.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Outcome {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "strandline", &mut text);
        out::bytes(&text)?;
        Ok(0)
    }
}
