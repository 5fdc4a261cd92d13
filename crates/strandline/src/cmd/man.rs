//! `strandline man`: a manual page for each command, from the same definitions as `--help`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command, CommandFactory};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

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
    let (parent, synopsis) = (command.has_subcommands(), synopsis(&command));
    let page = Page::new(command)
        .section(section)
        .source(concat!("strandline ", env!("CARGO_PKG_VERSION")))
        .manual("Strandline");
    let path = dir.join(page.get_filename());
    let mut text = Vec::new();
    render(&page, parent, &synopsis, &rest, &mut text).map_err(Failure::host(&path))?;
    fs::write(&path, text).map_err(Failure::host(&path))
}

fn render(
    page: &Page,
    parent: bool,
    synopsis: &Roff,
    rest: &Roff,
    text: &mut dyn io::Write,
) -> io::Result<()> {
    page.render_title(text)?;
    page.render_name_section(text)?;
    synopsis.to_writer(text)?;
    page.render_description_section(text)?;
    page.render_options_section(text)?;
    if parent {
        page.render_subcommands_section(text)?;
    }
    rest.to_writer(text)
}

/// The command line, with the names of options' values, which clap_mangen leaves out.
fn synopsis(command: &Command) -> Roff {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let shown = shown.filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()));
    let (places, options): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|arg| arg.is_positional());
    let mut words = vec![bold(command.get_bin_name().unwrap_or(command.get_name()))];
    options.into_iter().chain(places).for_each(|arg| words.extend(argument(arg)));
    if command.has_subcommands() {
        let needed = command.is_subcommand_required_set();
        words.extend([roman(if needed { " " } else { " [" }), italic("COMMAND")]);
        words.extend((!needed).then(|| roman("]")));
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(words);
    roff
}

/// One argument of a synopsis, as in `[--size SIZE]` or `PATH...`.
fn argument(arg: &Arg) -> Vec<Inline> {
    let long = arg.get_long().map(|long| format!("--{long}"));
    let option = long.or_else(|| arg.get_short().map(|short| format!("-{short}")));
    let several = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    let needed = arg.is_required_set();
    let mut words = vec![roman(if needed { " " } else { " [" })];
    if arg.get_action().takes_values() {
        let names = arg.get_value_names().unwrap_or_default();
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
        let (before, behind) = match (&option, optional) {
            (None, _) => ("", ""),
            (_, false) if arg.is_require_equals_set() => ("=", ""),
            (_, false) => (" ", ""),
            (_, true) if arg.is_require_equals_set() => ("[=", "]"),
            (_, true) => (" [", "]"),
        };
        words.extend(option.map(bold));
        words.extend([roman(before), italic(names), roman(behind)]);
    } else {
        words.extend(option.map(bold));
    }
    words.extend(several.then(|| roman("...")));
    words.extend((!needed).then(|| roman("]")));
    words
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
