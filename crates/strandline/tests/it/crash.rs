//! `strandline crash` with a user's own workloads: texts and traces.

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/save.workload");

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(&ok(line)).expect("one JSON object")
}

#[test]
fn the_example_keeps_its_promise_at_every_cut() {
    for mode in ["posix", "oprw"] {
        let line = format!("crash --workload file:{EXAMPLE} --modes {mode} --every-cut --json");
        let result = json(&line);
        assert!(result["cuts"].as_u64() > Some(10), "{result}");
        assert_eq!(result["failed"], 0, "{result}");
    }
    let all = json(&format!("crash --workload {EXAMPLE} --modes oprw --every-state --json"));
    assert!(all["states"].as_u64() > Some(10), "{all}");
    assert_eq!(all["broken"], 0);
}

#[test]
fn what_is_printed_is_the_workload() {
    let scratch = Scratch::new("print-workload");
    let printed = ok("crash --workload unlink-open --print-workload");
    assert!(printed.contains("\nbegin\nopen a o1\nunlink a\n"), "{printed}");
    let file = scratch.path("again.workload");
    std::fs::write(&file, &printed).expect("a file");
    assert_eq!(ok(&format!("crash --workload file:{file} --print-workload")), printed);
    let cuts = |workload: &str| {
        json(&format!("crash --workload {workload} --modes posix --every-cut --json"))["cuts"]
            .clone()
    };
    assert_eq!(cuts("unlink-open"), cuts(&format!("file:{file}")));
}

#[test]
fn a_wrong_workload_is_told_by_file_and_line() {
    let scratch = Scratch::new("wrong-workload");
    let file = scratch.path("w");
    for (text, said) in [
        ("create a\nfrob a\n", ":2: unknown verb 'frob' in 'frob a'"),
        ("create a\n\nfsync b\n", ":3: 'fsync b': "),
        ("write a 0+99999999999\n", ":1: more than 512 MiB"),
    ] {
        std::fs::write(&file, text).expect("a file");
        let (code, error) = fails(&format!("crash --workload file:{file} --modes posix"));
        assert_eq!(code, 2, "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(&format!("{file}{said}")), "{error}");
    }
    assert_eq!(fails("crash --workload file:/dev/zero").0, 2);
    assert_eq!(fails("crash --workload file:/nowhere").0, 1);
    assert_eq!(fails(&format!("crash --workload strace:{file}")).0, 2);
}

#[test]
fn a_trace_is_cut_like_any_workload() {
    let scratch = Scratch::new("trace");
    let file = scratch.path("trace.txt");
    let trace = "\
        9 openat(AT_FDCWD, \"/srv/db/log\", O_WRONLY|O_APPEND) = 3\n\
        9 write(3, \"x\"..., 600) = 600\n\
        9 fdatasync(3) = 0\n\
        9 ioctl(3, TCGETS, 0x7ffd) = -1 ENOTTY (Inappropriate ioctl for device)\n\
        9 ioctl(3, FS_IOC_SETFLAGS, 0x7ffd) = 0\n";
    std::fs::write(&file, trace).expect("a file");
    let line =
        format!("crash --workload strace:{file} --root /srv/db --modes strict --every-state");
    let out = strandline(&line);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains(" 0 broke a promise"), "{}", text(&out.stdout));
    let said = text(&out.stderr);
    assert!(said.contains("LEFT OUT: 1 (ioctl 1)"), "{said}");
    let printed = ok(&format!("{line} --print-workload"));
    assert!(printed.ends_with("begin\nwrite log 0+600 seed=1\nfdatasync log\n"), "{printed}");
}

/// Needs FUSE: root or fusermount3.
#[test]
fn a_program_on_a_mount_becomes_a_workload() {
    let scratch = Scratch::new("record");
    let (script, file) = (scratch.path("save.sh"), scratch.path("save.workload"));
    // The recording mount has no flags, and says so.
    let save = "printf newer >new && sync new && mv new config && sync . && rm -f absent && \
                ! lsattr config 2>/dev/null\n";
    std::fs::write(&script, save).expect("a file");
    ok(&format!("crash record {file} --setup mkdir${{IFS}}dir -- sh {script}"));
    let recorded = std::fs::read_to_string(&file).expect("a workload");
    assert!(recorded.starts_with("mkdir dir 755\nbegin\ncreate new 644\n"), "{recorded}");
    let rest = "fsync new\nrename new config none\nfsync /\n";
    assert!(recorded.ends_with(rest), "{recorded}");
    let cut = ok(&format!("crash --workload file:{file} --modes oprw,strict --every-state"));
    assert!(cut.matches(" 0 broke a promise").count() == 2, "{cut}");
    let failed = strandline(&format!("crash record {file} -- false"));
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(text(&failed.stderr).lines().count(), 1, "{}", text(&failed.stderr));
}

