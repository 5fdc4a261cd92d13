//! What a drive may do to its host: complete commands out of order, and make durable no more than
//! what was asked for.

use super::*;

/// A drive of `profile` on a clock of its own.
fn model(profile: &str, unkind: bool, seed: u64) -> Model {
    let spec = if unkind { spec(profile).unkind() } else { spec(profile) };
    Model::new(DriveState::new(spec).expect("drive"), seed, false)
}

/// Which of the commands `(queue, cid)` was done first, second, …
fn order(model: &mut Model, commands: &[(u16, u16)]) -> Vec<u16> {
    let mut done = Vec::new();
    loop {
        for &(queue, cid) in commands {
            done.extend(model.take_done(queue, Some(cid)).map(|completion| completion.cid));
        }
        if done.len() == commands.len() {
            return done;
        }
        assert!(model.step(Nanos::MAX - 1), "a command never ends");
    }
}

/// In how many of 100 runs `second` was done before `first`.
fn overtaken(unkind: bool, first: (u16, Command), second: (u16, Command)) -> usize {
    let overtakes = |seed| {
        let mut model = model("zn540-noplp", unkind, seed);
        model.submit(first.0, 1, first.1.clone());
        model.submit(second.0, 2, second.1.clone());
        order(&mut model, &[(first.0, 1), (second.0, 2)]) == [2, 1]
    };
    (0..100).filter(|&seed| overtakes(seed)).count()
}

#[test]
fn a_later_command_can_be_done_first() {
    let (here, there) = (written(2 * ZONE, 1), written(3 * ZONE, 1));
    let (this, that) = (written(1, 1), written(2, 1));
    for (what, first, second) in [
        ("zones, queues", (0, here.clone()), (1, there.clone())),
        ("zones, one queue", (0, here.clone()), (0, there)),
        ("conventional, one queue", (0, this.clone()), (0, that)),
        ("a flush", (0, this), (1, Command::Flush)),
    ] {
        let times = overtaken(true, first.clone(), second.clone());
        assert!(times > 10, "{what}: {times} of 100");
        assert!(
            matches!(second.1, Command::Flush) || overtaken(false, first, second) == 0,
            "{what}"
        );
    }
    let next = written(2 * ZONE + 1, 1);
    assert_eq!(overtaken(true, (0, here), (0, next)), 0, "a zone is written in order");
}

/// A late write to a zone holds up those behind it, and at any time a prefix is there.
#[test]
fn a_zone_is_written_in_order() {
    for seed in 0..50 {
        let mut model = model("zn540", true, seed);
        for n in 0..20 {
            model.submit(0, n, written(2 * ZONE + u64::from(n), 1));
        }
        let commands: Vec<_> = (0..20).map(|n| (0, n)).collect();
        assert_eq!(order(&mut model, &commands), (0..20).collect::<Vec<u16>>(), "seed {seed}");
    }
}

