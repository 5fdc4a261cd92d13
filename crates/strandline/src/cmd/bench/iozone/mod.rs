//! `strandline bench iozone`: IOzone's write matrix on a file system in persistent memory, compared
//! with others.

mod mounted;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use drive::Drive;
use drive::pm::{Mapped, PmAccess, PmDrive};
use lab::bench::iozone::{Durable, Job, Matrix, Place, cells};
use vfs::kind::Volume;

use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
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
/// volumes in files of memory that are made for this and removed; and what streaming stores alone
/// do.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline bench iozone --against ext4
  strandline bench iozone --against ext4 --cells 146 --json
  strandline bench iozone --against ext4 --svg iozone.svg
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
    /// Also as a drawing: by how many percent each cell is faster than the first of --against
    #[arg(long, value_name = "FILE", requires = "against")]
    svg: Option<PathBuf>,
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
        let volume = self.volume(&dir.path().join("process.pm"))?;
        let bare = self.memory(&dir.path().join("bare.pm"), self.max_file)?.as_memory();
        let (judged, floor) = (1, 2);
        let mut names = vec![self.fs.clone(), format!("{} + call", self.fs), "stream".into()];
        let mut places = vec![
            Place::Volume { volume: volume.clone(), with_call: false },
            Place::Volume { volume: volume.clone(), with_call: true },
            Place::Memory(Arc::new(bare)),
        ];
        let unmounted = places.len();
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
        let ours = unmounted + usize::from(add(format!("{} mounted", self.fs), mount));
        for peer in &self.against {
            let mounted = match peer.as_str() {
                "ext4" => Mounted::ext4(dir.path(), self.bytes()),
                path => Ok(Mounted::by_somebody(Path::new(path))),
            };
            add(peer.clone(), mounted);
        }
        let (interrupt, mut done) = (Interrupt::watch()?, 0);
        let progress = Progress::new(job.steps(), "bench iozone", self.json);
        let cells = job.run(&places, &mut || {
            progress.step();
            done += 1;
            !interrupt.came()
        })?;
        progress.finish();
        drop(places);
        // In any case, so that nothing stays mounted.
        drop(mounts);
        interrupt.check(|| format!("{done} of {} cells measured", job.steps()))?;
        volume.unmount().map_err(|error| Failure::Problem(format!("unmount: {error}")))?;
        let (bench, places) = ("iozone", names);
        let matrix = Matrix { bench, places, ours, judged, floor, refused, cells };
        if let Some(path) = &self.svg {
            std::fs::write(path, matrix.svg()).map_err(Failure::host(path))?;
        }
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

    /// A new file of memory.
    fn memory(&self, path: &Path, bytes: u64) -> Outcome<Mapped> {
        let problem = |error: drive::pm::PmError| Failure::Problem(error.to_string());
        Mapped::create(path, bytes).map_err(problem)?;
        Mapped::open(&[path], PmAccess::Write).map_err(problem)
    }

    /// An empty volume in one.
    fn make(&self, path: &Path) -> Outcome<Arc<dyn Drive>> {
        let pm = self.memory(path, self.bytes())?;
        let drive: Arc<dyn Drive> = PmDrive::new(Arc::new(pm), PmAccess::Write);
        subjects::named(&self.fs)?.make_with(&drive, &self.features)?;
        Ok(drive)
    }

    /// A volume in a new file of memory, mounted in this process.
    fn volume(&self, path: &Path) -> Outcome<Arc<dyn Volume>> {
        let drive = self.make(path)?;
        Ok(subjects::named(&self.fs)?.mount(drive, &self.mount_opts)?)
    }

    /// Another one, mounted.
    fn mount(&self, dir: &Path) -> Outcome<Mounted> {
        let image = dir.join("mounted.pm");
        drop(self.make(&image)?);
        Mounted::ours(dir, &image, &self.mount_opts)
    }
}
