//! The text `blkzone report` prints, written and read.
//!
//! Format: util-linux `blkzone`, one line per zone, all numbers in 512-byte sectors, the write
//! pointer relative to the zone. Versions before 2.37 print no capacity; then it is the length.

use std::fmt::Write as _;

use thiserror::Error;

use crate::{Zone, ZoneKind, ZoneState};

const SECTORS_PER_BLOCK: u64 = 8;

/// A line that `blkzone report` never prints.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("zone report, line {line}: {what}")]
pub struct ReportError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// Code, abbreviation and state, as in `blkzone`.
const STATES: [(u8, &str, ZoneState); 8] = [
    (0x0, "nw", ZoneState::NotWritePointer),
    (0x1, "em", ZoneState::Empty),
    (0x2, "oi", ZoneState::ImplicitlyOpen),
    (0x3, "oe", ZoneState::ExplicitlyOpen),
    (0x4, "cl", ZoneState::Closed),
    (0xd, "ro", ZoneState::ReadOnly),
    (0xe, "fu", ZoneState::Full),
    (0xf, "of", ZoneState::Offline),
];

/// The abbreviation of a state, as in `blkzone`.
pub fn state_name(state: ZoneState) -> &'static str {
    STATES.iter().find(|(.., known)| *known == state).map_or("nw", |(_, name, _)| name)
}

/// The state with this code, which is the same in ZNS and in `enum blk_zone_cond`.
pub(crate) fn state_of_code(code: u8) -> Option<ZoneState> {
    STATES.iter().find(|(known, ..)| *known == code).map(|(.., state)| *state)
}

/// The state with this abbreviation.
pub fn state_named(name: &str) -> Option<ZoneState> {
    STATES.iter().find(|(_, known, _)| *known == name).map(|(.., state)| *state)
}

/// The report of `zones`, as `blkzone report` prints it.
pub fn print(zones: &[Zone]) -> String {
    let mut text = String::with_capacity(zones.len() * 128);
    for zone in zones {
        let sectors = |blocks: u64| blocks.saturating_mul(SECTORS_PER_BLOCK);
        let (kind, kind_name, wp) = match zone.kind {
            ZoneKind::Conventional => (1, "CONVENTIONAL", 0),
            ZoneKind::SequentialWriteRequired => {
                (2, "SEQ_WRITE_REQUIRED", zone.wp.saturating_sub(zone.start))
            }
        };
        let (code, state, _) = STATES.iter().find(|(.., s)| *s == zone.state).unwrap_or(&STATES[0]);
        let _infallible = writeln!(
            text,
            "  start: 0x{:09x}, len 0x{:06x}, cap 0x{:06x}, wptr 0x{:06x} reset:0 non-seq:0, \
             zcond:{code:2}({state}) [type: {kind}({kind_name})]",
            sectors(zone.start),
            sectors(zone.size),
            sectors(zone.capacity),
            sectors(wp),
        );
    }
    text
}

/// The zones of a report. They must follow one another without gaps, in whole 4 KiB blocks.
pub fn parse(text: &str) -> Result<Vec<Zone>, ReportError> {
    let mut zones: Vec<Zone> = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim().is_empty() {
            continue;
        }
        let zone = parse_line(content).map_err(|what| ReportError { line, what })?;
        let expected = zones.last().map_or(0, |last| last.start.saturating_add(last.size));
        if zone.start != expected {
            return Err(ReportError { line, what: "does not start where the zone before ends" });
        }
        zones.push(zone);
    }
    if zones.is_empty() {
        return Err(ReportError { line: 1, what: "no zones" });
    }
    Ok(zones)
}

fn parse_line(line: &str) -> Result<Zone, &'static str> {
    let start = sectors(line, "start:")?.ok_or("no 'start:'")?;
    let size = sectors(line, "len")?.ok_or("no 'len'")?;
    let capacity = sectors(line, "cap")?.unwrap_or(size);
    let wp = sectors(line, "wptr")?.ok_or("no 'wptr'")?;
    let state = number_before(line, "zcond:", '(')?;
    let kind = number_before(line, "type:", '(')?;
    let state = u8::try_from(state).ok().and_then(state_of_code).ok_or("unknown 'zcond'")?;
    let kind = match kind {
        1 => ZoneKind::Conventional,
        2 => ZoneKind::SequentialWriteRequired,
        _ => return Err("a zone type other than conventional and sequential write required"),
    };
    if size == 0 || capacity == 0 || capacity > size || wp > size {
        return Err("length, capacity and write pointer do not fit each other");
    }
    let conventional = kind == ZoneKind::Conventional;
    if conventional != (state == ZoneState::NotWritePointer) {
        return Err("type and 'zcond' do not fit each other");
    }
    let offset = if conventional || state == ZoneState::Full { size } else { wp };
    let wp = start.checked_add(offset).ok_or("write pointer out of range")?;
    start.checked_add(size).ok_or("zone out of range")?;
    Ok(Zone { start, size, capacity, wp, kind, state })
}

