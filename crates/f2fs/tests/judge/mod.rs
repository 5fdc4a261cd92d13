//! A volume in a sparse file, and Debian's f2fs-tools as its judges.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Output as ProcessOutput};
use std::sync::Arc;

use cores::Mutex;
use drive::{
    BLOCK_SIZE, Command, Completion, Drive, FileMedia, Identify, Output, Status, Zone, ZoneAction,
    ZoneGeometry, ZoneKind, ZoneState,
};

/// A directory of images that goes away with the test.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// A sparse image of `bytes`.
    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.path().join(name);
        File::create(&path).and_then(|f| f.set_len(bytes)).expect("a sparse file");
        path
    }

    pub fn dir(&self) -> &Path {
        self.0.path()
    }
}

/// A drive over an image, answering at once; with zones if asked for.
pub struct ImageDrive {
    identify: Identify,
    state: Mutex<State>,
}

struct State {
    media: FileMedia,
    /// Write pointers of all zones, as blocks from the zone's start.
    wp: Vec<u64>,
    done: VecDeque<Completion>,
}

impl ImageDrive {
    /// A conventional drive over the image at `path`.
    pub fn open(path: &Path) -> Arc<dyn Drive> {
        Self::with_zones(path, None)
    }

    /// A drive over the image at `path`, all its sequential zones empty.
    pub fn with_zones(path: &Path, zones: Option<ZoneGeometry>) -> Arc<dyn Drive> {
        let file = OpenOptions::new().read(true).write(true).open(path).expect("the image");
        let blocks = file.metadata().expect("its size").len() / BLOCK_SIZE as u64;
        let identify = Identify {
            model: "image".into(),
            blocks,
            queues: 1,
            queue_depth: 32,
            max_transfer: 256,
            volatile_cache: false,
            discard: true,
            discard_zeroes: true,
            read_only: false,
            zones,
            joined: Vec::new(),
        };
        let wp = vec![0; zones.map_or(0, |z| z.count as usize)];
        let media = FileMedia::new(file, blocks);
        Arc::new(Self { identify, state: Mutex::new(State { media, wp, done: VecDeque::new() }) })
    }
}

impl State {
    fn run(&mut self, identify: &Identify, command: Command) -> Result<Output, Status> {
        let zones = identify.zones;
        match command {
            Command::Read { lba, blocks } => (lba..lba + u64::from(blocks))
                .map(|lba| self.media.read(lba))
                .collect::<Result<_, _>>()
                .map(Output::Data)
                .map_err(|_| Status::UnrecoveredRead),
            Command::Write { lba, data, .. } => {
                for (lba, block) in (lba..).zip(&data) {
                    self.advance(zones, lba)?;
                    self.media.write(lba, block).map_err(|_| Status::WriteFault)?;
                }
                Ok(Output::Done)
            }
            Command::Flush => Ok(Output::Done),
            Command::Discard { lba, blocks } => self.discard(lba, blocks),
            Command::ReportZones { .. } => Ok(Output::Zones(self.report(zones))),
            Command::ManageZone { action: ZoneAction::Reset, zone: Some(start) } => {
                let zones = zones.ok_or(Status::InvalidOpcode)?;
                self.wp[(start / zones.size) as usize] = 0;
                self.discard(start, zones.size)
            }
            _ => Err(Status::InvalidOpcode),
        }
    }

    fn discard(&self, lba: u64, blocks: u64) -> Result<Output, Status> {
        self.media.discard(lba, blocks).map_err(|_| Status::WriteFault)?;
        Ok(Output::Done)
    }

    fn advance(&mut self, zones: Option<ZoneGeometry>, lba: u64) -> Result<(), Status> {
        let Some(z) = zones.filter(|z| lba / z.size >= u64::from(z.conventional)) else {
            return Ok(());
        };
        let wp = &mut self.wp[(lba / z.size) as usize];
        if lba % z.size != *wp || *wp >= z.capacity {
            return Err(Status::ZoneInvalidWrite);
        }
        *wp += 1;
        Ok(())
    }

    fn report(&self, zones: Option<ZoneGeometry>) -> Vec<Zone> {
        let Some(z) = zones else { return Vec::new() };
        let zone = |i: u32| {
            let (start, wp) = (u64::from(i) * z.size, self.wp[i as usize]);
            let conventional = i < z.conventional;
            let (kind, state) = match wp {
                _ if conventional => (ZoneKind::Conventional, ZoneState::NotWritePointer),
                0 => (ZoneKind::SequentialWriteRequired, ZoneState::Empty),
                wp if wp == z.capacity => (ZoneKind::SequentialWriteRequired, ZoneState::Full),
                _ => (ZoneKind::SequentialWriteRequired, ZoneState::ImplicitlyOpen),
            };
            let full = conventional || state == ZoneState::Full;
            let capacity = if conventional { z.size } else { z.capacity };
            let wp = start + if full { z.size } else { wp };
            Zone { start, size: z.size, capacity, wp, kind, state }
        };
        (0..z.count).map(zone).collect()
    }
}

impl Drive for ImageDrive {
    fn identify(&self) -> &Identify {
        &self.identify
    }

    fn submit(&self, _queue: u16, cid: u16, command: Command) {
        let mut state = self.state.lock();
        let result = state.run(&self.identify, command);
        state.done.push_back(Completion { cid, result });
    }

    fn poll(&self, _queue: u16) -> Option<Completion> {
        self.state.lock().done.pop_front()
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.poll(queue)
    }
}

/// Runs one of f2fs-tools. Without it there is no judge, and no verdict: that fails the test.
pub fn tool(name: &str, arguments: &[&str]) -> ProcessOutput {
    let path = ["/usr/sbin", "/sbin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
    let Some(path) = path.into_iter().find(|path| path.exists()) else {
        panic!("{name} is not installed; it judges these tests: apt-get install f2fs-tools");
    };
    Process::new(&path).args(arguments).output().unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

/// `fsck.f2fs --dry-run` must find nothing.
pub fn assert_fsck_clean(image: &Path) {
    let out = tool("fsck.f2fs", &["--dry-run", image.to_str().expect("a plain path")]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}\n{text}", image.display());
    assert!(!text.contains("[Fail]"), "{text}");
}

/// An image `mkfs.f2fs` made with `arguments`.
pub fn assert_stock_mkfs(image: &Path, arguments: &[&str]) {
    let mut all = vec!["-q", "-f"];
    all.extend(arguments);
    all.push(image.to_str().expect("a plain path"));
    let out = tool("mkfs.f2fs", &all);
    assert!(out.status.success(), "mkfs.f2fs {all:?}: {}", String::from_utf8_lossy(&out.stdout));
}
