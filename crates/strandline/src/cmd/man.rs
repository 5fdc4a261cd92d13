//! `strandline man`: a manual page for each command, from the same definitions as `--help`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, bold, roman};

use super::{mount, umount};
use crate::Cli;
use crate::failure::{Failure, Outcome};

/// Sections of the manual: user commands, and the helpers of mount(8).
const COMMANDS: &str = "1";
const ADMINISTRATION: &str = "8";

/// Write a manual page for each command to a directory.
#[derive(Args)]
#[command(after_help = "\
Example:
  strandline man ~/.local/share/man/man1 && man strandline-mkfs")]
pub(crate) struct Man {
    /// The directory; made if necessary
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Outcome {
        fs::create_dir_all(&self.dir).map_err(Failure::host(&self.dir))?;
        let mut all = Cli::command().disable_help_subcommand(true);
        all.build();
        write_all(&self.dir, &all)?;
        for helper in [mount::Helper::command(), umount::Helper::command()] {
            write_page(&self.dir, helper, ADMINISTRATION)?;
        }
        Ok(0)
    }
}

/// The page of `command` and those of its subcommands.
fn write_all(dir: &Path, command: &Command) -> Outcome<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_all(dir, below)?;
    }
    write_page(dir, command.clone(), COMMANDS)
}

fn write_page(dir: &Path, command: Command, section: &str) -> Outcome<()> {
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut rest = Roff::new();
    notes.split("\n\n").for_each(|part| add_note(&mut rest, part));
    let see = if section == ADMINISTRATION { ["mount", "(8)"] } else { ["strandline", "(1)"] };
    if command.get_name() != "strandline" {
        rest.control("SH", ["SEE ALSO"]);
        rest.text([bold(see[0]), roman(see[1])]);
    }
    let parent = command.has_subcommands();
    let page = Page::new(command)
        .section(section)
        .source(concat!("strandline ", env!("CARGO_PKG_VERSION")))
        .manual("Strandline");
    let path = dir.join(page.get_filename());
    let mut text = Vec::new();
    render(&page, parent, &rest, &mut text).map_err(Failure::host(&path))?;
    fs::write(&path, text).map_err(Failure::host(&path))
}

fn render(page: &Page, parent: bool, rest: &Roff, text: &mut dyn io::Write) -> io::Result<()> {
    page.render_title(text)?;
    page.render_name_section(text)?;
    page.render_synopsis_section(text)?;
    page.render_description_section(text)?;
    page.render_options_section(text)?;
    if parent {
        page.render_subcommands_section(text)?;
    }
    rest.to_writer(text)
}

/// A paragraph of what `--help` says after the options. Lines under a heading are laid out by hand
/// and stay as they are.
fn add_note(roff: &mut Roff, part: &str) {
    match part.split_once('\n') {
        Some((heading, lines)) if heading.ends_with(':') && lines.starts_with(' ') => {
            roff.control("SH", [heading.trim_end_matches(':').to_uppercase().as_str()]);
            roff.control("nf", []);
            for line in lines.lines() {
                roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
            roff.control("fi", []);
        }
        _ if part.trim().is_empty() => {}
        _ => {
            let status = part.starts_with("Exit status");
            roff.control("SH", [if status { "EXIT STATUS" } else { "NOTES" }]);
            let part = part.strip_prefix("Exit status: ").unwrap_or(part);
            roff.text([roman(part.replace('\n', " "))]);
        }
    }
}
