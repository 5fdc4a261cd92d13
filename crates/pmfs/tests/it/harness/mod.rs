//! Volumes on simulated memory, and every state that a cut leaves of one operation.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::collections::BTreeSet;
use std::sync::Arc;

use cores::Mutex;
use drive::Drive;
use drive::pm::{Domain, Pending, Pm, PmAccess, PmDrive, PmFault, PmFaulty, PmSim, PmState};
use pmfs::Format;
use pmfs::mkfs::{MkfsOptions, make};
use vfs::kind::{Format as _, Volume};
use vfs::ops::{Op, Session, Tree, parse, snapshot};
use vfs::{FileSystem, MemFs};

/// Bytes of the volume that tests begin with.
const START_BYTES: u64 = 1 << 19;
/// Combinations up to which all are looked at, and how many otherwise.
const EXHAUST: u64 = 1 << 10;
const SAMPLES: u64 = 100;

pub fn drive(pm: Arc<dyn Pm>) -> Arc<dyn Drive> {
    PmDrive::new(pm, PmAccess::Write)
}

/// Mounts with the options of the design, which the label tells.
pub fn mount(pm: Arc<dyn Pm>) -> Result<Arc<dyn Volume>, String> {
    let drive = drive(pm);
    let label = Format.label(&drive).map_err(|error| format!("label: {error}"))?.label;
    let options = if label == "pnova" { PNOVA } else { "" };
    Format.mount(drive, options).map_err(|error| format!("mount: {error}"))
}

/// What mkfs offers, and the second with what pNOVA adds.
pub const DESIGNS: [&str; 3] = ["inplace", "nova", "pnova"];
/// The mount options of pNOVA.
const PNOVA: &str = "range_lock=segment,log=core,place=local";

/// An empty volume of a design.
pub fn empty(design: &str, bytes: u64) -> PmState {
    let pm = PmSim::power_on(PmState::new(bytes), Domain::Process);
    let label = design.into();
    let design = if design == "pnova" { "nova" } else { design };
    let options =
        MkfsOptions { features: format!("design={design}"), label, ..MkfsOptions::default() };
    make(&*pm, &options).expect("mkfs");
    pm.visible()
}

/// What is wrong with a volume, in words.
pub fn findings(pm: Arc<dyn Pm>) -> Result<(), String> {
    let checked = Format.check(&drive(pm)).map_err(|error| format!("check: {error}"))?;
    if checked.findings.is_empty() { Ok(()) } else { Err(format!("check: {:?}", checked.findings)) }
}

/// What tests begin with: files of several pages, one in pieces, directories, links, attributes.
const BEFORE: &str = "\
create a 644
write a 0+9000 seed=1
mkdir d 755
create d/b 600
write d/b 0+8192 seed=2
mkdir e 755
create p 644
write p 0+4096 seed=3
write p 8192+4096 seed=4
write p 16384+100 seed=5
link a d/l
symlink a s
setxattr a user.x 100 seed=6
create o 644
write o 0+5000 seed=7
mkdir d/f 755
";

/// The sequences' operations: each at least once, on small files.
pub const OPS: &[&str] = &[
    "write a 0+8192 seed=20",
    "write a 100+50 seed=21",
    "append a 5000 seed=22",
    "write a 20000+3000 seed=23",
    "write p 4096+8192 seed=24",
    "truncate a 100",
    "truncate a 0",
    "truncate a 30000",
    "truncate p 9000",
    "fallocate a none 8192+20000",
    "fallocate a keep_size 8192+20000",
    "fallocate p punch_hole|keep_size 100+9000",
    "fallocate a zero_range 50+9000",
    "fallocate p collapse_range 4096+4096",
    "fallocate p insert_range 4096+8192",
    "create c 644",
    "create a-name-that-takes-more-than-a-single-line-of-sixty-four-bytes-in-the-directory 644",
    "mkdir g 755",
    "mknod n fifo 644 0",
    "symlink d/b t",
    "link d/b e/m",
    "unlink a",
    "unlink d/l",
    "unlink o",
    "rmdir e",
    "rename a d/a none",
    "rename d/b a none",
    "rename a d/l none",
    "rename o q none",
    "rename e h none",
    "rename d/f e none",
    "rename d e/d none",
    "rename a o exchange",
    "rename d/f e exchange",
    "rename d/f a exchange",
    "setxattr a user.y 2000 seed=30",
    "setxattr o user.z 10 seed=31",
    "removexattr a user.x",
    "chmod a 600",
    "chown d 5 6",
    "open o h",
];

