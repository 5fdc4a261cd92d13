//! Volumes on several devices: made, mounted, cut and judged; and devices that do not belong.

use std::path::PathBuf;
use std::sync::Arc;

use cores::Mutex;
use drive::{Command, Completion, Drive, DriveState, Identify, Output, Spec, Ssd, Timing};
use f2fs::check::{CheckOptions, check};
use f2fs::devices::{join, join_for_mkfs};
use f2fs::mkfs::{MkfsOptions, format};
use f2fs::{Error, F2fs};
use vfs::kind::Device;
use vfs::{Creator, FileSystem};

use crate::harness::tagged::{Promise, Tagged};
use crate::harness::{dump, mkfs_options, power_on};
use crate::judge::{Scratch, assert_fsck_clean, assert_stock_mkfs, open_image};

/// 4 MiB zones.
const ZONE: u64 = 1024;

/// What the second device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    Conventional,
    Zoned,
}

/// A volume on a conventional device of 48 MiB, not all of it whole zones, and a second one.
struct Rig {
    scratch: Scratch,
    names: Vec<String>,
}

fn conventional(blocks: u64) -> Arc<Ssd> {
    let spec = Spec::named("conventional-noplp").unwrap().blocks(blocks);
    Ssd::new(spec, Timing::Instant, 1).unwrap()
}

fn zoned(zones: u32) -> Arc<Ssd> {
    let spec = Spec::named("zn540-noplp").unwrap().zone_size(ZONE, 768).zones(zones, 0);
    Ssd::new(spec, Timing::Instant, 2).unwrap()
}

impl Rig {
    fn new() -> Self {
        let scratch = Scratch::new();
        let name = |file| scratch.dir().join(file).to_str().unwrap().to_owned();
        let names = vec![name("first"), name("second")];
        Self { scratch, names }
    }

    fn named(&self, drives: &[Arc<dyn Drive>]) -> Vec<Device> {
        let pairs = self.names.iter().zip(drives);
        pairs.map(|(name, drive)| Device { name: name.clone(), drive: drive.clone() }).collect()
    }

    fn formatted(&self, second: Second) -> Vec<Arc<Ssd>> {
        let second = match second {
            Second::Conventional => conventional(60 * ZONE + 700),
            Second::Zoned => zoned(60),
        };
        let ssds = vec![conventional(12 * ZONE + 300), second];
        let options = MkfsOptions { devices: self.names.clone(), ..mkfs_options() };
        let drive = join_for_mkfs(self.named(&dynamic(&ssds)), &options).unwrap();
        format(&drive, &options).unwrap();
        ssds
    }

    fn join(&self, drives: &[Arc<dyn Drive>]) -> Result<Arc<dyn Drive>, Error> {
        join(self.named(drives))
    }

    fn files(&self) -> Vec<PathBuf> {
        self.names.iter().map(PathBuf::from).collect()
    }
}

fn dynamic(ssds: &[Arc<Ssd>]) -> Vec<Arc<dyn Drive>> {
    ssds.iter().map(|ssd| ssd.clone() as Arc<dyn Drive>).collect()
}

fn mount(drive: Arc<dyn Drive>, options: &str) -> F2fs {
    let mounted = F2fs::mount(drive, &options.parse().unwrap());
    mounted.unwrap_or_else(|error| panic!("mount: {error}"))
}

type Hook = Box<dyn FnMut() + Send>;

/// Calls a hook before every command: the moments at which the power is cut.
struct Watched {
    below: Arc<dyn Drive>,
    hook: Mutex<Option<Hook>>,
}

impl Drive for Watched {
    fn identify(&self) -> &Identify {
        self.below.identify()
    }
    fn submit(&self, queue: u16, cid: u16, command: Command) {
        if let Some(hook) = &mut *self.hook.lock() {
            hook();
        }
        self.below.submit(queue, cid, command);
    }
    fn poll(&self, queue: u16) -> Option<Completion> {
        self.below.poll(queue)
    }
    fn wait(&self, queue: u16) -> Option<Completion> {
        self.below.wait(queue)
    }
    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.below.wait_for(queue, cid)
    }
}

/// A drive whose flushes do nothing: no volume can keep its promises there.
struct NeverFlushes(Arc<Ssd>);

impl Drive for NeverFlushes {
    fn identify(&self) -> &Identify {
        self.0.identify()
    }
    fn issue(&self, queue: u16, cid: u16, command: Command) -> Option<Completion> {
        match command {
            Command::Flush => Some(Completion { cid, result: Ok(Output::Done) }),
            command => self.0.issue(queue, cid, command),
        }
    }
    fn submit(&self, queue: u16, cid: u16, command: Command) {
        self.0.submit(queue, cid, command);
    }
    fn poll(&self, queue: u16) -> Option<Completion> {
        self.0.poll(queue)
    }
    fn wait(&self, queue: u16) -> Option<Completion> {
        self.0.wait(queue)
    }
}

