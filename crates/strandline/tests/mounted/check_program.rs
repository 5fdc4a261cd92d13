//! `check-program` finds the planted mistake of ten small programs, by its name, and passes their
//! mended forms (`programs/`).

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::{program, text};
use crate::mounting::alone;

const PROGRAMS: [&str; 10] = [
    "ignored", "index", "log", "mailbox", "pages", "pair", "publish", "rewrite", "save", "segment",
];

fn script(name: &str) -> PathBuf {
    let file = format!("tests/mounted/programs/{name}.sh");
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn check(name: &str, variant: &str, on: &str, states: usize) -> Output {
    let step = |step: &str| format!("sh '{}' {step}", script(name).display());
    let mut command = Command::new(program());
    command.arg("check-program").arg("--json").args(["--on", on]);
    command.args(["--setup", &step("setup"), "--run", &step(variant)]);
    command.args(["--check", &step(&format!("check {variant}"))]);
    command.args(["--acknowledged", r"^(?:appended|committed) (\d+)$"]);
    command.args(["--max-states", &states.to_string()]);
    command.output().expect("the command starts")
}

/// Both forms of a program, with the mistake that its first line names.
fn both(name: &str, on: &str, states: usize) {
    let source = std::fs::read_to_string(script(name)).expect("it is there");
    let mistake = source.lines().next().and_then(|line| line.strip_prefix("# mistake: "));
    let mistake = mistake.expect("its first line names the mistake");
    let broken = check(name, "broken", on, states);
    let said = text(&broken.stdout);
    assert_eq!(broken.status.code(), Some(1), "{name}: {said}{}", text(&broken.stderr));
    assert!(said.contains(&format!(r#""pattern":"{mistake}""#)), "{name}: {said}");
    let mended = check(name, "mended", on, states);
    let said = text(&mended.stdout);
    assert_eq!(mended.status.code(), Some(0), "{name}: {said}{}", text(&mended.stderr));
    assert!(!said.contains(r#""unreadable":1"#), "{name}: {said}");
}

#[test]
fn planted_mistakes_are_found_and_named() {
    let _alone = alone();
    ["rewrite", "segment"].iter().for_each(|name| both(name, "least,fsync-fails", 100));
}

#[test]
#[ignore = "long: make test-all"]
fn all_planted_mistakes_are_found_and_named() {
    let _alone = alone();
    PROGRAMS.iter().for_each(|name| both(name, "least,fsync-fails", 400));
}

#[test]
#[ignore = "long: make test-all"]
fn mended_programs_pass_on_every_file_system() {
    let _alone = alone();
    // Other modes of F2FS promise too little for any program.
    let on = "least,f2fs:strict,f2fs:oprw-strict,ext4,fsync-fails";
    PROGRAMS.iter().for_each(|name| both(name, on, 1500));
}

/// SQLite with a write-ahead log keeps every transaction that it has committed, unless it is told
/// not to wait for anything.
#[test]
#[ignore = "long: make test-all"]
fn sqlite_keeps_its_word() {
    let _alone = alone();
    let judged = |synchronous: &str| {
        let run = format!(
            "{{ echo 'pragma synchronous={synchronous};'; for n in $(seq 20); do \
             echo \"insert into t values($n); select 'committed $n';\"; done; }} | sqlite3 db"
        );
        let check = r#"[ "$(sqlite3 db 'pragma integrity_check')" = ok ] &&
            n=$(sqlite3 db 'select count(*) from t where x <= (select count(*) from t)') &&
            [ "$n" = "$(sqlite3 db 'select count(*) from t')" ] &&
            [ "$n" -ge "${STRANDLINE_ACKNOWLEDGED:-0}" ]"#;
        let mut command = Command::new(program());
        command.args(["check-program", "--json", "--acknowledged", r"committed (\d+)"]);
        command.args(["--setup", "sqlite3 db 'pragma journal_mode=wal; create table t(x)'"]);
        command.args(["--run", &run, "--check", check, "--max-states", "2000"]);
        command.args(["--on", "least,f2fs:posix,f2fs:strict,f2fs:oprw-strict,ext4"]);
        command.output().expect("the command starts")
    };
    let full = judged("full");
    assert_eq!(full.status.code(), Some(0), "{}{}", text(&full.stdout), text(&full.stderr));
    let off = judged("off");
    assert_eq!(off.status.code(), Some(1), "{}{}", text(&off.stdout), text(&off.stderr));
    let said = text(&off.stdout);
    assert!(said.contains(r#""pattern":"no fsync""#), "{said}");
}
