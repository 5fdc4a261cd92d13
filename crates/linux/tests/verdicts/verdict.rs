//! Crashes judged: the kernel recovers each image, we recover a copy, and both must hold the same.
//!
//! Four trees are compared for every image: what we see mounting it read-only, what we recover,
//! what the kernel recovers, and what the kernel reads from the volume we recovered. All images of
//! a batch go to one guest, side by side on one disk. A directory that gets an entry back has the
//! time of the recovery, which is another each time, and so has a file of ext4 whose truncation
//! recovery ends; such times are only compared as such.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::AGENT;
use drive::image::zones_path;
use linux::{Entry, Guest, Manifest, Output, Time};
use vfs::FileKind;
use vfs::kind::{Format, Volume};

use crate::volumes::{
    CONVENTIONAL_ZONES, Kind, MIB, ZONE_MIB, copy_slot, copy_sparse, open, report, sparse,
    wrong_with,
};

/// Drives in files that crashes left, all of one kind and size.
pub(crate) struct Batch {
    format: &'static dyn Format,
    dir: PathBuf,
    kind: Kind,
    mib: u64,
    /// What made the crash, in words that tell it from the others.
    names: Vec<String>,
    /// The kernel may fail to recover some of its own crashes.
    may_be_refused: bool,
    /// Fast commits of the kernel may have given files the numbers of orphans.
    reuses_orphans: bool,
}

/// Stands for a time of which only matters that it is no older than the recovery.
const OF_RECOVERY: Time = (i64::MAX, 0);

impl Batch {
    /// A batch in a directory of its own, which stays if the verdict is bad.
    pub(crate) fn new(name: &str, kind: Kind, mib: u64) -> Self {
        Self::of(&f2fs::Format, name, kind, mib)
    }

    /// As [`Batch::new`], of another file system than F2FS.
    pub(crate) fn of(format: &'static dyn Format, name: &str, kind: Kind, mib: u64) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _not_there = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory for images");
        let (may_be_refused, reuses_orphans) = (false, false);
        Self { format, dir, kind, mib, names: Vec::new(), may_be_refused, reuses_orphans }
    }

    /// Where the next crash, made by what `name` says, is to be put.
    pub(crate) fn add(&mut self, name: String) -> PathBuf {
        self.names.push(name);
        self.crash(self.names.len() - 1)
    }

    /// The kernel may fail to recover some of them, which we recover.
    pub(crate) fn may_be_refused(self) -> Self {
        Self { may_be_refused: true, ..self }
    }

    /// Fast commits of the kernel may have given files the numbers of orphans.
    pub(crate) fn reuses_orphans(self) -> Self {
        Self { reuses_orphans: true, ..self }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn format(&self) -> &'static dyn Format {
        self.format
    }

    pub(crate) fn mib(&self) -> u64 {
        self.mib
    }

    fn crash(&self, n: usize) -> PathBuf {
        self.dir.join(format!("crash-{n}"))
    }

    fn recovered(&self, n: usize) -> PathBuf {
        self.dir.join(format!("recovered-{n}"))
    }

    /// The manifest with the times that the recovery set named as such. Blocks of an ext4 file are
    /// those of its extent tree, too, which recovery may make otherwise.
    fn settled(&self, mut manifest: Manifest, since: i64) -> Manifest {
        let is_ext4 = self.format.name() == "ext4";
        for entry in manifest.0.values_mut() {
            let kind = FileKind::from_mode(entry.mode);
            if kind == Some(FileKind::Directory) || is_ext4 && kind == Some(FileKind::Regular) {
                for time in [&mut entry.mtime, &mut entry.ctime] {
                    if time.0 >= since {
                        *time = OF_RECOVERY;
                    }
                }
            }
            if is_ext4 {
                entry.blocks = 0;
            }
        }
        manifest
    }

    /// We recover all of them, whatever the kernel says.
    pub(crate) fn judge_ours(self) {
        self.recover_all(now(&self.dir));
        fs::remove_dir_all(&self.dir).expect("the images removed");
    }

    fn recover_all(&self, since: i64) -> Vec<Manifest> {
        let (ours, replayed): (Vec<Manifest>, Vec<u64>) =
            (0..self.names.len()).map(|n| self.recover(n, since)).unzip();
        let (parts, images) = (replayed.iter().sum::<u64>(), replayed.iter().filter(|n| **n > 0));
        println!("{} crashes; {parts} replayed in {}", replayed.len(), images.count());
        assert!(parts > 0, "there was nothing to recover, so nothing was judged");
        ours
    }

