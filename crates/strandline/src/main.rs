//! The `strandline` command: argument parsing and output, nothing else. One file per subcommand.

#![forbid(unsafe_code)]

mod block_layer;
mod cmd;
mod copy;
mod ending;
mod failure;
mod in_use;
mod interrupt;
mod known;
mod mounted;
mod out;
mod progress;
mod target;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use failure::{Failure, Outcome};

/// The package's version and, in a release build from a clone, the commit; see build.rs.
pub(crate) const VERSION: &str = env!("STRANDLINE_VERSION");

/// A storage stack in user space, and the power switch of its drives.
#[derive(Parser)]
#[command(name = "strandline", version = VERSION, max_term_width = 100)]
#[command(after_help = "\
Exit status: 0 all is well, 1 a problem was found, 2 wrong usage, 130 ended by Ctrl-C.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Emulated drives in files: make, show, cut
    #[command(subcommand)]
    Drive(cmd::drive::Drive),
    /// Make an F2FS volume, with mkfs.f2fs's options
    Mkfs(cmd::mkfs::MkfsF2fs),
    /// Make an ext4 volume, with mke2fs's options; also `mkfs --fs ext4`
    #[command(name = "mkfs.ext4")]
    MkfsExt4(cmd::mkfs::MkfsExt4),
    /// Make a pmfs volume on persistent memory; also `mkfs --fs pmfs`
    #[command(name = "mkfs.pmfs")]
    MkfsPmfs(cmd::mkfs::MkfsPmfs),
    /// Mount a volume on a directory, through FUSE
    Mount(cmd::mount::Mount),
    /// Unmount a volume and wait until its image is free
    Umount(cmd::umount::Umount),
    /// Show attributes and statistics of a mounted volume
    Status(cmd::status::Status),
    /// Change settings of a mounted volume, with the kernel's names
    Tune(cmd::tune::Tune),
    /// Ask a mounted F2FS for what it offers by ioctl, as f2fs_io does
    #[command(name = "f2fs_io")]
    F2fsIo(cmd::f2fs_io::F2fsIo),
    /// Recover and check a volume
    Fsck(cmd::fsck::Fsck),
    /// Show or set a volume's label, show its UUID
    Label(cmd::label::Label),
    /// Make a volume larger or smaller
    Resize(cmd::resize::Resize),
    /// Lay files out in one piece
    Defrag(cmd::defrag::Defrag),
    /// Show structures as they are on the drive, with dump.f2fs's options
    Dump(cmd::dump::Dump),
    /// List a directory inside an image
    Ls(cmd::ls::Ls),
    /// Print a file inside an image
    Cat(cmd::cat::Cat),
    /// Copy files and trees into, out of or within images
    Cp(cmd::cp::Cp),
    /// Show a file's attributes inside an image
    Stat(cmd::stat::Stat),
    /// Show a directory tree inside an image
    Tree(cmd::tree::Tree),
    /// Cut the power many times and judge every byte
    Crash(cmd::crash::Crash),
    /// Say which mount options pay for a load, and by how much
    Advise(cmd::advise::Advise),
    /// Does a program survive a power cut? Its own checker answers
    CheckProgram(cmd::check_program::CheckProgram),
    /// Measure fsync, create, sequential write and read, and how they scale with cores
    Bench(cmd::bench::Bench),
    /// The papers' experiments
    #[command(subcommand)]
    Lab(cmd::lab::Lab),
    /// Print a shell's completions
    #[command(hide = true)]
    Completions(cmd::completions::Completions),
    /// Write a manual page for each command to a directory
    #[command(hide = true)]
    Man(cmd::man::Man),
}

/// Commands that may be called by the names of another project's tools, as in `mkfs.f2fs`.
const TOOLS: [&str; 5] = ["mkfs", "fsck", "dump", "resize", "defrag"];