/// What all devices hold when they lose their power at one moment, and what was promised then.
struct Cut {
    states: Vec<DriveState>,
    promise: Promise,
}

/// Runs the workload; a cut at every seventh command.
fn cuts_of(
    rig: &Rig,
    ssds: &[Arc<Ssd>],
    members: &[Arc<dyn Drive>],
    options: &str,
    seed: u64,
    before: Promise,
) -> Vec<Cut> {
    let watched = Arc::new(Watched { below: rig.join(members).unwrap(), hook: Mutex::new(None) });
    let fs = mount(watched.clone(), options);
    let mut work = Tagged::new(seed, before);
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let (into, promise, ssds) = (cuts.clone(), work.promised(), ssds.to_vec());
    let mut commands = 0;
    *watched.hook.lock() = Some(Box::new(move || {
        commands += 1;
        if commands % 7 == 0 {
            let states = ssds.iter().map(|ssd| ssd.survivors(seed ^ commands)).collect();
            let promise = promise.lock().clone();
            into.lock().push(Cut { states, promise });
        }
    }));
    work.run(&fs, 60).unwrap();
    *watched.hook.lock() = None;
    std::mem::take(&mut *cuts.lock())
}

/// What is broken after recovery from `cut`; judged by both checkers.
fn recovered(rig: &Rig, cut: &Cut, options: &str, everything: bool) -> Option<String> {
    let ssds: Vec<Arc<Ssd>> = cut.states.iter().map(power_on).collect();
    let fs = mount(rig.join(&dynamic(&ssds)).unwrap(), options);
    let broken = if everything { cut.promise.broken(&fs) } else { None };
    fs.unmount().unwrap();
    let report = check(&rig.join(&dynamic(&ssds)).unwrap(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    for (ssd, file) in ssds.iter().zip(rig.files()) {
        dump(&ssd.power_off(), &file);
    }
    assert_fsck_clean(&rig.files()[0]);
    broken
}

/// Lives in a row, each from a cut of the one before; some cuts of each are judged.
fn survives(second: Second, options: &str, everything: bool) {
    let rig = Rig::new();
    let mut ssds = rig.formatted(second);
    let (mut promise, mut judged) = (Promise::default(), 0);
    for life in 0..5 {
        let mut cuts = cuts_of(&rig, &ssds, &dynamic(&ssds), options, life, promise);
        for (i, cut) in cuts.iter().enumerate().step_by((cuts.len() / 6).max(1)) {
            let broken = recovered(&rig, cut, options, everything);
            assert!(broken.is_none(), "{second:?} -o {options} life {life} cut {i}: {broken:?}");
            judged += 1;
        }
        let last = cuts.swap_remove(life as usize * 31 % cuts.len());
        ssds = last.states.iter().map(power_on).collect();
        promise = last.promise;
    }
    assert!(judged >= 25, "{judged} cuts judged");
}

#[test]
fn conventional_and_zoned_strict() {
    survives(Second::Zoned, "fsync_mode=strict", true);
}

#[test]
fn conventional_and_zoned_oprw() {
    survives(Second::Zoned, "oprw", true);
}

#[test]
fn conventional_and_zoned_posix() {
    survives(Second::Zoned, "", false);
}

#[test]
fn two_conventional_strict() {
    survives(Second::Conventional, "fsync_mode=strict", true);
}

#[test]
fn nodes_apart_from_data_strict() {
    survives(Second::Conventional, "fsync_mode=strict,hybrid", true);
    survives(Second::Zoned, "fsync_mode=strict,hybrid", true);
}

#[test]
fn nodes_apart_from_data_posix() {
    survives(Second::Conventional, "hybrid", false);
}

/// What a drive has of the contents `data`, in blocks.
fn blocks_of(ssd: &Ssd, data: &[u8; 4096]) -> usize {
    let held = |lba: &u64| ssd.survivors(0).media().read(*lba).unwrap()[..] == data[..];
    (0..ssd.identify().blocks).filter(held).count()
}

/// With `hybrid` the first device has nodes and metadata only. Without, hot data gathers there,
/// too. The volume is the same to any mount.
#[test]
fn hybrid_keeps_data_off_the_first_device() {
    let data = [0xd5; 4096];
    for (options, is_apart) in [("hybrid", true), ("", false)] {
        let rig = Rig::new();
        let ssds = rig.formatted(Second::Conventional);
        let fs = mount(rig.join(&dynamic(&ssds)).unwrap(), options);
        fs.set_tunable("extension_list", "[h]hot").unwrap();
        let file = fs.create(fs.root(), b"a.hot", 0o644, Creator::default()).unwrap().ino;
        vfs::path::write_all(&fs, file, 0, &data.repeat(2000)).unwrap();
        fs.unmount().unwrap();
        let (first, second) = (blocks_of(&ssds[0], &data), blocks_of(&ssds[1], &data));
        assert_eq!(first == 0, is_apart, "{options}: {first} and {second}");
        assert_eq!(first + second, 2000, "{options}");
        let fs = mount(rig.join(&dynamic(&ssds)).unwrap(), "ro");
        assert!(vfs::path::read_to_vec(&fs, file).unwrap() == data.repeat(2000));
    }
}

/// When the devices for data are full, data goes to that of the nodes: space is space.
#[test]
fn hybrid_uses_all_space() {
    let free = |options: &str| {
        let rig = Rig::new();
        let ssds = rig.formatted(Second::Conventional);
        let fs = mount(rig.join(&dynamic(&ssds)).unwrap(), options);
        let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
        let blocks = (0..).take_while(|n| fs.write(file, n * 4096, &[7; 4096]).is_ok()).count();
        fs.sync().unwrap();
        fs.unmount().unwrap();
        let report = check(&rig.join(&dynamic(&ssds)).unwrap(), &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
        blocks
    };
    assert_eq!(free("hybrid"), free(""));
}

#[test]
fn hybrid_wants_several_devices() {
    let ssd = conventional(64 * ZONE);
    let drive: Arc<dyn Drive> = ssd;
    format(&drive, &mkfs_options()).unwrap();
    let error = F2fs::mount(drive, &"hybrid".parse().unwrap()).err().expect("one device");
    assert!(error.to_string().contains("hybrid: a volume on several devices"), "{error}");
}

/// The canary: with a device that is never flushed the same run breaks promises.
#[test]
fn a_device_left_out_of_the_flush_is_noticed() {
    let rig = Rig::new();
    let ssds = rig.formatted(Second::Conventional);
    let lazy = ssds.iter().map(|ssd| Arc::new(NeverFlushes(ssd.clone())) as Arc<dyn Drive>);
    let options = "fsync_mode=strict";
    let lazy: Vec<Arc<dyn Drive>> = lazy.collect();
    let cuts = cuts_of(&rig, &ssds, &lazy, options, 1, Promise::default());
    let broken = |cut: &Cut| {
        let ssds: Vec<Arc<Ssd>> = cut.states.iter().map(power_on).collect();
        let Ok(drive) = rig.join(&dynamic(&ssds)) else { return true };
        let mounted = F2fs::mount(drive, &options.parse().unwrap());
        mounted.map_or(true, |fs| cut.promise.broken(&fs).is_some())
    };
    assert!(cuts.iter().any(broken), "{} cuts and no promise broken", cuts.len());
}

#[test]
fn data_goes_to_every_device_and_space_is_theirs_together() {
    for second in [Second::Conventional, Second::Zoned] {
        let rig = Rig::new();
        let ssds = rig.formatted(second);
        let fs = mount(rig.join(&dynamic(&ssds)).unwrap(), "");
        let file = fs.create(fs.root(), b"large", 0o644, Creator::default()).unwrap().ino;
        let data: Vec<u8> = (0..100_u32 << 20).map(|i| (i >> 12) as u8 ^ i as u8).collect();
        vfs::path::write_all(&fs, file, 0, &data).unwrap();
        fs.unmount().unwrap();
        let fs = mount(rig.join(&dynamic(&ssds)).unwrap(), "ro");
        assert!(vfs::path::read_to_vec(&fs, file).unwrap() == data, "{second:?}");
        let held = |ssd: &Ssd| {
            (0..ssd.identify().blocks).any(|lba| {
                ssd.survivors(0).media().read(lba).unwrap().iter().any(|byte| *byte != 0)
            })
        };
        assert!(held(&ssds[1]), "{second:?}: nothing on the second device");
    }
}

fn answer(ssd: &Arc<Ssd>, command: Command) -> Output {
    ssd.submit(0, 0, command);
    ssd.wait(0).expect("an answer").result.expect("a right command")
}

/// Writes what `from` holds to `to`, from block `at` on: of zones as far as they are written.
fn transfer(from: &Arc<Ssd>, to: &Arc<Ssd>, at: u64) {
    let blocks = from.identify().blocks;
    let written: Vec<(u64, u64)> = match from.identify().zones {
        None => (0..blocks).step_by(768).map(|lba| (lba, blocks)).collect(),
        Some(zones) => match answer(from, Command::ReportZones { lba: 0, max: zones.count }) {
            Output::Zones(zones) => zones.iter().map(|zone| (zone.start, zone.wp)).collect(),
            other => panic!("no report: {other:?}"),
        },
    };
    for (start, end) in written {
        for lba in start..end.min(start + 768) {
            let Output::Data(data) = answer(from, Command::Read { lba, blocks: 1 }) else {
                panic!("block {lba} has no data");
            };
            answer(to, Command::Write { lba: at + lba, data, fua: false });
        }
    }
}

/// A kernel that is served a drive with both kinds of zones makes its volume on two namespaces.
/// Afterwards the drive is given as one.
#[test]
fn two_devices_may_be_the_zones_of_one_drive() {
    let rig = Rig::new();
    let ssds = vec![conventional(12 * ZONE), zoned(60)];
    let options = MkfsOptions { devices: rig.names.clone(), ..mkfs_options() };
    let joined = join_for_mkfs(rig.named(&dynamic(&ssds)), &options).unwrap();
    format(&joined, &options).unwrap();
    let fs = mount(joined, "");
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
    let data: Vec<u8> = (0..8_u32 << 20).map(|i| (i >> 11) as u8).collect();
    vfs::path::write_all(&fs, file, 0, &data).unwrap();
    fs.unmount().unwrap();
    let both = |conventional: u32| {
        let spec = Spec::named("zn540-noplp").unwrap().zone_size(ZONE, 768);
        let ssd = Ssd::new(spec.zones(60 + conventional, conventional), Timing::Instant, 1);
        let ssd = ssd.unwrap();
        transfer(&ssds[0], &ssd, 0);
        transfer(&ssds[1], &ssd, u64::from(conventional) * ZONE);
        ssd as Arc<dyn Drive>
    };
    let drive = both(12);
    let report = check(&rig.join(std::slice::from_ref(&drive)).unwrap(), &CheckOptions::default());
    assert_eq!(report.unwrap().findings.len(), 0);
    let fs = mount(drive, "");
    assert!(vfs::path::read_to_vec(&fs, file).unwrap() == data);
    vfs::path::write_all(&fs, file, 5000, &data).unwrap();
    fs.unmount().unwrap();
    // Zones that begin elsewhere are not those.
    let error = F2fs::mount(both(13), &"".parse().unwrap()).err().expect("other zones");
    assert!(error.to_string().contains("1 given: name the others too"), "{error}");
}

#[test]
fn devices_that_do_not_belong_are_refused_in_one_line() {
    let rig = Rig::new();
    let ours = dynamic(&rig.formatted(Second::Zoned));
    let other = dynamic(&rig.formatted(Second::Conventional));
    let short: Arc<dyn Drive> = zoned(20);
    let coarse = Spec::named("zn540-noplp").unwrap().zone_size(2 * ZONE, 768).zones(60, 0);
    let coarse: Arc<dyn Drive> = Ssd::new(coarse, Timing::Instant, 0).unwrap();
    let (first, second) = (ours[0].clone(), ours[1].clone());
    for (drives, what) in [
        (vec![first.clone()], "the volume is on 2 devices (once "),
        (vec![second.clone(), first.clone()], "superblock"),
        (vec![first.clone(), other[0].clone()], "begins with a volume of its own"),
        (vec![first.clone(), short], "has 20480 blocks, the volume wants 61440"),
        (vec![first.clone(), coarse], "zones"),
    ] {
        let error = match rig.join(&drives) {
            Err(error) => error,
            Ok(drive) => F2fs::mount(drive, &"".parse().unwrap()).err().expect(what),
        };
        let text = error.to_string();
        assert!(text.contains(what) && !text.contains('\n'), "{what}: {text}");
    }
    let error = F2fs::mount(first.clone(), &"".parse().unwrap()).err().expect("half a volume");
    assert!(error.to_string().contains("on 2 devices"), "{error}");
    let error = check(&first, &CheckOptions::default()).expect_err("half a volume");
    assert!(error.to_string().contains("on 2 devices"), "{error}");
}

/// What `mkfs.f2fs -c` made is ours to use, and its fsck finds nothing afterwards.
#[test]
fn volumes_of_mkfs_f2fs_on_two_devices() {
    let rig = Rig::new();
    let (first, second) =
        (rig.scratch.image("first", 64 << 20), rig.scratch.image("second", 128 << 20));
    assert_stock_mkfs(&first, &["-c", second.to_str().unwrap()]);
    let open = || rig.join(&[open_image(&first), open_image(&second)]).unwrap();
    let fs = mount(open(), "");
    let file = fs.create(fs.root(), b"large", 0o644, Creator::default()).unwrap().ino;
    vfs::path::write_all(&fs, file, 0, &vec![7; 80 << 20]).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    assert_fsck_clean(&first);
    let report = check(&open(), &CheckOptions::default()).unwrap();
    assert_eq!(report.findings.len(), 0, "{:?}", report.findings);
}
