//! What each call costs on the medium: fences, lines written back, words streamed. These are what a
//! design is chosen for, so a change of them is seen.

use std::fmt::Write as _;

use cores::{Machine, Profile};
use drive::pm::{Domain, PmSim};
use vfs::ops::{Session, parse};

use crate::harness::{DESIGNS, Start, mount};

/// Each follows the ones before it.
const OPS: &str = "\
write p 0+4096 seed=1
write p 100+8 seed=2
append a 5000 seed=3
write a 20000+100 seed=4
truncate a 100
truncate a 30000
fallocate a none 40000+9000
fallocate p punch_hole|keep_size 100+9000
create c 644
mkdir g 755
symlink d/b t
link d/b e/m
rename c e/c none
rename a o none
unlink e/m
rmdir g
setxattr o user.y 2000 seed=5
chmod o 600
fsync o
sync
read o 0+4096
";

/// Between two calls, so that their times differ.
const PAUSE: cores::Nanos = 1_000_000;

fn costs(design: &str) -> String {
    let sim = PmSim::power_on(Start::new(design).state, Domain::Memory);
    let fs = mount(sim.clone()).expect("mount");
    let mut session = Session::new(&*fs);
    let mut table = String::new();
    for op in parse(OPS).expect("operations") {
        cores::sleep(PAUSE);
        let before = sim.counts();
        session.apply(&op).unwrap_or_else(|errno| panic!("{op}: {errno}"));
        let now = sim.counts();
        let (fences, lines) = (now.fences - before.fences, now.lines - before.lines);
        let bytes = (now.streamed_words - before.streamed_words) * 8;
        writeln!(table, "{op}: {fences} fences, {lines} lines, {bytes} bytes streamed")
            .expect("a string");
        assert!(sim.pending().is_settled(), "{design}, {op}: something is on its way at return");
    }
    table
}

/// The tables lie beside this file, one for each design.
///
/// The clock is a virtual one, on which all calls fall into one second: the first call of another
/// second writes the line of the seconds, too.
#[test]
fn calls_cost_what_they_did() {
    let machine = Machine::simulated(&Profile::named("xeon-4116").expect("known"), 1);
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/costs");
    let mut other = String::new();
    for design in DESIGNS {
        let found = machine.run(|| costs(design)).expect("no deadlock");
        let expected = std::fs::read_to_string(format!("{dir}/{design}.txt")).unwrap_or_default();
        if found != expected {
            other += &format!("{design}:\n{found}");
        }
    }
    assert!(other.is_empty(), "not as in {dir}:\n{other}");
}
