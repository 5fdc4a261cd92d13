//! `strandline bench iozone`: IOzone's write matrix on a file system in persistent memory, beside
//! others.

mod mounted;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use drive::Drive;
use drive::pm::{Mapped, Pm, PmAccess, PmDrive};
use lab::bench::iozone::{Durable, Job, Matrix, Place, cells};
use lab::bench::pm::floors;
use vfs::kind::Volume;

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::progress::Progress;
use crate::target::parse_size;
use mounted::Mounted;

/// Room beside twice the largest file.
const SPARE: u64 = 64 << 20;

/// IOzone's write and rewrite tests: files of 64 KiB to 512 MiB, records of 4 KiB to 16 MiB,
/// buffered, with fsync and with O_SYNC.
///
/// In this process, the same with an empty system call for each call, and through a mount, on
/// volumes in files of memory that are made for this and removed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline bench iozone --against ext4
  strandline bench iozone --against ext4 --cells 146 --json
  strandline bench iozone -O design=nova --max-file 16m --durable buffered")]
pub(crate) struct Iozone {
    /// File system for persistent memory
    #[arg(long, default_value = "pmfs")]
    fs: String,
    /// Features, as for mkfs -O
    #[arg(
        long,
        short = 'O',
        default_value = "",
        value_name = "FEATURES",
        hide_default_value = true
    )]
    features: String,
    /// Mount options, as for mount -o
    #[arg(long = "mount-options", default_value = "rw", short = 'o', value_name = "OPTIONS")]
    mount_opts: String,
    /// Measure beside, in the same run: directories, or `ext4`, the kernel's, data=ordered, made on
    /// a loop device over a file of memory
    #[arg(long, value_delimiter = ',', value_name = "ext4|DIR")]
    against: Vec<String>,
    /// 126, the cells of iozone -a, or 146, with -z
    #[arg(long, default_value_t = 126, value_parser = clap::value_parser!(u16).range(126..=146))]
    cells: u16,
    /// Leave larger files out
    #[arg(long, default_value = "512m", value_parser = parse_size)]
    max_file: u64,
    /// buffered, fsync, osync; all by default
    #[arg(long, value_delimiter = ',', value_name = "WHEN")]
    durable: Vec<When>,
    /// Where files of memory are made
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    memory: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// When data must be durable.
#[derive(Clone, Copy, clap::ValueEnum)]
enum When {
    Buffered,
    Fsync,
    Osync,
}

impl From<When> for Durable {
    fn from(when: When) -> Self {
        match when {
            When::Buffered => Self::Buffered,
            When::Fsync => Self::Fsync,
            When::Osync => Self::Osync,
        }
    }
}

impl Iozone {
    pub(super) fn run(self) -> Outcome {
        let small_records = match self.cells {
            126 => false,
            146 => true,
            other => return Err(Failure::Usage(format!("{other} cells; there are 126, or 146"))),
        };
        let durable = match &self.durable[..] {
            [] => Durable::ALL.to_vec(),
            some => some.iter().copied().map(Durable::from).collect(),
        };
        let mut cells = cells(small_records);
        cells.retain(|cell| cell.file <= self.max_file);
        let job = Job { cells, durable };
        let dir = tempfile::tempdir_in(&self.memory).map_err(Failure::host(&self.memory))?;
        let (volume, stream_bytes_per_s) = self.volume(&dir.path().join("process.pm"))?;
        let mut names = vec![self.fs.clone(), format!("{} + call", self.fs)];
        let mut places = vec![
            Place::Volume { volume: volume.clone(), with_call: false },
            Place::Volume { volume: volume.clone(), with_call: true },
        ];
        let (mut refused, mut mounts) = (Vec::new(), Vec::new());
        let mut add = |name: String, mounted: Outcome<Mounted>| match mounted {
            Ok(mounted) => {
                names.push(name);
                places.push(Place::Dir(mounted.point().to_owned()));
                mounts.push(mounted);
                true
            }
            Err(why) => {
                refused.push(format!("not measured: {name}: {why}"));
                false
            }
        };
        let mount = self.mount(dir.path());
        let ours = 2 + usize::from(add(format!("{} mounted", self.fs), mount));
        for peer in &self.against {
            let mounted = match peer.as_str() {
                "ext4" => Mounted::ext4(dir.path(), self.bytes()),
                path => Ok(Mounted::by_somebody(Path::new(path))),
            };
            add(peer.clone(), mounted);
        }
        let progress = Progress::new(job.steps(), "bench iozone", self.json);
        let cells = job.run(&places, &mut || progress.step())?;
        progress.finish();
        drop(places);
        drop(mounts);
        volume.unmount().map_err(|error| Failure::Problem(format!("unmount: {error}")))?;
        let (bench, places) = ("iozone", names);
        let matrix = Matrix { bench, places, ours, judged: 1, refused, stream_bytes_per_s, cells };
        match self.json {
            true => out::json(&matrix)?,
            false => out::text(&out::plain(matrix.text()))?,
        }
        Ok(0)
    }

    /// Bytes of a volume.
    fn bytes(&self) -> u64 {
        2 * self.max_file + SPARE
    }

    /// A volume in a new file of memory, mounted in this process, and what that memory streams.
    fn volume(&self, path: &Path) -> Outcome<(Arc<dyn Volume>, f64)> {
        let problem = |error: drive::pm::PmError| Failure::Problem(error.to_string());
        Mapped::create(path, self.bytes()).map_err(problem)?;
        let pm = Mapped::open(&[path], PmAccess::Write).map_err(problem)?;
        let floor = floors(&pm).stream_bytes_per_s;
        pm.store(0, &[0; 4096]);
        let format = subjects::named(&self.fs)?;
        let drive: Arc<dyn Drive> = PmDrive::new(Arc::new(pm), PmAccess::Write);
        format.make_with(&drive, &self.features)?;
        Ok((format.mount(drive, &self.mount_opts)?, floor))
    }

    /// Another one, mounted.
    fn mount(&self, dir: &Path) -> Outcome<Mounted> {
        let image = dir.join("mounted.pm");
        let problem = |error: drive::pm::PmError| Failure::Problem(error.to_string());
        Mapped::create(&image, self.bytes()).map_err(problem)?;
        let pm = Mapped::open(&[&image], PmAccess::Write).map_err(problem)?;
        let drive: Arc<dyn Drive> = PmDrive::new(Arc::new(pm), PmAccess::Write);
        subjects::named(&self.fs)?.make_with(&drive, &self.features)?;
        drop(drive);
        Mounted::ours(dir, &image, &self.mount_opts)
    }
}
