//! `NAME.zones`: the make of a drive and its zones, as lines of text.
//!
//! ```text
//! strandline zones 1
//! profile zn540-noplp
//! zone-size 524288
//! zone-capacity 275712
//! zones 904
//! conventional 2
//! max-open 14
//! max-active 14
//! zone 3 cl 4711
//! end
//! zone 3 fu 275712 finished
//! ```
//!
//! Up to `end` the file is written as a whole and renamed into place; a file without `end` is
//! damaged. Changes are appended after it, and the last line for a zone counts. A last line without
//! its newline was not completed by a dying process, and does not count. A drive without zones has
//! `blocks N` in place of the zone lines. A line `unkind` marks an unkind drive; a line `tearing`
//! says that a cut may tear its blocks, whatever its profile says. Addresses and sizes are in 4 KiB
//! blocks, `-` means no limit, and states are abbreviated as `blkzone` does it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{ImageError, at};
use crate::blkzone::{state_name, state_named};
use crate::ssd::{SavedZone, ZoneLog};
use crate::{Spec, ZoneState};

const MAGIC: &str = "strandline zones 1";
/// If more bytes than this have been appended, the file is rewritten.
const COMPACT_ABOVE: u64 = 1 << 20;
/// A drive has at most 2^22 zones, and a line some thirty bytes. A longer file is not a zones file.
const MAX_BYTES: u64 = 1 << 28;

/// A zones file to which changes are appended.
pub(super) struct ZonesFile {
    path: PathBuf,
    spec: Spec,
    file: File,
    last: Vec<SavedZone>,
    appended: u64,
    /// Lines were appended that the host may lose with its power.
    unsynced: bool,
}

impl ZonesFile {
    /// Writes a zones file. One that exists is replaced as a whole.
    pub(super) fn write_new(
        path: &Path,
        spec: &Spec,
        zones: &[SavedZone],
    ) -> Result<(), ImageError> {
        replace(path, &print(spec, zones)?).map_err(at(path))
    }

    /// Takes over an existing zones file, and rewrites it without appended lines.
    pub(super) fn reopen(
        path: &Path,
        spec: &Spec,
        zones: &[SavedZone],
    ) -> Result<Self, ImageError> {
        Self::write_new(path, spec, zones)?;
        let file = append_to(path).map_err(at(path))?;
        let (path, spec, last) = (path.to_owned(), spec.clone(), zones.to_vec());
        Ok(Self { path, spec, file, last, appended: 0, unsynced: false })
    }

    fn compact(&mut self) -> io::Result<()> {
        let text = print(&self.spec, &self.last).map_err(io::Error::other)?;
        replace(&self.path, &text)?;
        self.file = append_to(&self.path)?;
        (self.appended, self.unsynced) = (0, false);
        Ok(())
    }

    /// Appends lines for the present states in `last`.
    fn append(&mut self, lines: &str) -> io::Result<()> {
        if self.appended > COMPACT_ABOVE {
            return self.compact();
        }
        let appended = self.appended + lines.len() as u64;
        // A partial line would spoil the next one, so the file is rewritten next.
        self.appended = u64::MAX;
        self.file.write_all(lines.as_bytes())?;
        (self.appended, self.unsynced) = (appended, true);
        Ok(())
    }
}

impl ZoneLog for ZonesFile {
    fn note(&mut self, zone: usize, state: SavedZone) -> io::Result<()> {
        match self.last.get_mut(zone) {
            Some(last) if *last != state => *last = state,
            _ => return Ok(()),
        }
        self.append(&zone_line(zone, &state))
    }

