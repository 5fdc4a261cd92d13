//! Volumes on simulated memory.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::sync::Arc;

use drive::Drive;
use drive::pm::{Domain, Pm, PmAccess, PmDrive, PmSim, PmState};
use pmfs::Format;
use pmfs::mkfs::{MkfsOptions, make};
use vfs::kind::{Format as _, Volume};
use vfs::ops::{Session, parse};

/// Bytes of the volume that tests begin with.
const START_BYTES: u64 = 1 << 19;

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

/// A volume after [`BEFORE`], unmounted.
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
