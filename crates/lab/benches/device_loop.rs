//! 4 KiB overwrite made durable on a loop device over tmpfs, in turns: by `pwritev2` and
//! `fdatasync`, which is what `fio --ioengine=psync --direct=1 --fdatasync=1` does; by the rings of
//! `drive::linux`; and by an F2FS volume on the same device, which writes a node as well.
//!
//! Needs root and a free loop device; without them it says so and succeeds.

use std::fs::File;
use std::path::Path;
use std::process::Command as Process;
use std::sync::Arc;

use drive::linux::{Access, BlockDevice, Engine};
use drive::{Block, Command, Drive};
use f2fs::F2fs;
use f2fs::mkfs::{MkfsOptions, format};
use lab::workload::Rng;
use vfs::{Creator, FileSystem};

const PAGE: usize = 4096;
/// Pages that are overwritten.
const PAGES: u64 = 4096;
/// Turns of each; the median counts.
const TURNS: usize = 5;
/// Overwrites in a turn.
const OPS: u64 = 10_000;
const IMAGE: u64 = 512 << 20;

fn main() {
    // Cargo's test run calls benches too, but a measurement is not a test.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let image = Path::new("/dev/shm").join(format!("device_loop-{}", std::process::id()));
    match attach(&image) {
        Ok(device) => {
            measure(Path::new(&device));
            drop(run("losetup", &["--detach", &device]));
        }
        Err(reason) => println!("on a loop device: skipped, {reason}"),
    }
    drop(std::fs::remove_file(&image));
}

fn attach(image: &Path) -> Result<String, String> {
    let made = File::create(image).and_then(|file| file.set_len(IMAGE));
    made.map_err(|error| format!("{}: {error}", image.display()))?;
    let device = run("losetup", &["--find", "--show", &image.display().to_string()])?;
    Ok(device.trim().to_owned())
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let out = Process::new(program).args(arguments).output();
    let out = out.map_err(|error| format!("{program}: {error}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&out.stderr).trim()))
}

fn measure(device: &Path) {
    let open = |engine| BlockDevice::open_with(device, Access::Write, engine).expect("a device");
    let mut rates: [Vec<f64>; 3] = Default::default();
    for turn in 0..TURNS as u64 {
        rates[0].push(raw(&open(Engine::Syscalls), turn));
        rates[1].push(raw(&open(Engine::Best), turn));
        rates[2].push(volume(Arc::new(open(Engine::Best)), turn));
    }
    let [syscalls, rings, volume] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!("4 KiB overwrite made durable, loop device over tmpfs, median of {TURNS} turns each:");
    println!("  pwritev2 and fdatasync           {syscalls:>10.0}/s");
    println!("  drive::linux, write and flush    {rings:>10.0}/s  {:.2}", rings / syscalls);
    println!("  strandline f2fs, write and fsync {volume:>10.0}/s  {:.2}", volume / syscalls);
}

fn per_second(mut operation: impl FnMut()) -> f64 {
    let begun = cores::now();
    (0..OPS).for_each(|_| operation());
    OPS as f64 * 1e9 / (cores::now() - begun) as f64
}

fn raw(device: &BlockDevice, seed: u64) -> f64 {
    let mut rng = Rng::new(seed, 7);
    let block = Block::from_prefix(&rng.bytes(PAGE));
    let run = |command| {
        let done = device.issue(0, 0, command).or_else(|| device.wait_for(0, 0));
        done.expect("an answer").result.expect("success");
    };
    per_second(|| {
        let data = std::iter::once(block.clone()).collect();
        run(Command::Write { lba: rng.below(PAGES), data, fua: false });
        run(Command::Flush);
    })
}

fn volume(device: Arc<dyn Drive>, seed: u64) -> f64 {
    format(&device, &MkfsOptions { force: true, ..MkfsOptions::default() }).expect("a volume");
    let fs = F2fs::mount(device, &"".parse().expect("no options")).expect("mounted");
    let mut rng = Rng::new(seed, 7);
    let page = rng.bytes(PAGE);
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).expect("a file").ino;
    vfs::path::write_all(&fs, file, 0, &page.repeat(PAGES as usize)).expect("filled");
    fs.sync().expect("durable");
    per_second(|| {
        fs.write(file, rng.below(PAGES) * PAGE as u64, &page).expect("written");
        fs.fsync(file, false).expect("durable");
    })
}