/// Every kind of run prints the same finding when what it prints after "again:" is run.
#[test]
fn what_is_printed_to_run_again_repeats() {
    let scratch = Scratch::new("again");
    let (file, trace) = (scratch.path("small.w"), scratch.path("trace.txt"));
    let workload = "create a\nbegin\nwrite a 0+9000\nfsync a\nrename a b\nfsync /\n";
    std::fs::write(&file, workload).expect("a file");
    let calls = "9 openat(AT_FDCWD, \"/srv/db/log\", O_WRONLY|O_APPEND) = 3\n\
                 9 write(3, \"x\"..., 9000) = 9000\n9 fdatasync(3) = 0\n";
    std::fs::write(&trace, calls).expect("a file");
    for line in [
        "crash --modes posix --cuts 100",
        "crash --modes posix --workload varmail --cuts 40 --seed 2 --inject drop-flush",
        "crash --modes strict --workload rename-fsync-dir --every-cut --inject plain-checkpoint",
        "crash --modes oprw-strict --workload append --every-state --inject skip-wp-check",
        &format!("crash --modes posix --workload tree --tree {HERE} --cuts 20 --inject drop-flush"),
        &format!("crash --modes posix --workload file:{file} --every-cut --inject drop-flush"),
        &format!(
            "crash --modes posix --workload strace:{trace} --root /srv/db --every-state \
             --inject drop-flush"
        ),
        &format!(
            "crash --modes posix --workload file:{file} --inject drop-flush --minimise {}",
            scratch.path("shortest.w")
        ),
        "lab explore --modes strict --drives conventional-noplp --inject drop-flush",
    ] {
        let said = text(&strandline(line).stdout);
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        let again = lines.iter().find_map(|line| line.strip_prefix("again: strandline "));
        let again = again.unwrap_or_else(|| panic!("{line}: nothing failed:\n{said}"));
        let kinds = ["lost: ", "garbage: ", "torn: ", "corrupt: "];
        let found = lines.iter().find(|line| kinds.iter().any(|kind| line.starts_with(kind)));
        let repeated = text(&strandline(again).stdout);
        let found = found.expect("what was found");
        assert!(repeated.contains(found), "{line}\n{found}\nnot found by: {again}\n{repeated}");
    }
}

#[test]
fn shards_say_together_what_one_run_says() {
    let scratch = Scratch::new("shards");
    let all = "crash --workload small.w --modes posix,strict --cuts 60 --inject drop-flush";
    let workload = scratch.path("small.w");
    std::fs::write(&workload, "create a\nbegin\nwrite a 0+9000\nfsync a\nwrite a 0+5\nfsync a\n")
        .expect("a file");
    let all = all.replace("small.w", &workload);
    for (kind, whole, merged) in [
        ("", text(&strandline(&all).stdout), ""),
        ("", text(&strandline(&format!("{all} --json")).stdout), " --json"),
        (" --every-state", text(&strandline(&format!("{all} --every-state")).stdout), ""),
        (" --every-cut", text(&strandline(&format!("{all} --every-cut --json")).stdout), " --json"),
    ] {
        let mut files = Vec::new();
        for i in [2, 1, 3] {
            let share = strandline(&format!("{all}{kind} --shard {i}/3"));
            let file = scratch.path(&format!("{i}.jsonl"));
            std::fs::write(&file, &share.stdout).expect("a file");
            files.push(file);
        }
        let out = strandline(&format!("crash merge {}{merged}", files.join(" ")));
        assert_eq!(text(&out.stdout), whole, "{}", text(&out.stderr));
        assert_eq!(out.status.code(), Some(1));
        let (code, said) = fails(&format!("crash merge {} {}", files[0], files[1]));
        assert!(code == 2 && said.contains("shard 3/3 is missing"), "{said}");
    }
    assert_eq!(fails(&format!("crash merge {workload}")).0, 2);
    assert_eq!(fails("crash --shard 4/3").0, 2);
    assert_eq!(fails("crash --shard 1/3 --only 3").0, 2);
}
use crate::common::{Scratch, fails, ok, strandline, text};
