//! Advice on loads whose answer is known.

use std::sync::Arc;

use lab::bench::advise::{Advice, Goal, Question, advise};
use lab::workload::recorder::Recorder;
use lab::workload::{Workload, named};

/// Files that fit into their inodes, without an fsync.
struct SmallFiles;

impl Workload for SmallFiles {
    fn name(&self) -> &str {
        "small files"
    }

    fn run(&self, fs: &Recorder, _seed: u64, started: &mut dyn FnMut()) -> lab::Result<()> {
        started();
        for number in 0..1000 {
            let file = fs.create(fs.root(), format!("{number}").as_bytes(), 0o644)?;
            fs.write(file, 0, &[number as u8; 700])?;
        }
        fs.sync()
    }

    fn footprint(&self) -> u64 {
        32 << 20
    }
}

/// Blocks of a file overwritten in one order, with an fsync after each twentieth.
struct Overwrites;

impl Workload for Overwrites {
    fn name(&self) -> &str {
        "overwrites"
    }

    fn run(&self, fs: &Recorder, _seed: u64, started: &mut dyn FnMut()) -> lab::Result<()> {
        const BLOCKS: u64 = 8000;
        let file = fs.create(fs.root(), b"file", 0o644)?;
        for block in 0..BLOCKS {
            fs.write(file, block * 4096, &[1; 4096])?;
        }
        fs.sync()?;
        started();
        for number in 0..1000_u64 {
            fs.write(file, number * 3571 % BLOCKS * 4096, &[2; 4096])?;
            if number % 20 == 19 {
                fs.fsync(file)?;
            }
        }
        Ok(())
    }

    fn footprint(&self) -> u64 {
        64 << 20
    }
}

fn advice(fs: &str, drive: &str, load: Arc<dyn Workload>, given: &str, goal: Goal) -> Advice {
    let question = Question {
        format: subjects::named(fs).unwrap(),
        drive: drive.into(),
        machine: lab::CAMPAIGN_MACHINE.into(),
        workload: load,
        mount_opts: given.into(),
        goal,
        full: 0,
        seed: 1,
        threads: 2,
    };
    advise(&question).unwrap()
}

/// The words of the best `mount -o`, and its gain.
fn best(advice: &Advice) -> (Vec<&str>, f64) {
    let best = advice.best.as_ref().unwrap_or_else(|| panic!("{}", advice.text(true)));
    (best.mount.split(',').collect(), best.gain)
}

#[test]
fn small_files_want_inline_data() {
    let given = "noinline_data,cache=8m";
    let advice = advice("f2fs", "conventional-noplp", Arc::new(SmallFiles), given, Goal::Written);
    let (words, gain) = best(&advice);
    assert!(words.starts_with(&["noinline_data", "cache=8m"]), "{words:?}");
    assert!(words.contains(&"inline_data") && gain > 0.3, "{}", advice.text(true));
}

/// Without blocks in place each fsync writes the nodes of all that moved.
#[test]
fn overwrites_want_to_stay_in_place() {
    let load = Arc::new(Overwrites);
    let advice = advice("f2fs", "conventional-noplp", load, "ipu_policy=0", Goal::Written);
    let (words, gain) = best(&advice);
    assert!(words.contains(&"ipu_policy=1") && gain > 0.2, "{}", advice.text(true));
    assert!(!words.contains(&"mode=lfs"), "{words:?}");
}

/// The strict mode waits for a flush before its nodes, which write pointers make needless. What
/// promises less than strict is not advised, however fast it is.
#[test]
fn strict_fsyncs_on_zones_want_write_pointers() {
    let load = Arc::from(named("pattern", 300).unwrap());
    let advice = advice("f2fs", "zn540-noplp", load, "fsync_mode=strict", Goal::Time);
    let (words, gain) = best(&advice);
    assert!(words.starts_with(&["fsync_mode=strict", "oprw"]), "{words:?}");
    assert!(gain > 0.1, "{}", advice.text(true));
}

/// What a load never meets does not pay.
#[test]
fn nothing_is_advised_without_a_gain() {
    let load: Arc<dyn Workload> = Arc::from(named("append", 100).unwrap());
    let advice = advice("ext4", "ram", load, "journal=none", Goal::Written);
    assert!(advice.best.is_none() && !advice.alone.is_empty(), "{}", advice.text(true));
}
