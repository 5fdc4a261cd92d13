//! Discards and zone resets: what a cut may bring back, and what makes them durable.

use std::collections::BTreeSet;

use super::*;

/// An unkind drive that takes no time, its zone 2 and its blocks 10 to 13 written and durable.
fn written_drive(profile: &str) -> Arc<Ssd> {
    let drive = Ssd::new(spec(profile).unkind(), Timing::Instant, 1).expect("drive");
    write(&drive, 2 * ZONE, 1..31).expect("write");
    write(&drive, 10, 1..5).expect("write");
    run(&drive, Command::Flush).expect("flush");
    drive
}

fn reset(drive: &Ssd) {
    manage(drive, ZoneAction::Reset, 2 * ZONE).expect("reset");
}

/// What cuts leave of zone 2: how far it is, and its first blocks.
fn left(drive: &Ssd) -> BTreeSet<(u64, Vec<u64>)> {
    let of = |seed| {
        let after = on(drive.survivors(seed));
        (zones(&after)[2].wp - 2 * ZONE, read(&after, 2 * ZONE, 3))
    };
    (0..40).map(of).collect()
}

#[test]
fn a_cut_may_bring_back_what_a_zone_held() {
    let drive = written_drive("zn540-noplp");
    reset(&drive);
    assert_eq!(read(&drive, 2 * ZONE, 3), [0; 3], "to its host the zone is empty");
    assert_eq!(zones(&drive)[2].state, ZoneState::Empty);
    let (old, empty) = ((30, vec![1, 2, 3]), (0, vec![0; 3]));
    assert_eq!(left(&drive), [old.clone(), empty.clone()].into());
    // A block that is only buffered proves nothing about the reset, and neither does a second
    // reset.
    write(&drive, 2 * ZONE, 50..52).expect("write");
    assert_eq!(left(&drive), [old.clone(), empty.clone()].into());
    reset(&drive);
    assert_eq!(left(&drive), [old, empty.clone()].into());
    run(&drive, Command::Flush).expect("flush");
    assert_eq!(left(&drive), [empty].into());
}

/// A durable block of the zone proves that its reset is durable.
#[test]
fn a_durable_write_makes_the_reset_durable() {
    let drive = written_drive("zn540-noplp");
    reset(&drive);
    let data: Blocks = [block(60)].into_iter().collect();
    run(&drive, Command::Write { lba: 2 * ZONE, data, fua: true }).expect("write");
    assert_eq!(left(&drive), [(1, vec![60, 0, 0])].into());
}

#[test]
fn a_durable_finish_makes_the_reset_durable() {
    let drive = written_drive("zn540-noplp");
    reset(&drive);
    manage(&drive, ZoneAction::Finish, 2 * ZONE).expect("finish");
    assert_eq!(left(&drive), [(ZONE, vec![0; 3])].into());
}

/// Each discarded block is gone or back by itself; a later write that is durable stays.
#[test]
fn a_cut_may_bring_back_what_was_discarded() {
    let drive = written_drive("zn540-noplp");
    let blocks = |seed| read(&on(drive.survivors(seed)), 10, 4);
    run(&drive, Command::Discard { lba: 9, blocks: 3 }).expect("discard");
    run(&drive, Command::Discard { lba: 11, blocks: 3 }).expect("discard");
    assert_eq!(read(&drive, 10, 4), [0; 4]);
    let seen: BTreeSet<Vec<u64>> = (0..400).map(blocks).collect();
    assert_eq!(seen.len(), 16, "{seen:?}");
    let data: Blocks = [block(70)].into_iter().collect();
    run(&drive, Command::Write { lba: 11, data, fua: true }).expect("write");
    assert_eq!(read(&drive, 10, 4), [0, 70, 0, 0]);
    let seen: BTreeSet<Vec<u64>> = (0..400).map(blocks).collect();
    assert!(seen.len() == 8 && seen.iter().all(|left| left[1] == 70), "{seen:?}");
    run(&drive, Command::Flush).expect("flush");
    assert!((0..40).all(|seed| blocks(seed) == [0, 70, 0, 0]));
}

