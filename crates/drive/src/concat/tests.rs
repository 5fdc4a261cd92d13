use super::*;
use crate::{BLOCK_SIZE, Block, Fault, FaultOn, Spec, Ssd, Timing, Trace, ZoneAction};

fn conventional(blocks: u64) -> Arc<dyn Drive> {
    let spec = Spec::named("conventional-noplp").expect("built in").blocks(blocks);
    Ssd::new(spec, Timing::Instant, 1).expect("sound")
}

/// Zones of 16 blocks of which 12 can be written.
fn zoned(zones: u32, conventional: u32) -> Arc<dyn Drive> {
    let spec = Spec::named("zn540-noplp").expect("built in");
    let spec = spec.zone_size(16, 12).zones(zones, conventional);
    Ssd::new(spec, Timing::Instant, 2).expect("sound")
}

fn run(drive: &dyn Drive, command: Command) -> Result<Output, Status> {
    let answer = drive.issue(0, 3, command).or_else(|| drive.wait_for(0, 3));
    let answer = answer.expect("an answer");
    assert_eq!(answer.cid, 3);
    answer.result
}

fn write(lba: Lba, bytes: impl IntoIterator<Item = u8>) -> Command {
    let data = bytes.into_iter().map(|byte| Block::new([byte; BLOCK_SIZE])).collect();
    Command::Write { lba, data, fua: false }
}

fn read(drive: &dyn Drive, lba: Lba, blocks: u32) -> Vec<u8> {
    match run(drive, Command::Read { lba, blocks }) {
        Ok(Output::Data(data)) => data.iter().map(|block| block[0]).collect(),
        other => panic!("{other:?}"),
    }
}

fn zones(drive: &dyn Drive, lba: Lba, max: u32) -> Vec<Zone> {
    match run(drive, Command::ReportZones { lba, max }) {
        Ok(Output::Zones(zones)) => zones,
        other => panic!("{other:?}"),
    }
}

#[test]
fn addresses_go_on_from_drive_to_drive() {
    let members = vec![(conventional(32), 32), (conventional(20), 16), (conventional(32), 32)];
    let drive = Concat::new(members).expect("joined");
    assert_eq!((drive.identify().blocks, &drive.identify().joined[..]), (80, &[32, 16, 32][..]));
    run(&drive, write(30, 1..=20)).expect("over all three");
    assert_eq!(read(&drive, 29, 23), (0..=20).chain([0, 0]).collect::<Vec<u8>>());
    run(&drive, Command::Discard { lba: 31, blocks: 18 }).expect("discarded");
    assert_eq!(read(&drive, 29, 22), [vec![0, 1], vec![0; 18], vec![20, 0]].concat());
    for (lba, blocks) in [(80, 1), (79, 2), (Lba::MAX, 1)] {
        let refused = run(&drive, Command::Read { lba, blocks });
        assert_eq!(refused.expect_err("outside"), Status::LbaOutOfRange);
    }
    let report = Command::ReportZones { lba: 0, max: 9 };
    assert_eq!(run(&drive, report).expect_err("no zones"), Status::InvalidOpcode);
}

#[test]
fn conventional_drives_are_conventional_zones() {
    let drive = Concat::new(vec![(conventional(64), 48), (zoned(5, 1), 64)]).expect("joined");
    let geometry = drive.identify().zones.expect("zones");
    assert_eq!((geometry.count, geometry.conventional, geometry.capacity), (7, 4, 12));
    run(&drive, write(64, 1..=5)).expect("at the write pointer");
    run(&drive, write(5, [9])).expect("anywhere");
    let all = zones(&drive, 0, u32::MAX);
    assert_eq!(all.len(), 7);
    assert!(all.iter().zip(0..).all(|(zone, i)| zone.start == i * 16 && zone.size == 16));
    assert_eq!((all[2].kind, all[2].capacity), (ZoneKind::Conventional, 16));
    assert_eq!((all[4].wp, all[4].state), (69, ZoneState::ImplicitlyOpen));
    assert_eq!(zones(&drive, 50, 2), &all[3..5]);
    assert_eq!(zones(&drive, 20, 3), &all[1..4]);
    assert_eq!(zones(&drive, 0, 0), []);
    let manage = |action, zone| run(&drive, Command::ManageZone { action, zone: Some(zone) });
    manage(ZoneAction::Finish, 64).expect("finished");
    assert_eq!(zones(&drive, 64, 1)[0].state, ZoneState::Full);
    manage(ZoneAction::Reset, 64).expect("reset");
    assert_eq!(zones(&drive, 64, 1)[0].wp, 64);
    let refused = manage(ZoneAction::Reset, 16).expect_err("has no states");
    assert_eq!(refused, Status::InvalidZoneStateTransition);
    let append = |zone| {
        let data = std::iter::once(Block::zeroed()).collect();
        run(&drive, Command::Append { zone, data, fua: false })
    };
    assert!(matches!(append(80), Ok(Output::Appended(80))));
    assert!(matches!(append(80), Ok(Output::Appended(81))));
}

#[test]
fn a_flush_goes_where_something_was_written() {
    let traced = [0, 1].map(|_| Arc::new(Trace::new(conventional(32))));
    let members = traced.iter().map(|t| (t.clone() as Arc<dyn Drive>, 32)).collect();
    let drive = Concat::new(members).expect("joined");
    let flushes = || -> [usize; 2] {
        run(&drive, Command::Flush).expect("flushed");
        [0, 1].map(|i: usize| traced[i].take().iter().filter(|line| *line == "F").count())
    };
    assert_eq!(flushes(), [1, 1], "who came before may have left something");
    assert_eq!(flushes(), [0, 0]);
    run(&drive, write(3, [1])).expect("written");
    assert_eq!(flushes(), [1, 0]);
    run(&drive, write(31, [1, 2])).expect("written");
    assert_eq!(flushes(), [1, 1]);
    let data = std::iter::once(Block::zeroed()).collect();
    run(&drive, Command::Write { lba: 40, data, fua: true }).expect("written through");
    assert_eq!(flushes(), [0, 0]);
}

