//! The numbers of a profile one by one, to vary them or to set measured ones.

use std::fmt::Write;
use std::sync::Arc;

use super::{Inner, Profile, memory_rate, pm};
use crate::{Nanos, Stage};

/// Marks the source of a number that was neither measured nor published.
const ESTIMATE: &str = "estimate";

/// Paths of all numbers but those of stages.
const OTHERS: [&str; 12] = [
    "line.same_core",
    "line.same_socket",
    "line.other_socket",
    "memory.socket",
    "memory.core",
    "memory.remote",
    "memory.cache",
    "thread.context_switch",
    "thread.wake",
    "thread.wake_call",
    "thread.time_slice",
    "lock.lines",
];

impl Profile {
    /// The paths of all numbers that say what something costs, as in the file. A profile may lack
    /// those of persistent memory.
    pub fn paths() -> impl Iterator<Item = String> {
        let stages = Stage::ALL.iter().map(|stage| format!("cost.{}", stage.name()));
        OTHERS.iter().chain(&pm::PATHS).map(|&path| path.to_owned()).chain(stages)
    }

    /// What the number at `path` says: nanoseconds, picoseconds per KiB of memory, or lines.
    /// `None` if there is none.
    pub fn number(&self, path: &str) -> Option<u64> {
        // A copy, because the place can only be lent to be changed.
        number_mut(&mut Inner::clone(&self.inner), path).copied()
    }

    /// Whether the number at `path`, or the one it was scaled from, was neither measured nor
    /// published.
    pub fn is_estimate(&self, path: &str) -> bool {
        let Some(source) = self.source(path) else { return false };
        let from = source.strip_prefix("profile ").and_then(|rest| rest.split(' ').next());
        match from.and_then(|name| Profile::named(name).ok()) {
            Some(from) if from.name() != self.name() => from.is_estimate(path),
            _ => source.contains(ESTIMATE),
        }
    }

    /// The same machine with another number at `path`, and where that is from. `None` if there is
    /// no such path.
    #[must_use]
    pub fn with(&self, path: &str, number: u64, source: &str) -> Option<Profile> {
        let mut inner = Inner::clone(&self.inner);
        *number_mut(&mut inner, path)? = number;
        inner.sources.insert(path.to_owned(), source.to_owned());
        Some(Profile { inner: Arc::new(inner) })
    }

    /// The same costs on a machine of another shape.
    #[must_use]
    pub fn shaped(&self, name: &str, about: &str, sockets: usize, cores: usize) -> Profile {
        let mut inner = Inner::clone(&self.inner);
        (inner.name, inner.about) = (name.to_owned(), about.to_owned());
        (inner.sockets, inner.cores_per_socket) = (sockets.max(1), cores.max(1));
        Profile { inner: Arc::new(inner) }
    }

    /// The profile as a file that [`Profile::from_toml`] reads.
    pub fn to_toml(&self) -> String {
        let of = &self.inner;
        let mut text = String::new();
        let (sockets, cores, ghz) = (of.sockets, of.cores_per_socket, of.ghz);
        let _ = writeln!(text, "name = {:?}\nabout = {:?}", of.name, of.about);
        let _ = writeln!(text, "sockets = {sockets}\ncores_per_socket = {cores}\nghz = {ghz:?}");
        let mut table = String::new();
        for path in Self::paths() {
            let (Some((of_table, name)), Some(number)) = (path.split_once('.'), self.number(&path))
            else {
                continue;
            };
            if of_table != table {
                of_table.clone_into(&mut table);
                let _ = writeln!(text, "\n[{table}]");
            }
            let value = match (table.as_str(), name) {
                ("memory", "cache") => {
                    let (kib, rate) = (of.cache_bytes / 1024, memory_rate(number));
                    format!("kib = {kib}, gb_per_s = {rate:?}")
                }
                ("pm", "collapse") => {
                    let writers = of.pm.as_ref().and_then(pm::Pm::writers).unwrap_or(1);
                    format!("writers = {writers}, gb_per_s = {:?}", memory_rate(number))
                }
                ("pm", "write_back" | "fence") => format!("ns = {number}"),
                ("lock", _) | ("pm", "remote_share") => format!("count = {number}"),
                ("memory" | "pm", _) => format!("gb_per_s = {:?}", memory_rate(number)),
                _ => format!("ns = {number}"),
            };
            let source = self.source(&path).unwrap_or_default();
            let _ = writeln!(text, "{name:?} = {{ {value}, source = {source:?} }}");
        }
        text
    }
}

fn number_mut<'a>(of: &'a mut Inner, path: &str) -> Option<&'a mut Nanos> {
    Some(match path {
        "line.same_core" => &mut of.line[0],
        "line.same_socket" => &mut of.line[1],
        "line.other_socket" => &mut of.line[2],
        "memory.socket" => &mut of.socket_memory,
        "memory.core" => &mut of.core_memory,
        "memory.remote" => &mut of.remote_memory,
        "memory.cache" => &mut of.cache,
        "thread.context_switch" => &mut of.context_switch,
        "thread.wake" => &mut of.wake,
        "thread.wake_call" => &mut of.wake_call,
        "thread.time_slice" => &mut of.time_slice,
        "lock.lines" => &mut of.lock_lines,
        _ if path.starts_with("pm.") => of.pm.as_mut()?.number_mut(&path["pm.".len()..])?,
        _ => &mut of.costs[Stage::named(path.strip_prefix("cost.")?)? as usize],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_survives_its_text() {
        for name in Profile::NAMES {
            let profile = Profile::named(name).unwrap();
            let again = Profile::from_toml(&profile.to_toml()).unwrap();
            for path in Profile::paths() {
                assert_eq!(profile.number(&path), again.number(&path), "{name} {path}");
                assert_eq!(profile.source(&path), again.source(&path), "{name} {path}");
            }
            assert_eq!(profile.cores(), again.cores());
            assert_eq!(profile.cache_bytes(), again.cache_bytes());
        }
    }

    #[test]
    fn one_number_changes_and_the_others_stay() {
        let profile = Profile::named("e7-8870v2-120").unwrap();
        let changed = profile.with("cost.fs.gc", 7, "measured").unwrap();
        for path in Profile::paths() {
            let same = changed.number(&path) == profile.number(&path);
            assert_eq!(same, path != "cost.fs.gc", "{path}");
        }
        assert_eq!(changed.cost(Stage::Gc), 7);
        assert!(profile.with("cost.fs.gd", 7, "measured").is_none());
    }

    #[test]
    fn what_was_scaled_from_an_estimate_is_one() {
        let profile = Profile::named("e7-8870v2-120").unwrap();
        assert!(profile.is_estimate("cost.fs.gc") && profile.is_estimate("thread.wake"));
        assert!(!profile.is_estimate("cost.fsync.prepare"), "Table 3.1");
        assert!(!profile.is_estimate("line.same_socket"), "published");
    }
}