    /// The verdict on all of them.
    pub(crate) fn judge(self) {
        let since = now(&self.dir);
        let ours = self.recover_all(since);
        let out = self.show_to_the_kernel();
        let (mut wrong, mut refused) = (Vec::new(), Vec::new());
        for (n, (ours, name)) in ours.iter().zip(&self.names).enumerate() {
            let kernels = [("crash", "recovers"), ("recovered", "reads from what we recovered")];
            for (what, does) in kernels {
                let words = match fs::read(out.path(&format!("{what}-{n}"))) {
                    Ok(json) if !json.is_empty() => {
                        let mut kernels = self.settled(read_manifest(&json), since);
                        if what == "crash" && self.reuses_orphans {
                            let log = fs::read_to_string(out.path(&format!("{what}-{n}.log")));
                            keep_times_of_reused(&mut kernels, ours, &log.unwrap());
                        }
                        kernels.diff(ours)
                    }
                    _ if what == "crash" && self.may_be_refused => {
                        refused.push(n);
                        continue;
                    }
                    _ => vec![fs::read_to_string(out.path(&format!("{what}-{n}.log"))).unwrap()],
                };
                let image = self.crash(n);
                wrong.extend(words.iter().take(10).map(|word| {
                    format!("{} ({name}): the kernel {does}: {word}", image.display())
                }));
            }
        }
        if self.format.name() != "f2fs" {
            wrong.extend(self.check_what_the_kernel_recovered(&refused));
        }
        println!("the kernel cannot recover {} of {}", refused.len(), self.names.len());
        assert!(refused.len() * 4 < self.names.len(), "the kernel recovers too few");
        assert!(wrong.is_empty(), "{} of them differ:\n{}", wrong.len(), wrong.join("\n"));
        fs::remove_dir_all(&self.dir).expect("the images removed");
    }