/// How an exploration went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    pub states: u64,
    pub recoveries_cut: u64,
    pub sampled: u64,
}

impl std::ops::AddAssign for Explored {
    fn add_assign(&mut self, other: Self) {
        self.states += other.states;
        self.recoveries_cut += other.recoveries_cut;
        self.sampled += other.sampled;
    }
}

/// A volume after [`BEFORE`], unmounted, and the model of it.
pub struct Start {
    pub state: PmState,
}

impl Start {
    pub fn new(design: &str) -> Self {
        let pm = PmSim::power_on(empty(design, START_BYTES), Domain::Process);
        let fs = mount(pm.clone()).expect("mount");
        let ops = parse(BEFORE).expect("operations");
        let mut session = Session::new(&*fs);
        for op in &ops {
            session.apply(op).unwrap_or_else(|errno| panic!("{op}: {errno}"));
        }
        drop(session);
        fs.unmount().expect("unmount");
        Self { state: pm.visible() }
    }
}

fn model() -> MemFs {
    MemFs::new()
}

fn model_before() -> MemFs {
    let model = model();
    let mut session = Session::new(&model);
    for op in parse(BEFORE).expect("operations") {
        session.apply(&op).expect("possible");
    }
    drop(session);
    model
}

/// What a recovered volume may hold: a tree, and the contents of the file that is being written.
struct Ends {
    trees: [Tree; 2],
    contents: Option<(String, [Vec<u8>; 2])>,
}

/// What a program forgets, and what its recovery does.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub running: Option<PmFault>,
    pub recovering: Option<PmFault>,
}

fn with(sim: &Arc<PmSim>, fault: Option<PmFault>) -> Arc<dyn Pm> {
    match fault {
        Some(fault) => PmFaulty::new(sim.clone(), fault),
        None => sim.clone(),
    }
}

/// Runs `ops` with a look before each fence, and judges every state.
pub fn explore(
    start: &Start,
    ops: &[Op],
    domain: Domain,
    faults: Faults,
) -> Result<Explored, String> {
    let sim = PmSim::power_on(start.state.clone(), domain);
    let looks: Arc<Mutex<Vec<Pending>>> = Arc::default();
    let to = looks.clone();
    let fs = mount(with(&sim, faults.running))?;
    sim.observe(Arc::new(move |pending| to.lock().push(pending)));
    let judged = Judged { domain, fault: faults.recovering };
    let model = model_before();
    let (mut ours, mut models) = (Session::new(&*fs), Session::new(&model));
    let mut explored = Explored::default();
    let mut seen = BTreeSet::new();
    let mut before = snapshot(&model).map_err(|e| e.to_string())?;
    for op in ops {
        let old = contents(&model, op);
        let (a, b) = (ours.apply(op), models.apply(op));
        if a != b {
            return Err(format!("{op}: {a:?}, model {b:?}"));
        }
        let after = snapshot(&model).map_err(|e| e.to_string())?;
        let contents =
            old.zip(contents(&model, op)).map(|((path, old), (_, new))| (path, [old, new]));
        let ends = Ends { trees: [before, after.clone()], contents };
        let mut looks = std::mem::take(&mut *looks.lock());
        looks.push(sim.pending());
        if faults.running.is_none() && domain != Domain::Process && !sim.pending().is_settled() {
            return Err(format!("{op}: something is dirty at its return"));
        }
        seen.clear();
        for look in &looks {
            judge_all(look, &ends, judged, &mut seen, &mut explored)
                .map_err(|why| format!("{op}: {why}"))?;
        }
        // What the call did is there, whatever comes later.
        let ends = Ends { trees: [after.clone(), after.clone()], contents: None };
        judge_all(&sim.pending(), &ends, judged, &mut BTreeSet::new(), &mut explored)
            .map_err(|why| format!("after {op}: {why}"))?;
        before = after;
    }
    Ok(explored)
}

