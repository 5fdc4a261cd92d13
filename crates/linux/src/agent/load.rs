//! A load for real devices, to be killed in the middle, and the check of what it had been promised.
//!
//! It makes steps for ever, and prints the number of each once its fsync has returned. A step is a
//! pure function of the seed and its number: a file made and written, or a block of an older one
//! overwritten, then fsync of that file. So the check needs to know only how many steps were
//! acknowledged; the one after them may be there in part or not at all.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use cores::splitmix64;
use drive::linux::{Access, BlockDevice};
use drive::{Command, Drive, Output};
use f2fs::devices::join_for_mkfs;
use f2fs::mkfs::{MkfsOptions, format};
use vfs::Creator;
use vfs::kind::{Device, Format, Volume};

use super::Done;

const PAGE: usize = 4096;
/// Files there are at most; after that many made, steps overwrite.
const FILES: u64 = 200;

fn open(device: &str, access: Access) -> Done<Arc<dyn Drive>> {
    Ok(Arc::new(BlockDevice::open(Path::new(device), access)?))
}

pub(super) fn zones(device: &str) -> Done {
    let drive = open(device, Access::Inspect)?;
    let report = Command::ReportZones { lba: 0, max: u32::MAX };
    let answer = drive.issue(0, 0, report).or_else(|| drive.wait_for(0, 0));
    match answer.ok_or("no answer")?.result? {
        Output::Zones(zones) => print!("{}", drive::blkzone::print(&zones)),
        other => return Err(format!("zone report: {other:?}").into()),
    }
    Ok(())
}

fn named(devices: &[&str]) -> Done<Vec<Device>> {
    let named = |device: &&str| {
        Ok(Device { name: (*device).to_owned(), drive: open(device, Access::Write)? })
    };
    devices.iter().map(named).collect()
}

pub(super) fn mkfs(devices: &[&str]) -> Done {
    let several = devices.len() > 1;
    let names = devices.iter().filter(|_| several).map(ToString::to_string).collect();
    let options = MkfsOptions { force: true, devices: names, ..MkfsOptions::default() };
    format(&join_for_mkfs(named(devices)?, &options)?, &options)?;
    Ok(())
}

fn mount(options: &str, devices: &[&str]) -> Done<Arc<dyn Volume>> {
    Ok(f2fs::Format.mount(f2fs::Format.join(named(devices)?)?, options)?)
}

/// What one step does: bytes of `value` in `pages` pages of `file`, from `page` on.
struct LoadStep {
    file: u64,
    page: u64,
    pages: u64,
    value: u8,
}

impl LoadStep {
    fn of(seed: u64, number: u64) -> Self {
        let dice = splitmix64(seed ^ splitmix64(number));
        let made = number.min(FILES);
        if made < FILES && number.is_multiple_of(2) {
            let pages = 1 + dice % 40;
            return Self { file: number / 2, page: 0, pages, value: value(number) };
        }
        let file = dice % made.div_ceil(2).max(1);
        Self { file, page: (dice >> 20) % 40, pages: 1 + (dice >> 40) % 3, value: value(number) }
    }

    fn name(&self) -> String {
        format!("file{}", self.file)
    }

    fn take(&self, fs: &dyn Volume) -> vfs::Result<()> {
        let name = self.name();
        let ino = match fs.lookup(fs.root(), name.as_bytes()) {
            Ok(attr) => attr.ino,
            Err(_) => fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default())?.ino,
        };
        let data = vec![self.value; self.pages as usize * PAGE];
        vfs::path::write_all(fs, ino, self.page * PAGE as u64, &data)?;
        fs.fsync(ino, false)
    }

    fn apply(&self, file: &mut Vec<u8>) {
        let (from, to) = (self.page as usize * PAGE, (self.page + self.pages) as usize * PAGE);
        file.resize(file.len().max(to), 0);
        file[from..to].fill(self.value);
    }
}

/// Never 0, which is a hole.
fn value(number: u64) -> u8 {
    (number % 255) as u8 + 1
}

pub(super) fn load(options: &str, seed: u64, from: u64, devices: &[&str]) -> Done {
    let fs = mount(options, devices)?;
    println!("mounted");
    let mut out = std::io::stdout();
    for number in from.. {
        LoadStep::of(seed, number).take(&*fs).map_err(|e| format!("step {number}: {e}"))?;
        // One write each, so that a kill leaves whole lines.
        out.write_all(format!("{}\n", number + 1).as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

pub(super) fn verify(options: &str, seed: u64, count: u64, devices: &[&str]) -> Done {
    let fs = mount(options, devices)?;
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for step in (0..count).map(|number| LoadStep::of(seed, number)) {
        step.apply(files.entry(step.name()).or_default());
    }
    let open = LoadStep::of(seed, count);
    for (name, expected) in &files {
        let attr = fs.lookup(fs.root(), name.as_bytes()).map_err(|e| format!("{name}: {e}"))?;
        let found = vfs::path::read_to_vec(&*fs, attr.ino)?;
        let mut after = expected.clone();
        open.apply(&mut after);
        let may_differ = *name == open.name();
        let fits = |page: usize| {
            let range = page * PAGE..(page + 1) * PAGE;
            let (now, then) = (found.get(range.clone()), expected.get(range.clone()));
            now == then || may_differ && (now == after.get(range) || then.is_none())
        };
        let pages = found.len().max(expected.len()).div_ceil(PAGE);
        if let Some(page) = (0..pages).find(|page| !fits(*page)) {
            return Err(format!("{name}: page {page} is not what was fsynced").into());
        }
    }
    fs.unmount()?;
    println!("verified {} files after {count} steps", files.len());
    Ok(())
}
