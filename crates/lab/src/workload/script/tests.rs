//! A text means what it says, errors name their line, and what a workload did can be written down
//! and repeated.

use std::sync::Arc;

use super::*;
use crate::campaign::{CutPoints, Job, Progress, run_at};
use crate::explore::ace::Sequence;
use crate::workload::{Pattern, small};
use f2fs::technique;

fn job(workload: Arc<dyn Workload>) -> Job {
    let job = Job::new(&f2fs::Format, "zn540-noplp", workload, technique::POSIX, 1);
    Job { check_every: 1, threads: 2, ..job }
}

fn cuts(workload: Arc<dyn Workload>) -> crate::Result<crate::campaign::ModeResult> {
    let quiet: Progress = Arc::new(|_| true);
    Ok(run_at(&Arc::new(job(workload)), CutPoints::Every, &quiet)?.0)
}

#[test]
fn what_is_wrong_is_told_by_line() {
    let bad = [
        ("frob a", "unknown verb 'frob'"),
        ("write a 0+9999999999", "more than 512 MiB"),
        ("append a 18446744073709551615", "beyond"),
        ("write a 18446744073709551615+2", "beyond"),
        ("truncate a 2000000000000", "beyond"),
        ("setxattr a user.x 70000", "a value of more"),
        ("begin now", "unexpected 'now'"),
        ("footprint lots", "a number of bytes"),
        ("footprint 99999999999999", "a number of bytes"),
    ];
    for (line, what) in bad {
        let said = Script::parse(&format!("# one\ncreate a\n{line}\n"), "w.txt");
        let said = said.expect_err(line).to_string();
        assert!(said.starts_with("w.txt:3: ") && said.contains(what), "{said}");
    }
    let said = Script::parse("begin\nbegin\n", "w").expect_err("two").to_string();
    assert!(said.starts_with("w:2: a second"), "{said}");
    assert!(Script::parse("# nothing\n", "w").is_err());
    let many = "sync\n".repeat(STEPS_MAX + 1);
    assert!(Script::parse(&many, "w").is_err());
}

#[test]
fn an_operation_that_cannot_be_done_is_told_by_line() {
    let bad = [
        ("fsync b", "No such file"),
        ("write d 0+9", "Is a directory"),
        ("create a/b", "Not a directory"),
        ("create a", "File exists"),
        ("rename a d noreplace", "File exists"),
        ("rename a d whiteout", "no such flag"),
        ("fallocate a collapse_range 0+4096", "not supported"),
        ("fsync #h", "Bad file descriptor"),
        ("mknod n file 600 0", "mknod is for"),
        ("chattr d nodump", "only files"),
        ("rmdir /", "File exists"),
    ];
    for (line, what) in bad {
        let text = format!("create a\nmkdir d\n{line}\nsync\n");
        let script = Script::parse(&text, "w.txt").expect(line);
        let said = cuts(Arc::new(script)).expect_err(line).to_string();
        assert!(said.starts_with("w.txt:3: ") && said.contains(what), "{line}: {said}");
    }
}

/// Every operation there is, cut everywhere.
#[test]
fn every_operation_can_be_cut() {
    let text = "\
mkdir d\ncreate d/a\nwrite d/a 0+9000\nbegin\n\
open d/a h\nappend d/a 5000\nfdatasync d/a\nwrite #h 4096+4096\nlink d/a b\nfsync b\n\
rename b c\ntruncate c 6000\nfsync d\nfallocate c none 0+40000\n\
fallocate c punch_hole|keep_size 4096+4096\nfsync c\ncopy c 0+20000 d/a 50000\n\
fallocate c zero_range 100+100\nread c 0+100000\nchmod c 600\nchown c 7 8\n\
setxattr c user.a 300\nfsync c\nremovexattr c user.a\nsymlink nowhere s\n\
utimens c omit -1.000000002\nchattr c nodump|noatime\nmknod n char 600 259\n\
mknod p fifo 600 0\nfsync /\nunlink d/a\nunlink c\nwrite #h 0+100\nfsync #h\n\
close h\nrmdir d\nclean\nstat s\nlist /\nsync\n";
    let script = Script::parse(text, "all.txt").expect("it is right");
    let again = Script::parse(&script.text(), "all.txt").expect("its text is right");
    assert_eq!(again.steps(), script.steps());
    let result = cuts(Arc::new(script)).expect("it runs");
    assert!(result.cuts > 30, "{}", result.cuts);
    assert_eq!(result.broken, 0, "{:#?}", result.failures);
}

#[test]
fn what_a_workload_did_does_the_same_again() {
    let sequence: Sequence = "ace:xattr+nothing,rename+fsync".parse().expect("it is one");
    let pattern = Pattern::sized(40, 12);
    let workloads: [Arc<dyn Workload>; 4] = [
        Arc::new(small::named("unlink-open").expect("it is known")),
        Arc::new(small::named("replace-by-rename").expect("it is known")),
        Arc::new(sequence),
        Arc::new(pattern),
    ];
    for workload in workloads {
        let name = workload.name().to_owned();
        let script = Script::record(&job(workload.clone())).expect("it can be written down");
        let again = Script::parse(&script.text(), "again").expect("the text is right");
        assert_eq!(again.steps(), script.steps());
        let (first, again) = (cuts(workload), cuts(Arc::new(again)));
        let (first, again) = (first.expect("it runs"), again.expect("it runs again"));
        assert_eq!((first.cuts, first.failed), (again.cuts, again.failed), "{name}");
        assert_eq!(first.fsync_us_p50, again.fsync_us_p50, "{name}");
    }
}
