//! Machine profiles: sockets, cores and what everything costs.
//!
//! A profile is a TOML file in which every number has its source beside it, except those that give
//! the machine's shape. Built-in profiles lie in `profiles/`. Every stage must have a cost, so that
//! a stage added to the code cannot be free by oversight.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use thiserror::Error;

use crate::{Nanos, Stage};

mod pm;
mod vary;

pub(crate) use pm::Toward;
use pm::{Pm, PmFile};

/// No profile may have more cores than this.
pub(crate) const MAX_CORES: usize = 256;

/// No core may have a larger cache than this.
const MAX_CACHE_KIB: u64 = 1 << 20;

macro_rules! built_in {
    ($($name:literal),*) => {
        const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),*];

        impl Profile {
            /// The names of the built-in profiles.
            pub const NAMES: &'static [&'static str] = &[$($name),*];
        }
    };
}

built_in!(
    "uniform-1",
    "xeon-4116",
    "e7-8870v2-120",
    "gold-6138-80",
    "e7-8890v4-192",
    "i7-8700",
    "i5-6500"
);

/// A machine described in numbers; cheap to clone.
#[derive(Clone, Debug)]
pub struct Profile {
    inner: Arc<Inner>,
}

/// What is wrong with a profile.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No built-in profile has that name.
    #[error("no machine profile {name:?}; there are {}", known.join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<&'static str>,
    },
    /// The text is not TOML of a profile's shape.
    #[error("machine profile: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A field has a value it must not have.
    #[error("machine profile: {field}: {problem}")]
    Field {
        /// The field, as a path in the file.
        field: String,
        /// What is wrong and what was expected.
        problem: String,
    },
}

#[derive(Clone, Debug)]
struct Inner {
    name: String,
    about: String,
    sockets: usize,
    cores_per_socket: usize,
    ghz: f64,
    line: [Nanos; 3],
    /// In picoseconds per KiB, so that whole numbers are exact enough for small transfers.
    socket_memory: u64,
    core_memory: u64,
    remote_memory: u64,
    cache: u64,
    cache_bytes: u64,
    context_switch: Nanos,
    wake: Nanos,
    wake_call: Nanos,
    time_slice: Nanos,
    lock_lines: u64,
    pm: Option<Pm>,
    costs: [Nanos; Stage::COUNT],
    sources: BTreeMap<String, String>,
}