    /// Recovers a copy, which must look as the original did read-only and be clean thereafter.
    /// Also how much was replayed.
    fn recover(&self, n: usize, since: i64) -> (Manifest, u64) {
        let (from, to) = (self.crash(n), self.recovered(n));
        copy(&from, &to, self.mib);
        let mount = |path: &Path, options| {
            let mounted = self.format.mount(open(path), options);
            mounted.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let tree = |fs: &dyn Volume| self.settled(Manifest::of_volume(fs).expect("a tree"), since);
        let mut before = tree(&*mount(&from, "ro"));
        let fs = mount(&to, "");
        let ours = tree(&*fs);
        foresee_truncations(&mut before, &ours);
        let replayed = fs.recovery().replayed;
        fs.unmount().expect("an unmount");
        drop(fs);
        let words = before.diff(&ours);
        assert!(
            words.is_empty(),
            "{}: not as seen read-only:\n{}",
            self.names[n],
            words.join("\n")
        );
        let wrong = wrong_with(self.format, &to);
        assert!(wrong.is_none(), "{}: {}", self.names[n], wrong.unwrap_or_default());
        (ours, replayed)
    }

    /// What is wrong with the volumes that its recovery leaves.
    fn check_what_the_kernel_recovered(&self, refused: &[usize]) -> Vec<String> {
        let (disk, bytes) = (self.dir.join("crash"), self.mib * MIB);
        let check = |(n, name): (usize, &String)| {
            let one = sparse(self.dir.join(format!("kernels-{n}")), bytes);
            copy_slot(&disk, n as u64 * bytes, &one, bytes);
            let wrong = wrong_with(self.format, &one)?;
            Some(format!("{} ({name}): the kernel leaves: {wrong}", self.crash(n).display()))
        };
        let all = self.names.iter().enumerate().filter(|(n, _)| !refused.contains(n));
        all.filter_map(check).collect()
    }

    fn show_to_the_kernel(&self) -> Output {
        let disks = ["crash", "recovered"].map(|what| {
            let path = sparse(self.dir.join(what), self.mib * MIB * self.names.len() as u64);
            let disk = File::options().write(true).open(&path).expect("a disk");
            for n in 0..self.names.len() {
                let image = self.dir.join(format!("{what}-{n}"));
                copy_sparse(&image, &disk, n as u64 * self.mib * MIB).expect("a disk");
            }
            path
        });
        let mut guest = Guest::new().memory(1024).timeout(900).program(Path::new(AGENT));
        for (n, _) in self.names.iter().enumerate().filter(|_| self.kind == Kind::Zoned) {
            guest = guest.file(&format!("crash-{n}.zones"), report(&self.crash(n)));
            guest = guest.file(&format!("recovered-{n}.zones"), report(&self.recovered(n)));
        }
        let out = guest.drive(&disks[0]).drive(&disks[1]).run(&self.script());
        out.success();
        out
    }

    fn script(&self) -> String {
        let (count, mib, sectors) = (self.names.len(), self.mib, self.mib * 2048);
        let fs = self.format.name();
        let (make, device, remove) = match self.kind {
            Kind::Conventional => (
                format!(
                    "dmsetup create slot --table \"0 {sectors} linear $2 $(($n * {sectors}))\""
                ),
                "/dev/mapper/slot",
                "dmsetup remove slot",
            ),
            Kind::Zoned => (
                format!(
                    "null_blk 0 {mib} {ZONE_MIB} {CONVENTIONAL_ZONES} &&
                    strandline-agent put $2 $(($n * {mib} * 1048576)) /host/$1-$n.zones /dev/nullb0"
                ),
                "/dev/nullb0",
                "null_blk_remove 0",
            ),
        };
        format!(
            "export DM_DISABLE_UDEV=1
            modprobe dm-mod
            look() {{
                {make} || exit 1
                dmesg -c >/dev/null
                if mount -t {fs} -o noatime {device} /mnt; then
                    strandline-agent manifest /mnt >/host/$1-$n
                    umount /mnt || exit 1
                fi
                dmesg >/host/$1-$n.log
                {remove} || exit 1
            }}
            n=0
            while [ $n -lt {count} ]; do
                look crash /dev/vda
                look recovered /dev/vdb
                n=$(($n + 1))
            done"
        )
    }
}

/// A read-only mount ends no truncation. Gives the files in `before` the times that this gave them
/// in `ours`; whether the right ones have them is for the kernel to say.
fn foresee_truncations(before: &mut Manifest, ours: &Manifest) {
    for (name, entry) in &mut before.0 {
        if ours.0.get(name).is_some_and(is_truncated) {
            (entry.mtime, entry.ctime) = (OF_RECOVERY, OF_RECOVERY);
        }
    }
}

/// Whether recovery has ended a truncation of it.
fn is_truncated(file: &Entry) -> bool {
    FileKind::from_mode(file.mode) == Some(FileKind::Regular)
        && [file.mtime, file.ctime] == [OF_RECOVERY; 2]
}

/// A fast commit says nothing of the list of orphans. If the kernel (6.1) made a file with the
/// number of one, its recovery finds that number in the list that was committed last, and truncates
/// the new file to the size it has, at the time of recovery. We keep the times that were made
/// durable. The kernel says how many files it truncated: only if these are exactly those with times
/// of recovery, they get ours.
fn keep_times_of_reused(kernels: &mut Manifest, ours: &Manifest, log: &str) {
    let truncated = kernels.0.values().filter(|entry| is_truncated(entry));
    let inos: BTreeSet<u64> = truncated.map(|entry| entry.ino).collect();
    if inos.len() != truncations(log) {
        return;
    }
    for (name, entry) in kernels.0.iter_mut().filter(|(_, entry)| is_truncated(entry)) {
        if let Some(ours) = ours.0.get(name) {
            (entry.mtime, entry.ctime) = (ours.mtime, ours.ctime);
        }
    }
}

/// How many files the kernel says that it truncated: "EXT4-fs (dm-0): 2 truncates cleaned up".
fn truncations(log: &str) -> usize {
    let of = |line: &str| {
        let (before, _) = line.strip_suffix(" cleaned up")?.split_once(" truncate")?;
        before.rsplit(' ').next()?.parse().ok()
    };
    log.lines().find_map(of).unwrap_or(0)
}

/// The clock of the file system that has the images, in seconds.
fn now(dir: &Path) -> i64 {
    fs::write(dir.join("now"), "")
        .and_then(|()| fs::metadata(dir.join("now")))
        .expect("a file")
        .mtime()
}

pub(crate) fn read_manifest(json: &[u8]) -> Manifest {
    serde_json::from_slice(json).expect("a manifest")
}

/// Copies a drive in a file, and its zones if it has any.
pub(crate) fn copy(from: &Path, to: &Path, mib: u64) {
    let file = File::create(to).expect("an image");
    file.set_len(mib * MIB).expect("room for an image");
    copy_sparse(from, &file, 0).expect("an image copied");
    if zones_path(from).exists() {
        fs::copy(zones_path(from), zones_path(to)).expect("zones copied");
    }
}