    fn record(&mut self, zones: &[SavedZone]) -> io::Result<()> {
        let changed = zones.iter().enumerate().filter(|(n, zone)| self.last.get(*n) != Some(zone));
        let lines: String = changed.map(|(n, zone)| zone_line(n, zone)).collect();
        if !lines.is_empty() || self.appended > COMPACT_ABOVE {
            self.last = zones.to_vec();
            self.append(&lines)?;
        }
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
        }
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// Replaces `path` with `text`, so that at any time the old or the new file is there.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut file = File::create(&beside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written
        .and_then(|()| fs::rename(&beside, path))
        .inspect_err(|_| drop(fs::remove_file(&beside)))?;
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn print(spec: &Spec, zones: &[SavedZone]) -> Result<String, ImageError> {
    let identify = spec.identify()?;
    let mut text = format!("{MAGIC}\nprofile {}\n", spec.profile().name);
    for (is_so, line) in [(spec.is_unkind(), "unkind\n"), (spec.is_tearing(), "tearing\n")] {
        text += if is_so { line } else { "" };
    }
    let Some(geometry) = identify.zones else {
        return Ok(text + &format!("blocks {}\nend\n", identify.blocks));
    };
    let limit = |limit: Option<u32>| limit.map_or_else(|| "-".to_owned(), |n| n.to_string());
    text += &format!(
        "zone-size {}\nzone-capacity {}\nzones {}\nconventional {}\nmax-open {}\nmax-active {}\n",
        geometry.size,
        geometry.capacity,
        geometry.count,
        geometry.conventional,
        limit(geometry.max_open),
        limit(geometry.max_active),
    );
    let worth_a_line =
        |zone: &SavedZone| !matches!(zone.state, ZoneState::NotWritePointer | ZoneState::Empty);
    let zones = zones.iter().enumerate().filter(|(_, zone)| worth_a_line(zone));
    text.extend(zones.map(|(number, zone)| zone_line(number, zone)));
    Ok(text + "end\n")
}

fn zone_line(number: usize, zone: &SavedZone) -> String {
    let finished = if zone.sealed { " finished" } else { "" };
    format!("zone {number} {} {}{finished}\n", state_name(zone.state), zone.wp)
}

/// Reads a zones file: the make of the drive and its zones.
pub(super) fn read(path: &Path) -> Result<(Spec, Vec<SavedZone>), ImageError> {
    let metadata = fs::metadata(path).map_err(at(path))?;
    if !metadata.is_file() {
        return Err(ImageError::NotAFile(path.to_owned()));
    }
    let damaged =
        |line, what: &str| ImageError::Zones { path: path.to_owned(), line, what: what.to_owned() };
    if metadata.len() > MAX_BYTES {
        return Err(damaged(1, "too long for a zones file"));
    }
    let bytes = fs::read(path).map_err(at(path))?;
    let text = String::from_utf8(bytes).map_err(|_| damaged(1, "not text"))?;
    let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
    let mut lines = (1..).zip(complete.lines());
    if lines.next().is_none_or(|(_, magic)| magic != MAGIC) {
        return Err(damaged(1, "not a zones file of version 1"));
    }
    let mut parser = Parser::default();
    let mut last = 1;
    for (number, line) in lines {
        parser.line(line).map_err(|what| damaged(number, what))?;
        last = number;
    }
    if !parser.ended {
        return Err(damaged(last, "cut short: there is no 'end'"));
    }
    let spec = parser.spec().map_err(|error| damaged(last, &error.to_string()))?;
    let zones = parser.place(&spec).map_err(|what| damaged(last, what))?;
    Ok((spec, zones))
}

#[derive(Default)]
struct Parser {
    profile: String,
    unkind: bool,
    tearing: bool,
    blocks: Option<u64>,
    size: Option<u64>,
    capacity: Option<u64>,
    count: Option<u32>,
    conventional: Option<u32>,
    max_open: Option<u32>,
    max_active: Option<u32>,
    zones: Vec<(usize, SavedZone)>,
    ended: bool,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        if self.ended && key != "zone" {
            return Err("behind 'end' there are only zones");
        }
        match key {
            "profile" => value.clone_into(&mut self.profile),
            "unkind" if value.is_empty() => self.unkind = true,
            "tearing" if value.is_empty() => self.tearing = true,
            "blocks" => self.blocks = Some(number(value)?),
            "zone-size" => self.size = Some(number(value)?),
            "zone-capacity" => self.capacity = Some(number(value)?),
            "zones" => self.count = Some(number(value)?),
            "conventional" => self.conventional = Some(number(value)?),
            "max-open" => self.max_open = limit(value)?,
            "max-active" => self.max_active = limit(value)?,
            "zone" => self.zones.push(zone(value)?),
            "end" if value.is_empty() => self.ended = true,
            _ => return Err("not a line of a zones file"),
        }
        Ok(())
    }

    fn spec(&self) -> Result<Spec, crate::ProfileError> {
        let mut spec = Spec::named(&self.profile)?;
        if self.unkind {
            spec = spec.unkind();
        }
        if self.tearing {
            spec = spec.tearing();
        }
        if let Some(blocks) = self.blocks {
            spec = spec.blocks(blocks);
        }
        if let (Some(size), Some(capacity)) = (self.size, self.capacity) {
            spec = spec.zone_size(size, capacity).limits(self.max_open, self.max_active);
        }
        if let (Some(count), Some(conventional)) = (self.count, self.conventional) {
            spec = spec.zones(count, conventional);
        }
        spec.identify()?;
        Ok(spec)
    }

    /// All zones of the drive: those that have a line, and the rest as empty.
    fn place(&self, spec: &Spec) -> Result<Vec<SavedZone>, &'static str> {
        let Ok(Some(geometry)) = spec.identify().map(|identify| identify.zones) else {
            let none = self.zones.is_empty();
            return if none { Ok(Vec::new()) } else { Err("zones of a drive without zones") };
        };
        let conventional = geometry.conventional as usize;
        let empty = |number| SavedZone {
            state: if number < conventional {
                ZoneState::NotWritePointer
            } else {
                ZoneState::Empty
            },
            wp: 0,
            sealed: false,
        };
        let mut zones: Vec<SavedZone> = (0..geometry.count as usize).map(empty).collect();
        for (number, saved) in &self.zones {
            let place = zones.get_mut(*number).ok_or("a zone beyond the last")?;
            let random = saved.state == ZoneState::NotWritePointer;
            if random != (*number < conventional) {
                return Err("a conventional zone with the state of a sequential one, or reverse");
            }
            if saved.wp > geometry.capacity || (saved.state == ZoneState::Empty && saved.wp > 0) {
                return Err("a write pointer that its zone cannot have");
            }
            *place = *saved;
        }
        let active = zones.iter().filter(|zone| zone.state == ZoneState::Closed).count();
        match geometry.max_active {
            Some(max) if active > max as usize => Err("more active zones than the drive can have"),
            _ => Ok(zones),
        }
    }
}

fn zone(value: &str) -> Result<(usize, SavedZone), &'static str> {
    let mut words = value.split(' ');
    let mut word = || words.next().ok_or("a zone needs number, state and write pointer");
    let place = number(word()?)?;
    let state = state_named(word()?).ok_or("unknown zone state")?;
    let wp = number(word()?)?;
    let sealed = match words.next() {
        None => false,
        Some("finished") => true,
        Some(_) => return Err("not a line of a zones file"),
    };
    if matches!(state, ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen) {
        return Err("no zone is open without power");
    }
    Ok((place, SavedZone { state, wp, sealed }))
}

fn number<N: std::str::FromStr>(value: &str) -> Result<N, &'static str> {
    value.parse().map_err(|_| "not a number, or too large")
}

fn limit(value: &str) -> Result<Option<u32>, &'static str> {
    if value == "-" { Ok(None) } else { number(value).map(Some) }
}