#[test]
fn a_flush_that_failed_has_covered_nothing() {
    let faulty = Arc::new(Fault::new(conventional(32)));
    let members = vec![(conventional(32), 32), (faulty.clone() as Arc<dyn Drive>, 32)];
    let drive = Concat::new(members).expect("joined");
    run(&drive, Command::Flush).expect("flushed");
    run(&drive, write(40, [1])).expect("written");
    faulty.fail_nth(FaultOn::Flush, 0, Status::WriteFault);
    assert_eq!(run(&drive, Command::Flush).expect_err("fails"), Status::WriteFault);
    faulty.fail_nth(FaultOn::Flush, 0, Status::NotReady);
    assert_eq!(run(&drive, Command::Flush).expect_err("sent again"), Status::NotReady);
    run(&drive, Command::Flush).expect("sent again");
}

/// While a flush is under way its writes are not stable: another flush must not end before.
#[test]
fn a_flush_under_way_covers_nobody_else() {
    let machine = cores::Profile::named("xeon-4116").expect("built in");
    cores::Machine::simulated(&machine, 1)
        .run(|| {
            let spec = Spec::named("conventional-noplp").expect("built in").blocks(64);
            let ssd = Ssd::new(spec, Timing::Virtual, 1).expect("sound");
            let drive = Concat::new(vec![(ssd.clone(), 64)]).expect("joined");
            run(&drive, write(3, [7])).expect("written");
            drive.submit(0, 1, Command::Flush);
            run(&drive, Command::Flush).expect("flushed");
            for seed in 0..20 {
                assert_eq!(ssd.survivors(seed).media().read(3).expect("in memory")[0], 7);
            }
            assert!(drive.wait(0).is_some_and(|done| done.cid == 1 && done.result.is_ok()));
            assert!(drive.wait(0).is_none() && drive.poll(0).is_none());
        })
        .expect("no deadlock");
}

#[test]
fn drives_that_do_not_fit_are_refused() {
    type Misfit = (Vec<(Arc<dyn Drive>, u64)>, usize, &'static str);
    let misfits: [Misfit; 8] = [
        (vec![], 0, "1 to 8"),
        ((0..9).map(|_| (conventional(16), 16)).collect(), 9, "1 to 8"),
        (vec![(conventional(16), 17)], 0, "16 blocks, the volume wants 17"),
        (vec![(conventional(16), 0)], 0, "wants 0"),
        (vec![(zoned(4, 1), 64), (conventional(16), 16)], 1, "behind a zoned"),
        (vec![(conventional(20), 20), (zoned(4, 0), 64)], 0, "whole number of zones"),
        (vec![(zoned(4, 1), 64), (zoned(4, 1), 64)], 1, "conventional zones behind"),
        (
            vec![(zoned(4, 1), 64), {
                let spec = Spec::named("zn540").expect("built in").zone_size(32, 32).zones(2, 0);
                (Ssd::new(spec, Timing::Instant, 0).expect("sound") as Arc<dyn Drive>, 64)
            }],
            1,
            "another size",
        ),
    ];
    for (members, member, what) in misfits {
        let error = Concat::new(members).err().expect(what);
        assert_eq!(error.member, member, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// Threads on few identifiers: every answer reaches its owner, however parts are taken.
#[test]
fn threads_share_the_queues() {
    let machine = cores::Profile::named("xeon-4116").expect("built in");
    for seed in 0..8 {
        cores::Machine::simulated(&machine, seed)
            .run(|| {
                let spec = || Spec::named("conventional-noplp").expect("built in").blocks(256);
                let ssd = |s| Ssd::new(spec(), Timing::Virtual, s).expect("sound");
                let members = (0..3).map(|s| (ssd(seed + s) as Arc<dyn Drive>, 256)).collect();
                let drive = Arc::new(Concat::new(members).expect("joined"));
                let threads: Vec<_> = (0..4_u16)
                    .map(|cid| {
                        let drive = drive.clone();
                        cores::spawn("client", Some(cid.into()), move || client(&drive, cid))
                    })
                    .collect();
                threads.into_iter().for_each(|thread| {
                    thread.join();
                });
                assert!(drive.poll(0).is_none() && drive.wait(0).is_none());
            })
            .expect("no deadlock");
    }
}

fn client(drive: &Concat, cid: u16) {
    for round in 0..60_u8 {
        // Most of these lie on two drives.
        let lba = 250 + u64::from(cid) * 64 + u64::from(round % 8);
        let bytes: Vec<u8> = (0..8).map(|i| round.wrapping_mul(31) ^ i ^ cid as u8).collect();
        finish(drive, cid, write(lba, bytes.iter().copied()));
        if round % 4 == 0 {
            finish(drive, cid, Command::Flush);
        }
        match finish(drive, cid, Command::Read { lba, blocks: 8 }) {
            Output::Data(data) => {
                assert!(data.iter().map(|block| block[0]).eq(bytes.iter().copied()));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Waits for `cid`. An answer of another thread's command goes back for it to find.
fn finish(drive: &Concat, cid: u16, command: Command) -> Output {
    drive.submit(0, cid, command);
    loop {
        match drive.wait_for(0, cid) {
            Some(done) if done.cid == cid => return done.result.expect("fine"),
            Some(other) => drive.queue(0).table.lock().done.push_back(other),
            None => cores::yield_now(),
        }
    }
}
