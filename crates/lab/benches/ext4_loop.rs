//! 4 KiB overwrite and fsync: F2FS and ext4 of ours on a RAM drive against the kernel's ext4 on a
//! loop device over tmpfs, in turns, so that other load on the machine affects all of them.
//!
//! Needs root, a free loop device and `mkfs.ext4`; without them it says so and succeeds.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::bench::{self, Bench, Kind};
use lab::workload::Rng;

/// As in `strandline bench fsync`.
const FILE: u64 = 16 << 20;
const PAGE: usize = 4096;
/// Ours, and how many times the kernel's rate each is to have.
const OURS: [(&str, f64); 2] = [("f2fs", 6.0), ("ext4", 4.0)];
/// Turns of each; the median counts.
const TURNS: usize = 5;
/// Overwrites in a turn of ours and of ext4: about a second each.
const OPS: (u64, u64) = (150_000, 20_000);
/// Size of ext4's device.
const IMAGE: u64 = 512 << 20;

fn main() {
    // Cargo's test run calls benches too, but a measurement is not a test.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let ext4 = match Ext4::mount() {
        Ok(ext4) => ext4,
        Err(reason) => return println!("against ext4 on a loop device: skipped, {reason}"),
    };
    let (mut ours, mut theirs) = (OURS.map(|_| Vec::new()), Vec::new());
    for turn in 0..TURNS {
        for ((fs, _), rates) in OURS.iter().zip(&mut ours) {
            rates.push(our_rate(fs, turn as u64));
        }
        theirs.push(ext4.rate(turn as u64).expect("overwrite and fsync on ext4"));
    }
    let theirs = median(&mut theirs);
    println!("overwrite 4 KiB and fsync, 1 thread, median of {TURNS} turns each:");
    println!("  kernel ext4, loop over tmpfs  {theirs:>10.0}/s");
    for ((fs, target), rates) in OURS.iter().zip(&mut ours) {
        let rate = median(rates);
        println!(
            "  strandline {fs}, RAM drive    {rate:>10.0}/s, {:.2} times (target {target})",
            rate / theirs
        );
    }
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn our_rate(fs: &str, seed: u64) -> f64 {
    let job = Bench {
        kind: Kind::Fsync,
        format: subjects::named(fs).expect("built in"),
        drive: "ram".into(),
        machine: "real".into(),
        threads: 1,
        direct: false,
        mount_opts: String::new(),
        ops: Some(OPS.0),
        seed,
    };
    bench::run(&job).expect("no fault").ops_per_s
}

/// A mounted ext4. Dropping it removes it and everything it stands on.
struct Ext4 {
    /// What was set up so far, in order.
    tmpfs: Option<PathBuf>,
    device: Option<String>,
    mounted: bool,
    dir: tempfile::TempDir,
}

impl Ext4 {
    /// Sets it up, or says why that failed.
    fn mount() -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut ext4 = Self { tmpfs: None, device: None, mounted: false, dir };
        let memory = ext4.dir.path().join("memory");
        fs::create_dir(&memory).map_err(|e| e.to_string())?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1g", "tmpfs"]).arg(&memory))?;
        ext4.tmpfs = Some(memory.clone());
        let image = memory.join("ext4.img");
        File::create(&image).and_then(|f| f.set_len(IMAGE)).map_err(|e| e.to_string())?;
        run(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        ext4.device = Some(device.trim().to_owned());
        let point = ext4.point();
        fs::create_dir(&point).map_err(|e| e.to_string())?;
        run(Command::new("mount").args(["-t", "ext4", device.trim()]).arg(&point))?;
        ext4.mounted = true;
        ext4.fill(&point.join("file")).map_err(|e| e.to_string())?;
        Ok(ext4)
    }

    fn point(&self) -> PathBuf {
        self.dir.path().join("ext4")
    }

    fn fill(&self, path: &Path) -> io::Result<()> {
        let mut file = File::create(path)?;
        let chunk = Rng::new(0, 5).bytes(1 << 20);
        for _ in 0..FILE >> 20 {
            file.write_all(&chunk)?;
        }
        file.sync_all()
    }

    /// Overwrites with fsync per second.
    fn rate(&self, seed: u64) -> io::Result<f64> {
        let file = File::options().write(true).open(self.point().join("file"))?;
        let mut rng = Rng::new(seed, 5);
        let page = rng.bytes(PAGE);
        let begun = cores::now();
        for _ in 0..OPS.1 {
            file.write_all_at(&page, rng.below(FILE / PAGE as u64) * PAGE as u64)?;
            file.sync_all()?;
        }
        Ok(OPS.1 as f64 * 1e9 / (cores::now() - begun) as f64)
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let mut undo = Vec::new();
        if self.mounted {
            undo.push(run(Command::new("umount").arg(self.point())));
        }
        if let Some(device) = &self.device {
            undo.push(run(Command::new("losetup").args(["--detach", device])));
        }
        if let Some(memory) = &self.tmpfs {
            undo.push(run(Command::new("umount").arg(memory)));
        }
        for problem in undo.into_iter().filter_map(Result::err) {
            eprintln!("cleaning up: {problem}");
        }
    }
}

/// Runs a program to its end; returns what it printed, or what went wrong.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", said.lines().next().unwrap_or("failed").trim()))
}