/// The hexadecimal number behind `name`, in blocks.
fn sectors(line: &str, name: &str) -> Result<Option<u64>, &'static str> {
    let Some((_, rest)) = line.split_once(name) else { return Ok(None) };
    let digits = rest.trim_start().strip_prefix("0x").ok_or("a number without 0x")?;
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    let number = u64::from_str_radix(&digits[..end], 16).map_err(|_| "not a number")?;
    if number.is_multiple_of(SECTORS_PER_BLOCK) {
        Ok(Some(number / SECTORS_PER_BLOCK))
    } else {
        Err("not a multiple of 4096 bytes")
    }
}

fn number_before(line: &str, name: &str, end: char) -> Result<u64, &'static str> {
    let (_, rest) = line.split_once(name).ok_or("no 'zcond:' or no 'type:'")?;
    let (digits, _) = rest.split_once(end).ok_or("no '(' behind a code")?;
    digits.trim().parse().map_err(|_| "a code that is no number")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lines as the real tool printed them for a null_blk device and for a ZN540.
    const REAL: &str = concat!(
        "  start: 0x000000000, len 0x080000, cap 0x080000, wptr 0x000000 ",
        "reset:0 non-seq:0, zcond: 0(nw) [type: 1(CONVENTIONAL)]\n",
        "  start: 0x000080000, len 0x080000, cap 0x080000, wptr 0x000008 ",
        "reset:0 non-seq:0, zcond: 4(cl) [type: 2(SEQ_WRITE_REQUIRED)]\n",
        "  start: 0x000100000, len 0x400000, cap 0x21a800, wptr 0x400000 ",
        "reset:0 non-seq:0, zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]\n",
    );

    #[test]
    fn reads_and_prints_what_the_tool_prints() {
        let zones = parse(REAL).expect("real report");
        assert_eq!(print(&zones), REAL);
        assert_eq!((zones[1].start, zones[1].wp), (0x10000, 0x10001));
        assert_eq!((zones[2].capacity, zones[2].state), (1077 << 8, ZoneState::Full));
        let old = REAL.replace(", cap 0x080000", "").replace(", cap 0x21a800", "");
        assert!(
            parse(&old).expect("util-linux 2.36").iter().all(|zone| zone.capacity == zone.size)
        );
    }

    #[test]
    fn says_which_line_is_wrong() {
        for (from, to, what) in [
            ("wptr 0x000008", "wptr 0x000009", "4096"),
            ("wptr 0x000008", "wptr 0x900000", "fit"),
            ("0x000080000", "0x000090000", "start"),
            ("zcond: 4", "zcond: 9", "zcond"),
            ("len 0x080000", "len 0xffffffffffffffffff", "number"),
            ("start: 0x000080000", "start: 80000", "0x"),
        ] {
            let error = parse(&REAL.replacen(from, to, 9)).expect_err(to).to_string();
            assert!(error.contains(what), "{error}");
        }
        assert_eq!(parse("").expect_err("empty").line, 1);
    }

    fn zone() -> impl Strategy<Value = (u64, u64, u64, usize)> {
        (1u64..1 << 20).prop_flat_map(|size| (Just(size), 1..=size, 0..=size, 0usize..8))
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(made in prop::collection::vec(zone(), 1..20)) {
            let mut start = 0;
            let zones: Vec<Zone> = made.into_iter().map(|(size, capacity, wp, state)| {
                let state = STATES[state].2;
                let conventional = state == ZoneState::NotWritePointer;
                let at_end = conventional || state == ZoneState::Full;
                let wp = start + if at_end { size } else { wp };
                let kind = if conventional {
                    ZoneKind::Conventional
                } else {
                    ZoneKind::SequentialWriteRequired
                };
                start += size;
                Zone { start: start - size, size, capacity, wp, kind, state }
            }).collect();
            prop_assert_eq!(parse(&print(&zones)).expect("own report"), zones);
        }

        #[test]
        fn nothing_panics(text in ".{0,200}") {
            let _ = parse(&text);
            let _ = parse(&format!("  start: 0x{text}"));
        }
    }
}