/// NVMe base 2.0, Flush: it covers the commands that were completed before it came. With power-loss
/// protection what was completed needs none.
#[test]
fn what_was_under_way_when_a_flush_came_may_be_undone() {
    let reset = || Command::ManageZone { action: ZoneAction::Reset, zone: Some(2 * ZONE) };
    for (profile, mut until) in [("zn540-noplp", 2), ("zn540", 1)] {
        let state = written_drive(profile).survivors(0);
        let mut model = Model::new(state, 1, false);
        let back = |model: &Model| {
            (0..40).any(|seed| model.survivors(seed).write_pointers().nth(2) == Some(30))
        };
        model.submit(0, 0, reset());
        model.submit(1, 1, Command::Flush);
        while !model.is_done(1) {
            assert!(model.step(Nanos::MAX - 1));
        }
        assert!(!model.is_done(0) && back(&model), "{profile}: an erase takes longer");
        while !model.is_done(0) {
            assert!(model.step(Nanos::MAX - 1));
        }
        until -= 1;
        assert_eq!(back(&model), until > 0, "{profile}");
        model.submit(1, 2, Command::Flush);
        model.advance(model.clock + 1_000_000_000);
        assert!(!back(&model), "{profile}");
    }
}

/// A drive has resources for a limited number of active zones, and a cut brings back no more.
#[test]
fn no_more_zones_come_back_than_can_be_active() {
    let limited = spec("zn540-noplp").limits(Some(2), Some(2)).unkind();
    let drive = Ssd::new(limited, Timing::Instant, 1).expect("drive");
    write(&drive, 2 * ZONE, 1..3).expect("write");
    write(&drive, 3 * ZONE, 1..3).expect("write");
    run(&drive, Command::Flush).expect("flush");
    reset(&drive);
    let pointers = |seed| drive.survivors(seed).write_pointers().skip(2).take(3).collect();
    let seen: BTreeSet<Vec<u64>> = (0..40).map(pointers).collect();
    assert_eq!(seen, [vec![0, 2, 0], vec![2, 2, 0]].into());
    let data: Blocks = [block(60)].into_iter().collect();
    run(&drive, Command::Write { lba: 4 * ZONE, data, fua: true }).expect("write");
    let seen: BTreeSet<Vec<u64>> = (0..40).map(pointers).collect();
    assert_eq!(seen, [vec![0, 2, 1]].into());
}

/// Switched off in good order, or asked what it holds, a drive undoes nothing.
#[test]
fn power_off_settles_all() {
    let drive = written_drive("zn540-noplp");
    reset(&drive);
    run(&drive, Command::Discard { lba: 10, blocks: 4 }).expect("discard");
    write(&drive, 2 * ZONE, 50..52).expect("write");
    for state in [drive.hold(), drive.power_off()] {
        let after = on(state);
        assert_eq!(read(&after, 2 * ZONE, 3), [50, 51, 0]);
        assert_eq!(read(&after, 10, 4), [0; 4]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Ranges and single blocks against a map of what was discarded when.
    #[test]
    fn holes_are_those_of_a_map(
        ops in prop::collection::vec((0u8..3, 0u64..40, 1u64..12), 1..40)
    ) {
        let (mut undo, mut holes) = (super::super::undo::Undo::default(), BTreeMap::new());
        for (op, lba, blocks) in ops {
            if op == 0 {
                undo.fill(lba);
                holes.remove(&lba);
            } else {
                undo.last += 1;
                undo.dig(lba, lba + blocks);
                for lba in lba..lba + blocks {
                    holes.entry(lba).or_insert(undo.last);
                }
            }
            for lba in 0..60 {
                prop_assert_eq!(undo.discard_of(lba), holes.get(&lba).copied());
            }
        }
    }
}