#[test]
fn one_seed_one_order() {
    let run = |seed| {
        let mut model = model("conventional-noplp", true, seed);
        let commands: Vec<_> = (0..60).map(|n| (n % 4, n)).collect();
        for &(queue, cid) in &commands {
            model.submit(queue, cid, written(u64::from(cid), 1));
        }
        (order(&mut model, &commands), model.clock)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

/// NVMe base 2.0, 7.1 (Flush): it covers the commands that were completed before it was submitted.
/// What was under way then may be lost with the power although the flush has ended.
#[test]
fn a_flush_covers_what_was_completed_before_it() {
    let one = |lba| Command::Write { lba, data: [block(7)].into_iter().collect(), fua: false };
    let (mut lost, mut flushes) = (0, 0);
    for seed in 0..200 {
        let mut model = model("conventional-noplp", true, seed);
        model.submit(0, 1, one(1));
        model.submit(1, 2, one(2));
        order(&mut model, &[(1, 2)]);
        if model.is_done(0) {
            continue;
        }
        flushes += 1;
        model.submit(1, 3, Command::Flush);
        order(&mut model, &[(1, 3)]);
        for cut in 0..20 {
            let left = read(&on(model.survivors(cut)), 1, 2);
            assert_eq!(left[1], 7, "seeds {seed} and {cut}");
            lost += usize::from(left[0] == 0);
        }
    }
    assert!(flushes > 20 && lost > 0, "{lost} lost after {flushes} flushes");
}

/// NVMe base 2.0, FUA: it covers this command's blocks, and says nothing about others.
#[test]
fn a_forced_write_leaves_others_where_they_are() {
    let drive = drive("conventional-noplp");
    write(&drive, 10, 1..5).expect("write");
    let data: Blocks = (5..7).map(block).collect();
    run(&drive, Command::Write { lba: 20, data, fua: true }).expect("write");
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let left = on(drive.survivors(seed));
        assert_eq!(read(&left, 20, 2), [5, 6]);
        seen.insert(read(&left, 10, 4));
    }
    assert_eq!(seen.len(), 16, "{seen:?}");
}

/// A version that a later one overtook gives back its room in the buffer.
#[test]
fn what_is_overtaken_holds_no_room() {
    let profile = Profile::named("conventional-noplp").expect("profile");
    let room = profile.buffer();
    for seed in 0..50 {
        let spec = Spec::new(profile.clone()).blocks(64).unkind();
        let mut model = Model::new(DriveState::new(spec).expect("drive"), seed, false);
        for n in 0..90 {
            model.submit(n % 8, n, written(u64::from(n % 3), 1));
        }
        model.submit(0, 90, Command::Discard { lba: 0, blocks: 2 });
        let commands: Vec<_> = (0..90).map(|n| (n % 8, n)).chain([(0, 90)]).collect();
        order(&mut model, &commands);
        model.submit(0, 91, Command::Flush);
        order(&mut model, &[(0, 91)]);
        assert_eq!(model.tokens, room, "seed {seed}");
        assert_eq!(model.cache.gathered(), 0);
    }
}

/// Blocks that are not completely on NAND are torn at sectors: on a volatile drive the buffered
/// ones, with power-loss protection those being transferred. In a sequential zone none are.
#[test]
fn a_block_is_torn_at_its_sectors() {
    let filled = |n: u8| Block::new([n; crate::BLOCK_SIZE]);
    let data = |n: u8| -> Blocks { [filled(n)].into_iter().collect() };
    let seen = |model: &Model, lba: Lba| -> std::collections::BTreeSet<Vec<u8>> {
        let sectors = |seed| {
            let block = model.survivors(seed).media().read(lba).expect("memory");
            block.chunks(512).map(|sector| sector[0]).collect()
        };
        (0..2000).map(sectors).collect()
    };
    for (profile, tearing, buffered, arriving) in [
        ("zn540-noplp", true, 256, 256),
        ("zn540-noplp", false, 2, 2),
        ("zn540", true, 1, 256),
        ("zn540", false, 1, 2),
    ] {
        let spec = if tearing { spec(profile).tearing() } else { spec(profile) };
        let mut model = Model::new(DriveState::new(spec).expect("drive"), 1, false);
        let write = |lba, n, fua| Command::Write { lba, data: data(n), fua };
        model.submit(0, 0, write(1, 5, true));
        order(&mut model, &[(0, 0)]);
        model.submit(0, 1, write(1, 6, false));
        model.submit(0, 2, write(2 * ZONE, 6, false));
        assert_eq!(seen(&model, 1).len(), arriving, "{profile} {tearing}");
        order(&mut model, &[(0, 1), (0, 2)]);
        assert_eq!(seen(&model, 1).len(), buffered, "{profile} {tearing}");
        assert!(seen(&model, 2 * ZONE).iter().all(|left| left[..] == [left[0]; 8]));
        model.submit(0, 3, Command::Flush);
        order(&mut model, &[(0, 3)]);
        assert_eq!(seen(&model, 1), [vec![6; 8]].into());
    }
}