fn contents(fs: &MemFs, op: &Op) -> Option<(String, Vec<u8>)> {
    let (Op::Write { path, .. } | Op::Append { path, .. } | Op::Fallocate { path, .. }) = op else {
        return None;
    };
    let ino = vfs::path::resolve(fs, path.as_bytes(), true).ok()?.ino;
    Some((path.clone(), vfs::path::read_to_vec(fs, ino).ok()?))
}

/// What a state is recovered with.
#[derive(Clone, Copy)]
struct Judged {
    domain: Domain,
    fault: Option<PmFault>,
}

fn judge_all(
    look: &Pending,
    ends: &Ends,
    judged: Judged,
    seen: &mut BTreeSet<u64>,
    explored: &mut Explored,
) -> Result<(), String> {
    let max = if look.count() <= EXHAUST { EXHAUST } else { SAMPLES };
    explored.sampled += u64::from(look.count() > EXHAUST);
    for state in look.states(max, 1) {
        if !seen.insert(state.hash()) {
            continue;
        }
        explored.states += 1;
        judge(&state, ends, judged, 2, seen, explored)?;
    }
    Ok(())
}

/// Recovers and compares; cuts the recovery itself as well, `depth` times.
fn judge(
    state: &PmState,
    ends: &Ends,
    judged: Judged,
    depth: u32,
    seen: &mut BTreeSet<u64>,
    explored: &mut Explored,
) -> Result<(), String> {
    let sim = PmSim::power_on(state.clone(), judged.domain);
    let looks: Arc<Mutex<Vec<Pending>>> = Arc::default();
    let to = looks.clone();
    sim.observe(Arc::new(move |pending| to.lock().push(pending)));
    findings(sim.clone())?;
    let fs = mount(with(&sim, judged.fault))?;
    compare(&*fs, ends)?;
    fs.unmount().map_err(|error| format!("unmount: {error}"))?;
    if depth == 0 {
        return Ok(());
    }
    for look in std::mem::take(&mut *looks.lock()) {
        for state in look.states(SAMPLES, 1) {
            if seen.insert(state.hash()) {
                explored.recoveries_cut += 1;
                judge(&state, ends, judged, depth - 1, seen, explored)
                    .map_err(|why| format!("recovery cut: {why}"))?;
            }
        }
    }
    Ok(())
}

fn compare(fs: &dyn FileSystem, ends: &Ends) -> Result<(), String> {
    let found = snapshot(fs).map_err(|error| format!("snapshot: {error}"))?;
    let [before, after] = &ends.trees;
    if found == *before || found == *after {
        return Ok(());
    }
    let differences =
        || format!("before: {:?}; after: {:?}", before.diff(&found), after.diff(&found));
    let Some((path, [old, new])) = &ends.contents else { return Err(differences()) };
    // Only the words of the file under way may be some of each.
    let bare = |tree: &Tree| {
        let mut tree = tree.clone();
        let names = tree.0.iter_mut();
        names.for_each(|(_, node)| node.pages.clear());
        tree
    };
    if bare(&found) != bare(before) && bare(&found) != bare(after) {
        return Err(differences());
    }
    let ino = vfs::path::resolve(fs, path.as_bytes(), true).map_err(|e| e.to_string())?.ino;
    let bytes = vfs::path::read_to_vec(fs, ino).map_err(|e| e.to_string())?;
    let word = |bytes: &[u8], n: usize| -> Vec<u8> {
        let mut word: Vec<u8> = bytes.iter().skip(n * 8).take(8).copied().collect();
        word.resize(8, 0);
        word
    };
    for n in 0..bytes.len().div_ceil(8) {
        let here = word(&bytes, n);
        let cut = |from: &[u8]| word(&from[..from.len().min(bytes.len())], n);
        if here != cut(old) && here != cut(new) {
            return Err(format!("{path}: word {n} is neither old nor new; {}", differences()));
        }
    }
    Ok(())
}
