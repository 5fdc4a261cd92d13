//! `check-program` finds the planted mistake of ten small programs, by its name, and passes their
//! mended forms (`programs/`).

mod kinds;
mod ways;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::{program, text};
use crate::mounting::{NOBODY, alone};

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

/// The program works in a directory that is its user's.
#[test]
fn a_user_needs_no_root() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("it is ours");
    // The build's own directory may be closed to others.
    let binary = dir.path().join("strandline");
    std::fs::copy(program(), &binary).expect("it is built");
    let mut command = Command::new(binary);
    command.args(["check-program", "--setup", "echo old >f && chmod 600 f", "--run"]);
    command.args(["echo new >f.tmp && sync f.tmp && mv f.tmp f && sync ."]);
    command.args(["--check", "grep -qx -e old -e new f", "--on", "least,ext4:ordered"]);
    if rustix::process::getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    let ran = command.output().expect("the command starts");
    let said = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{said}{}", text(&ran.stderr));
}

/// A file of the repository.
fn shipped(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// The example's test passes, and fails when the program under test forgets its fsync.
#[test]
fn a_test_of_pytest_fails_when_data_is_lost() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let tested = |forgets: &str| {
        for name in ["notes.py", "test_notes.py"] {
            let text = std::fs::read_to_string(shipped("examples/pytest").join(name)).expect(name);
            let kept = text.lines().filter(|line| forgets.is_empty() || !line.contains(forgets));
            let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
            std::fs::write(dir.path().join(name), kept).expect("it is ours");
        }
        let mut pytest = Command::new("pytest-3");
        pytest.args(["-p", "no:cacheprovider"]).arg(dir.path()).env("STRANDLINE", program());
        pytest.output().expect("pytest-3 (Debian: python3-pytest) is installed")
    };
    let whole = tested("");
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stdout));
    let forgetful = tested("os.fsync(file");
    let said = text(&forgetful.stdout);
    assert_eq!(forgetful.status.code(), Some(1), "{said}");
    assert!(said.contains("mistake: no fsync before rename"), "{said}");
}

/// `action.yml` hands each of its inputs to the script that runs, and that fails when it has to.
#[test]
fn an_action_fails_when_data_is_lost() {
    let _alone = alone();
    let action = std::fs::read_to_string(shipped("action.yml")).expect("it is there");
    let script = shipped("packaging/check-program");
    let source = std::fs::read_to_string(&script).expect("it is there");
    let handed: Vec<(&str, &str)> = action
        .lines()
        .filter_map(|line| line.trim().strip_suffix(" }}")?.split_once(": ${{ inputs."))
        .collect();
    for (variable, input) in &handed {
        assert!(action.contains(&format!("\n  {input}:\n")), "{input} is no input");
        assert!(
            source.contains(&format!("${variable}"))
                || source.contains(&format!("${{{variable}:-}}")),
            "{variable}"
        );
    }
    let summary = tempfile::NamedTempFile::new().expect("a file");
    let ran = |program_under_test: &str| {
        let values = [
            "echo old >f",
            program_under_test,
            "grep -qx -e old -e new f",
            "",
            "least",
            "--max-states=50\n--seed=2",
        ];
        let mut command = Command::new(&script);
        assert_eq!(handed.len(), values.len());
        command.envs(handed.iter().map(|(variable, _)| *variable).zip(values));
        command.env("STRANDLINE", program()).env("GITHUB_STEP_SUMMARY", summary.path());
        command.output().expect("the script runs").status.code()
    };
    assert_eq!(ran("echo new >f.tmp && sync f.tmp && mv f.tmp f"), Some(0));
    assert_eq!(ran("echo new >f.tmp && mv f.tmp f"), Some(1));
    let summary = std::fs::read_to_string(summary.path()).expect("it is ours");
    assert!(summary.contains("no state was rejected"), "{summary}");
    assert!(summary.contains("mistake: no fsync before rename"), "{summary}");
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
    // Without the lock there is an index besides, which is never fsynced: too many states for all.
    let judged = |synchronous: &str, on: &str, states: &str| {
        let run = format!(
            "{{ echo 'pragma locking_mode=exclusive; pragma synchronous={synchronous};'; \
             for n in $(seq 20); do \
             echo \"insert into t values($n); select 'committed $n';\"; done; }} | sqlite3 db"
        );
        let check = r#"[ "$(sqlite3 db 'pragma integrity_check')" = ok ] &&
            n=$(sqlite3 db 'select count(*) from t where x <= (select count(*) from t)') &&
            [ "$n" = "$(sqlite3 db 'select count(*) from t')" ] &&
            [ "$n" -ge "${STRANDLINE_ACKNOWLEDGED:-0}" ]"#;
        let mut command = Command::new(program());
        command.args(["check-program", "--json", "--acknowledged", r"committed (\d+)"]);
        command.args(["--setup", "sqlite3 db 'pragma journal_mode=wal; create table t(x)'"]);
        command.args(["--run", &run, "--check", check, "--on", on, states]);
        command.output().expect("the command starts")
    };
    let full = judged("full", "least,f2fs:posix,f2fs:strict,ext4:ordered", "--every-state");
    let said = text(&full.stdout);
    assert_eq!(full.status.code(), Some(0), "{said}{}", text(&full.stderr));
    let places = said.lines().filter(|line| line.contains(r#""on":"#));
    assert_eq!(places.clone().count(), 4, "{said}");
    for place in places {
        assert!(place.contains(r#""left_out":0,"sampled":0,"complete":true"#), "{place}");
    }
    let modes = "least,f2fs:posix,f2fs:strict,f2fs:oprw-strict,ext4";
    let full = judged("full", modes, "--max-states=2000");
    assert_eq!(full.status.code(), Some(0), "{}{}", text(&full.stdout), text(&full.stderr));
    let off = judged("off", modes, "--max-states=2000");
    assert_eq!(off.status.code(), Some(1), "{}{}", text(&off.stdout), text(&off.stderr));
    let said = text(&off.stdout);
    assert!(said.contains(r#""pattern":"no fsync""#), "{said}");
}