/// The file's shape.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    about: String,
    sockets: usize,
    cores_per_socket: usize,
    ghz: f64,
    line: Line,
    memory: Memory,
    thread: Thread,
    lock: Lock,
    pm: Option<PmFile>,
    cost: BTreeMap<String, Cost>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    same_core: Cost,
    same_socket: Cost,
    other_socket: Cost,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    socket: Bandwidth,
    core: Bandwidth,
    remote: Bandwidth,
    cache: Cache,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cache {
    kib: u64,
    gb_per_s: f64,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Thread {
    context_switch: Cost,
    wake: Cost,
    wake_call: Cost,
    time_slice: Cost,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    lines: Count,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    count: u64,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cost {
    ns: Nanos,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bandwidth {
    gb_per_s: f64,
    source: String,
}

impl Profile {
    /// A built-in profile. It is read only once per process.
    ///
    /// # Errors
    ///
    /// [`ProfileError::Unknown`] when no built-in profile has that name.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        static READ: [OnceLock<Profile>; BUILT_IN.len()] =
            [const { OnceLock::new() }; BUILT_IN.len()];
        let unknown =
            || ProfileError::Unknown { name: name.to_owned(), known: Self::NAMES.to_vec() };
        let index = BUILT_IN.iter().position(|(known, _)| *known == name).ok_or_else(unknown)?;
        if let Some(profile) = READ[index].get() {
            return Ok(profile.clone());
        }
        let profile = Self::from_toml(BUILT_IN[index].1)?;
        Ok(READ[index].get_or_init(|| profile).clone())
    }

    /// Reads a profile.
    ///
    /// # Errors
    ///
    /// [`ProfileError::Syntax`] when the text does not have the shape of a profile,
    /// [`ProfileError::Field`] when a stage or a source is missing or a number makes no sense.
    pub fn from_toml(text: &str) -> Result<Profile, ProfileError> {
        let file: File = toml::from_str(text)?;
        let mut sources = Sources::default();
        let shape = |ok: bool, name: &str, problem: String| {
            if ok { Ok(()) } else { Err(field(name, problem)) }
        };
        let cores = file.sockets.saturating_mul(file.cores_per_socket);
        shape(file.sockets > 0, "sockets", "must not be 0".to_owned())?;
        let limit = format!("{cores} cores in all, allowed are 1 to {MAX_CORES}");
        shape((1..=MAX_CORES).contains(&cores), "cores_per_socket", limit)?;
        let ghz = format!("{} GHz is no clock rate", file.ghz);
        shape(file.ghz.is_finite() && file.ghz > 0.0, "ghz", ghz)?;
        let line = [
            sources.positive("line.same_core", file.line.same_core)?,
            sources.positive("line.same_socket", file.line.same_socket)?,
            sources.positive("line.other_socket", file.line.other_socket)?,
        ];
        let costs = stage_costs(&mut sources, file.cost)?;
        let Cache { kib, gb_per_s, source } = file.memory.cache;
        let cache = format!("{kib} KiB is no cache");
        shape((4..=MAX_CACHE_KIB).contains(&kib), "memory.cache.kib", cache)?;
        let inner = Inner {
            line,
            costs,
            socket_memory: sources.bandwidth("memory.socket", file.memory.socket)?,
            core_memory: sources.bandwidth("memory.core", file.memory.core)?,
            remote_memory: sources.bandwidth("memory.remote", file.memory.remote)?,
            cache: sources.bandwidth("memory.cache", Bandwidth { gb_per_s, source })?,
            cache_bytes: kib * 1024,
            context_switch: sources
                .cost("thread.context_switch".into(), file.thread.context_switch)?,
            wake: sources.cost("thread.wake".into(), file.thread.wake)?,
            wake_call: sources.cost("thread.wake_call".into(), file.thread.wake_call)?,
            lock_lines: sources.count("lock.lines", file.lock.lines)?,
            pm: file.pm.map(|file| Pm::new(file, &mut sources)).transpose()?,
            time_slice: sources.positive("thread.time_slice", file.thread.time_slice)?,
            name: file.name,
            about: file.about,
            sockets: file.sockets,
            cores_per_socket: file.cores_per_socket,
            ghz: file.ghz,
            sources: sources.0,
        };
        Ok(Profile { inner: Arc::new(inner) })
    }

    /// The profile's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// One sentence about the machine and the source of its numbers.
    pub fn about(&self) -> &str {
        &self.inner.about
    }

    /// How many cores the machine has.
    pub fn cores(&self) -> usize {
        self.inner.sockets * self.inner.cores_per_socket
    }

    /// How many sockets it has.
    pub fn sockets(&self) -> usize {
        self.inner.sockets
    }

    /// Clock rate in GHz, for information only: every cost is in nanoseconds.
    pub fn ghz(&self) -> f64 {
        self.inner.ghz
    }

    /// The socket of a core.
    pub fn socket_of(&self, core: usize) -> usize {
        core / self.inner.cores_per_socket
    }

    /// CPU time of one pass through a stage.
    #[inline]
    pub fn cost(&self, stage: Stage) -> Nanos {
        self.inner.costs[stage as usize]
    }

    /// Where a number comes from, by its path in the file, for example `cost.fsync.prepare`.
    pub fn source(&self, field: &str) -> Option<&str> {
        self.inner.sources.get(field).map(String::as_str)
    }

    /// Time to move a cache line from the core that changed it last to core `to`.
    #[inline]
    pub fn transfer(&self, from: Option<usize>, to: usize) -> Nanos {
        match from {
            Some(from) if from != to => {
                let same_socket = self.socket_of(from) == self.socket_of(to);
                self.inner.line[if same_socket { 1 } else { 2 }]
            }
            _ => self.inner.line[0],
        }
    }

    /// Time the memory of a socket needs for `bytes`.
    pub fn socket_memory_time(&self, bytes: u64) -> Nanos {
        memory_time(bytes, self.inner.socket_memory)
    }

    /// The least time one core needs to move `bytes`.
    pub fn core_memory_time(&self, bytes: u64) -> Nanos {
        memory_time(bytes, self.inner.core_memory)
    }

    /// The least time one core needs to move `bytes` from or to another socket's memory.
    pub fn remote_memory_time(&self, bytes: u64) -> Nanos {
        memory_time(bytes, self.inner.remote_memory)
    }

    /// The time one core needs to move `bytes` within its own cache.
    pub fn cache_time(&self, bytes: u64) -> Nanos {
        memory_time(bytes, self.inner.cache)
    }

    /// How much the cache of one core holds.
    pub fn cache_bytes(&self) -> u64 {
        self.inner.cache_bytes
    }

    /// Time to put another thread on a core.
    pub fn context_switch(&self) -> Nanos {
        self.inner.context_switch
    }

    /// Time from a notification until the thread that it wakes can run.
    pub fn wake(&self) -> Nanos {
        self.inner.wake
    }

    /// Time that waking a thread takes from the one who does it.
    pub fn wake_call(&self) -> Nanos {
        self.inner.wake_call
    }

    /// How many cache lines that a lock protects its holder uses, on average.
    pub fn lock_lines(&self) -> u64 {
        self.inner.lock_lines
    }

    /// How long a thread keeps a core that others want.
    pub fn time_slice(&self) -> Nanos {
        self.inner.time_slice
    }
}

fn memory_time(bytes: u64, picos_per_kib: u64) -> Nanos {
    (u128::from(bytes) * u128::from(picos_per_kib) / (1024 * 1000)) as Nanos
}

/// GB/s of so many picoseconds per KiB.
fn memory_rate(picos_per_kib: u64) -> f64 {
    1024.0 * 1000.0 / picos_per_kib as f64
}

fn field(field: &str, problem: String) -> ProfileError {
    ProfileError::Field { field: field.to_owned(), problem }
}

/// Every stage's cost. A missing stage or an unknown name is an error.
fn stage_costs(
    sources: &mut Sources,
    table: BTreeMap<String, Cost>,
) -> Result<[Nanos; Stage::COUNT], ProfileError> {
    let mut costs = [None; Stage::COUNT];
    for (name, cost) in table {
        let path = format!("cost.{name}");
        let stage = Stage::named(&name)
            .ok_or_else(|| field(&path, "there is no stage of that name".to_owned()))?;
        costs[stage as usize] = Some(sources.cost(path, cost)?);
    }
    let mut all = [0; Stage::COUNT];
    for &stage in Stage::ALL {
        let path = format!("cost.{}", stage.name());
        let missing = || field(&path, "missing; every stage needs a cost and a source".to_owned());
        all[stage as usize] = costs[stage as usize].ok_or_else(missing)?;
    }
    Ok(all)
}

/// The sources read so far, by field.
#[derive(Default)]
struct Sources(BTreeMap<String, String>);

impl Sources {
    fn keep(&mut self, path: String, source: String) -> Result<(), ProfileError> {
        if source.trim().is_empty() {
            return Err(field(
                &format!("{path}.source"),
                "must say where the number is from".into(),
            ));
        }
        self.0.insert(path, source);
        Ok(())
    }

    fn cost(&mut self, path: String, cost: Cost) -> Result<Nanos, ProfileError> {
        self.keep(path, cost.source)?;
        Ok(cost.ns)
    }

    fn positive(&mut self, path: &str, cost: Cost) -> Result<Nanos, ProfileError> {
        if cost.ns == 0 {
            return Err(field(path, "must not be 0 ns".to_owned()));
        }
        self.cost(path.to_owned(), cost)
    }

    fn count(&mut self, path: &str, count: Count) -> Result<u64, ProfileError> {
        self.keep(path.to_owned(), count.source)?;
        Ok(count.count)
    }

    fn bandwidth(&mut self, path: &str, bandwidth: Bandwidth) -> Result<u64, ProfileError> {
        let rate = bandwidth.gb_per_s;
        if !(rate > 0.0 && rate <= 100_000.0) {
            return Err(field(path, format!("{rate} GB/s is no bandwidth")));
        }
        self.keep(path.to_owned(), bandwidth.source)?;
        Ok((1024.0 * 1000.0 / rate).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(from: &str, to: &str) -> String {
        let text = BUILT_IN[1].1;
        assert!(text.contains(from), "{from:?} is not in the profile");
        text.replacen(from, to, 1)
    }

    #[test]
    fn every_built_in_profile_is_valid_and_has_its_cores() {
        let cores = [1, 12, 120, 80, 192];
        for (name, cores) in Profile::NAMES.iter().zip(cores) {
            let profile = Profile::named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((profile.name(), profile.cores()), (*name, cores));
            assert!(Stage::ALL.iter().all(|stage| {
                profile.source(&format!("cost.{}", stage.name())).is_some_and(|s| s.len() > 8)
            }));
        }
    }

    #[test]
    fn errors_name_the_field() {
        let message = |text: &str| Profile::from_toml(text).unwrap_err().to_string();
        let no_stage = edited("\"fs.gc\"", "\"fs.gd\"");
        assert!(message(&no_stage).contains("cost.fs.gd: there is no stage"));
        let gc = BUILT_IN[1].1.lines().find(|line| line.starts_with("\"fs.gc\"")).unwrap();
        assert!(message(&edited(gc, "")).contains("cost.fs.gc: missing"));
        let sourceless = edited(gc, "\"fs.gc\" = { ns = 1, source = \" \" }");
        assert!(message(&sourceless).contains("cost.fs.gc.source"));
        assert!(message(&edited("sockets = 1", "sockets = 0")).contains("sockets: must not be 0"));
        assert!(message(&edited("sockets = 1", "sockets = 99")).contains("1188 cores"));
        assert!(message(&edited("sockets = 1", "socket = 1")).contains("socket"));
        let unknown = Profile::named("pdp-11").unwrap_err().to_string();
        assert!(unknown.contains("pdp-11") && unknown.contains("xeon-4116"));
    }

    #[test]
    fn memory_time_is_bytes_over_bandwidth() {
        let profile = Profile::named("uniform-1").unwrap();
        let gb_per_s = 1e6 / profile.socket_memory_time(1_000_000) as f64;
        assert!((gb_per_s - 10.0).abs() < 0.01, "{gb_per_s}");
    }
}
