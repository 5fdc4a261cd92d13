//! Random runs of commands, cut anywhere.

use std::collections::BTreeMap;

use cores::Mutex;
use proptest::prelude::*;

use super::*;

/// A random run of commands; returns the drive and what was written where.
fn play(drive: &Ssd, ops: &[(u8, u64, u64)]) -> BTreeMap<u64, Vec<u64>> {
    let mut model: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (count, (op, zone, blocks)) in (1u64..).zip(ops) {
        let zone = 2 + zone % 6;
        let written = model.entry(zone).or_default();
        match op {
            0 => drop(run(drive, Command::Flush).expect("flush")),
            1 if *blocks == 1 => {
                manage(drive, ZoneAction::Reset, zone * ZONE).expect("reset");
                written.clear();
            }
            _ => {
                let at = written.len() as u64;
                let blocks = (*blocks).min(CAPACITY - at);
                if blocks > 0 {
                    let range = count * 100..count * 100 + blocks;
                    write(drive, zone * ZONE + at, range.clone()).expect("write");
                    written.extend(range);
                }
            }
        }
        let model = drive.model.lock();
        for cell in &model.zones.as_ref().expect("zoned").cells {
            assert!(cell.nand <= cell.scheduled && cell.scheduled <= cell.buffered);
            assert!(cell.buffered <= cell.accepted && cell.accepted <= CAPACITY.max(ZONE));
            assert_eq!(cell.pending.len() as u64, cell.accepted - cell.nand);
        }
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Pointers keep their order after every command, what is there reads back, and a cut leaves a
    /// prefix of each zone; after a flush all of it.
    #[test]
    fn a_cut_leaves_prefixes(
        ops in prop::collection::vec((0u8..6, 0u64..6, 1u64..40), 1..60), seed: u64
    ) {
        for profile in ["zn540", "zn540-noplp", "ram"] {
            let drive = drive(profile);
            let written = play(&drive, &ops);
            let after = on(drive.survivors(seed));
            for (&zone, written) in &written {
                let wp = zones(&after)[zone as usize].wp.min(zone * ZONE + CAPACITY) - zone * ZONE;
                let kept = wp as usize;
                prop_assert!(kept <= written.len());
                prop_assert!(profile == "zn540-noplp" || kept == written.len());
                let mut expected = written[..kept].to_vec();
                expected.resize(CAPACITY as usize, 0);
                prop_assert_eq!(read(&after, zone * ZONE, CAPACITY as u32), expected);
                let held = read(&drive, zone * ZONE, CAPACITY as u32);
                prop_assert_eq!(&held[..written.len()], written);
            }
            run(&drive, Command::Flush).expect("flush");
            let after = drive.cut(seed);
            for (&zone, written) in &written {
                let wp = after.write_pointers().nth(zone as usize).expect("zone");
                prop_assert_eq!(wp, written.len() as u64);
            }
        }
    }

    /// The observer sees at each event what a cut at that point leaves: one run tries all cuts.
    #[test]
    fn survivors_at_an_event_are_those_of_a_cut_there(
        ops in prop::collection::vec((0u8..6, 0u64..3, 1u64..40), 1..25)
    ) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let watched = drive("zn540-noplp");
        let log = Arc::clone(&seen);
        watched.observe(Box::new(move |event, moment| {
            let pointers: Vec<u64> = moment.survivors(7).write_pointers().collect();
            log.lock().push((event.cut_point(), pointers));
        }));
        play(&watched, &ops);
        prop_assert!(watched.unobserve().is_some());
        for (point, expected) in seen.lock().iter() {
            let drive = drive("zn540-noplp");
            drive.after_cut(AfterCut::SayYes);
            drive.cut_at(*point, 7);
            for command in replay(&ops) {
                let _ = run(&drive, command);
            }
            let left: Vec<u64> = drive.fallen().expect("cut").write_pointers().collect();
            prop_assert_eq!(&left, expected, "{:?}", point);
        }
    }
}

/// The commands [`play`] sends, without looking at the answers.
fn replay(ops: &[(u8, u64, u64)]) -> Vec<Command> {
    let mut written = [0u64; 8];
    let mut commands = Vec::new();
    for (op, zone, blocks) in ops {
        let zone = 2 + zone % 6;
        let at = &mut written[zone as usize];
        match op {
            0 => commands.push(Command::Flush),
            1 if *blocks == 1 => {
                let zone = Some(zone * ZONE);
                commands.push(Command::ManageZone { action: ZoneAction::Reset, zone });
                *at = 0;
            }
            _ => {
                let blocks = (*blocks).min(CAPACITY - *at);
                if blocks > 0 {
                    let data = (0..blocks).map(block).collect();
                    commands.push(Command::Write { lba: zone * ZONE + *at, data, fua: false });
                    *at += blocks;
                }
            }
        }
    }
    commands
}
