//! Workloads as text: one operation a line, in the language of [`vfs::ops`] and four more words.
//!
//! ```text
//! # What is above `begin` is durable before a cut can happen; without it, nothing is.
//! create log
//! write log 0+8192
//! begin
//! append log 300
//! fsync log
//! ```
//!
//! `clean` has the cleaner look for a section, `footprint BYTES` asks for a drive with that much
//! room, and `mount OPTIONS` adds to the mode's mount options. A handle (`open PATH NAME`, then
//! `#NAME`) stands for a file whatever became of its names. Symbolic links are made, not followed.
//!
//! A script that does not say how much room it needs gets as much as it writes and some more. What
//! it may ask for is bounded, so that no file makes a run use all memory.

mod play;
mod tape;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use vfs::ops::{Op, is_comment};

use super::Workload;
use crate::campaign::Job;
use crate::workload::recorder::Recorder;
use crate::{Error, Result};

pub(crate) use play::Player;
pub(crate) use tape::{Tape, handle};

/// What writes and values of attributes of a recorded run hold, by their seed.
pub type Contents = BTreeMap<u32, Vec<u8>>;

/// Bytes of a file that are read at most.
const FILE_MAX: u64 = 16 << 20;
/// Operations of a script.
pub(super) const STEPS_MAX: usize = 100_000;
/// Bytes a script may write, each write counted in whole blocks.
pub(super) const WRITTEN_MAX: u64 = 512 << 20;
/// Largest size of a file.
const END_MAX: u64 = 1 << 40;
/// Largest drive to ask for.
const FOOTPRINT_MAX: u64 = 64 << 30;
/// Largest value of an extended attribute, as xattr(7) has it.
const XATTR_MAX: u64 = 64 << 10;
const BLOCK: u64 = drive::BLOCK_SIZE as u64;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptStep {
    /// A system call.
    Do(Op),
    /// Everything before is made durable; from here on the power may fail.
    Begin,
    /// The cleaner is asked for a section.
    Clean,
}

impl fmt::Display for ScriptStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Do(op) => op.fmt(f),
            Self::Begin => f.write_str("begin"),
            Self::Clean => f.write_str("clean"),
        }
    }
}

/// A step and the line it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    number: usize,
    step: ScriptStep,
}

/// A workload that was read or recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    name: String,
    /// For messages.
    file: String,
    lines: Vec<Line>,
    footprint: Option<u64>,
    mount: String,
}

impl Script {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self> {
        let text = read_bounded(path, FILE_MAX)?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Parses a text; `file` is its name in messages.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        let mut script = Self::empty(&format!("file:{file}"), file);
        let mut budget = Budget::default();
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if is_comment(line) {
                continue;
            }
            let taken = script.take(line, number, &mut budget);
            taken.map_err(|what| Error::Usage(format!("{file}:{number}: {what} in '{line}'")))?;
        }
        if script.lines.is_empty() {
            return Err(Error::Usage(format!("{file}: no operation in it")));
        }
        Ok(script)
    }

    fn empty(name: &str, file: &str) -> Self {
        let (name, file) = (name.to_owned(), file.to_owned());
        Self { name, file, lines: Vec::new(), footprint: None, mount: String::new() }
    }

    /// A script of these steps.
    pub(crate) fn of_steps(
        name: &str,
        steps: Vec<ScriptStep>,
        footprint: Option<u64>,
        mount: &str,
    ) -> Result<Self> {
        let mut script = Self { footprint, mount: mount.into(), ..Self::empty(name, name) };
        let mut budget = Budget::default();
        for (step, number) in steps.into_iter().zip(1..) {
            budget.spend(&step).map_err(|what| Error::Usage(format!("{name}: {what}")))?;
            script.lines.push(Line { number, step });
        }
        Ok(script)
    }

    fn take(&mut self, line: &str, number: usize, budget: &mut Budget) -> Result<(), String> {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let step = match word {
            "footprint" => {
                let bytes = rest.trim().parse().ok().filter(|bytes| *bytes <= FOOTPRINT_MAX);
                let wrong = || format!("expected a number of bytes up to {FOOTPRINT_MAX}");
                self.footprint = Some(bytes.ok_or_else(wrong)?);
                return Ok(());
            }
            "mount" => {
                self.mount = format!(",{}", rest.trim());
                return Ok(());
            }
            "begin" | "clean" if !rest.is_empty() => return Err(format!("unexpected '{rest}'")),
            "begin" if self.begins() => return Err("a second 'begin'".into()),
            "begin" => ScriptStep::Begin,
            "clean" => ScriptStep::Clean,
            _ => ScriptStep::Do(Op::parse_line(line, number)?),
        };
        budget.spend(&step)?;
        self.lines.push(Line { number, step });
        Ok(())
    }

    fn begins(&self) -> bool {
        self.lines.iter().any(|line| line.step == ScriptStep::Begin)
    }

    /// The steps.
    pub fn steps(&self) -> Vec<ScriptStep> {
        self.lines.iter().map(|line| line.step.clone()).collect()
    }

    /// The same with other steps, on the same drive.
    pub(crate) fn with_steps(&self, steps: &[ScriptStep]) -> Self {
        let lines = steps.iter().cloned().zip(1..);
        let lines = lines.map(|(step, number)| Line { number, step }).collect();
        Self { lines, footprint: Some(self.footprint()), ..self.clone() }
    }

    /// As [`Script::parse`] reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(bytes) = self.footprint {
            text += &format!("footprint {bytes}\n");
        }
        if let Some(options) = self.mount.strip_prefix(',') {
            text += &format!("mount {options}\n");
        }
        self.lines.iter().fold(text, |text, line| text + &format!("{}\n", line.step))
    }

    /// What the workload of `job` does on its drive.
    pub fn record(job: &Job) -> Result<Self> {
        let workload = &*job.workload;
        let (footprint, mount) = (Some(workload.footprint()), workload.mount_options());
        Self::of_steps(workload.name(), tape::record(job)?, footprint, mount)
    }
}