fn main() -> ExitCode {
    // A write past the limit of a file's size fails instead of ending the process (setrlimit(2)).
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    #[cfg(target_os = "linux")]
    let _ = drive::pm::explain_lost_memory();
    let done = match called_as().as_deref() {
        Some("mount.strandline" | "mount.fuse.strandline") => helper::<cmd::mount::Helper>().run(),
        Some("umount.strandline" | "umount.fuse.strandline") => {
            helper::<cmd::umount::Helper>().run()
        }
        _ => run(parse().command),
    };
    match done.and_then(|code| out::heard(out::flush()).map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        // The reader of our output has seen enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            out::error(&failure);
            ExitCode::from(failure.code())
        }
    }
}

/// The command line; some commands have a status of their own for wrong usage, and scripts rely on
/// it.
fn parse() -> Cli {
    let words = words();
    Cli::try_parse_from(&words).unwrap_or_else(|error| {
        let command = words.get(1).and_then(|command| command.to_str());
        let status = match command.unwrap_or_default() {
            "fsck" => Some(cmd::fsck::USAGE),
            "mount" | "umount" => Some(cmd::mount::USAGE),
            _ => None,
        };
        refuse(&error, status)
    })
}

/// The command line. Called as `mkfs.f2fs` it is that of `strandline mkfs`, and so on.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let name = called_as().unwrap_or_default();
    if let Some((tool, format)) = name.split_once('.')
        && TOOLS.contains(&tool)
        && (format == "strandline"
            || subjects::names().contains(&format)
            || tool == "mkfs" && cmd::mkfs::KINDS.contains(&format))
    {
        let kind = (format != "strandline").then_some(["--fs", format]);
        let named = ["strandline", tool].into_iter().chain(kind.into_iter().flatten());
        if name == "fsck.ext4" {
            words.splice(1.., cmd::e2fsck::translate(&words[1..]));
        }
        words.splice(0..1, named.map(OsString::from));
    }
    cmd::mkfs::choose(&mut words);
    words
}

/// The command line of a helper of mount(8).
fn helper<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| refuse(&error, Some(cmd::mount::USAGE)))
}

/// Reports a wrong command line and exits with `status`, or clap's.
fn refuse(error: &clap::Error, status: Option<u8>) -> ! {
    let lacks_command = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || error.kind() == lacks_command {
        error.exit();
    }
    // What is wrong and what may have been meant, in one line like all our messages; clap's usage
    // is in --help.
    let text = error.render().to_string();
    let wrong = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let wrong = wrong.collect::<Vec<_>>().join(" ");
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong);
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let tip = tip.map_or_else(String::new, |tip| format!("; {tip}"));
    out::complain(&format!("{wrong}{tip}; see --help"));
    std::process::exit(status.map_or_else(|| error.exit_code(), i32::from));
}

/// The name by which this program was called.
fn called_as() -> Option<String> {
    let name = std::env::args_os().next()?;
    std::path::Path::new(&name).file_name()?.to_str().map(str::to_owned)
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Drive(command) => command.run(),
        Command::Mkfs(command) => command.run(),
        Command::MkfsExt4(command) => command.run(),
        Command::MkfsPmfs(command) => command.run(),
        Command::Mount(command) => command.run(),
        Command::Umount(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::F2fsIo(command) => command.run(),
        Command::Tune(command) => command.run(),
        Command::Fsck(command) => command.run(),
        Command::Label(command) => command.run(),
        Command::Resize(command) => command.run(),
        Command::Defrag(command) => command.run(),
        Command::Dump(command) => command.run(),
        Command::Ls(command) => command.run(),
        Command::Cat(command) => command.run(),
        Command::Cp(command) => command.run(),
        Command::Stat(command) => command.run(),
        Command::Tree(command) => command.run(),
        Command::Advise(advise) => advise.run(),
        Command::Crash(command) => command.run(),
        Command::CheckProgram(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Lab(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
    }
}
