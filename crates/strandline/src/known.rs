//! What help texts and messages list, each from the table that knows it, so that a name that is
//! added there is not forgotten here.

use clap::Command;
use lab::workload;

use crate::failure::Failure;

/// The built-in drive profiles.
pub(crate) fn drives() -> String {
    drive::Profile::names().join(", ")
}

/// The modes of F2FS.
pub(crate) fn modes() -> String {
    of_f2fs(|format| format.techniques().iter().map(|way| way.name).collect())
}

/// The faults that each file system takes, behind its name.
pub(crate) fn faults() -> String {
    let formats = subjects::names().into_iter().filter_map(|name| subjects::named(name).ok());
    let lists = formats.map(|format| (format.name(), format.faults()));
    lists
        .filter(|(_, faults)| !faults.is_empty())
        .map(|(name, faults)| format!("of {name}: {}", faults.join(", ")))
        .collect::<Vec<_>>()
        .join("; ")
}

fn of_f2fs(list: impl FnOnce(&dyn vfs::kind::Format) -> Vec<&'static str>) -> String {
    subjects::named("f2fs").map_or_else(|_| String::new(), |format| list(format).join(", "))
}

/// The papers whose figures can be repeated.
pub(crate) fn papers() -> String {
    lab::paper::NAMES.join(", ")
}

/// What `crash --workload` takes.
pub(crate) fn workloads() -> String {
    format!("Workload: {}", loads())
}

/// What can be run, by its name or from where it is read.
pub(crate) fn loads() -> String {
    let small: Vec<&str> = workload::small::names().collect();
    format!(
        "{} (pattern:sync=N is with a sync every N overwrites, 0 for none; the last \
         three are databases' ways to commit), tree; or one of the small ones: {}; or \
         ace:OP+THEN,OP+THEN… as `lab explore` names them; or threads:N or threads:N:MIX, N \
         threads at once, MIX being {}; or file:PATH, a text as below, or strace:PATH, a trace",
        workload::NAMES.join(", "),
        small.join(", "),
        workload::Threads::mixes().join(", ")
    )
}

/// `bench` runs what is no subcommand of its own as a benchmark. If it is neither, both are named.
pub(crate) fn no_benchmark(name: &str, suites: &Command) -> Failure {
    let suites = suites.get_subcommands().map(Command::get_name).filter(|suite| *suite != "help");
    let kinds = lab::bench::Kind::ALL.map(lab::bench::Kind::name);
    let known: Vec<&str> = kinds.into_iter().chain(suites).collect();
    let meant = vfs::options::similar(name, known.iter().copied());
    let meant = meant.map_or_else(String::new, |like| format!("did you mean {like}? "));
    Failure::Usage(format!("unknown benchmark '{name}'; {meant}known: {}", known.join(", ")))
}