impl Workload for Script {
    fn name(&self) -> &str {
        &self.name
    }

    fn footprint(&self) -> u64 {
        self.footprint.unwrap_or_else(|| {
            let mut budget = Budget::default();
            self.lines.iter().for_each(|line| drop(budget.spend(&line.step)));
            // An fsync writes some nodes.
            (16 << 20) + 2 * budget.written + 16 * BLOCK * self.lines.len() as u64
        })
    }

    fn mount_options(&self) -> &str {
        &self.mount
    }

    fn run(&self, fs: &Recorder, _seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let contents = Contents::new();
        let mut player = Player::new(fs, fs.root(), &contents);
        if !self.begins() {
            fs.sync()?;
            started();
        }
        for Line { number, step } in &self.lines {
            let done = match step {
                ScriptStep::Begin => fs.sync().map(|()| started()),
                ScriptStep::Clean => fs.clean(),
                ScriptStep::Do(op) => player.apply(op),
            };
            done.map_err(|error| match error {
                Error::Full => Error::Full,
                error => Error::Usage(format!("{}:{number}: '{step}': {}", self.file, why(&error))),
            })?;
        }
        player.finish();
        Ok(())
    }
}

/// What went wrong, without the operation, which the line shows.
fn why(error: &Error) -> String {
    match error {
        Error::FileSystem { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

/// How much of its limits a script has used.
#[derive(Default)]
struct Budget {
    steps: usize,
    written: u64,
}

impl Budget {
    fn spend(&mut self, step: &ScriptStep) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} operations"));
        }
        let ScriptStep::Do(op) = step else { return Ok(()) };
        let (end, written) = match op {
            Op::Write { offset, len, .. } | Op::Fallocate { offset, len, .. } => {
                (offset.checked_add(*len), *len)
            }
            Op::Copy { from_offset, offset, len, .. } => {
                (offset.max(from_offset).checked_add(*len), *len)
            }
            Op::Append { len, .. } | Op::Read { len, .. } => (Some(*len), *len),
            Op::Truncate { size, .. } => (Some(*size), 0),
            Op::SetXattr { len, .. } if *len > XATTR_MAX => {
                return Err(format!("a value of more than {XATTR_MAX} bytes"));
            }
            _ => (Some(0), 0),
        };
        end.filter(|end| *end <= END_MAX)
            .ok_or_else(|| format!("a file beyond {END_MAX} bytes"))?;
        // A write that begins within a block touches one block more.
        let blocks = if written > 0 { written.div_ceil(BLOCK) + 1 } else { 0 };
        self.written = self.written.saturating_add(blocks.saturating_mul(BLOCK));
        if self.written > WRITTEN_MAX {
            return Err(format!("more than {} MiB in all, in whole blocks", WRITTEN_MAX >> 20));
        }
        Ok(())
    }
}

/// A host file as text, if it is no longer than `max` bytes: a device may have no end.
///
/// # Errors
///
/// [`Error::Usage`] if it is longer or no text.
pub fn read_bounded(path: &Path, max: u64) -> Result<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(Error::host(path))?;
    file.take(max + 1).read_to_end(&mut bytes).map_err(Error::host(path))?;
    if bytes.len() as u64 > max {
        let (path, mib) = (path.display(), max >> 20);
        return Err(Error::Usage(format!("{path}: longer than {mib} MiB")));
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::Usage(format!("{}: not UTF-8 text", path.display())))
}

#[cfg(test)]
mod tests;
