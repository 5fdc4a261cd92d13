//! The ways in which states are shown, and how a run ends: on mounts, without a checker, by a
//! signal, after a time.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{program, text};
use crate::mounting::{NOBODY, alone, eventually};

const SETUP: &str = "echo old >f";
const BROKEN: &str = "printf new >f.tmp && mv f.tmp f";
const MENDED: &str = "printf new >f.tmp && sync f.tmp && mv f.tmp f && sync .";

fn command(run: &str, more: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["check-program", "--setup", SETUP, "--run", run]).args(more);
    command
}

fn ran(run: &str, more: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command(run, more).output().expect("it starts");
    (status.code(), text(&stdout) + &text(&stderr))
}

/// The checker is on a file system of ours, may change everything, and finds what it would find in
/// a copy.
#[test]
fn a_checker_may_work_on_mounts() {
    let _alone = alone();
    let check = "findmnt -nT . | grep -q strandline && touch new && chmod 600 f && \
                 grep -qx -e old -e new f";
    let places = "least,f2fs:posix,ext4:ordered";
    let judge = |run| ran(run, &["--mounted", "--check", check, "--on", places]);
    let (code, said) = judge(MENDED);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = judge(BROKEN);
    assert!(code == Some(1) && said.contains("mistake: no fsync before rename"), "{said}");
    assert!(said.contains(" --mounted "), "{said}");
}

#[test]
fn a_user_mounts_states_without_root() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("it is ours");
    let binary = dir.path().join("strandline");
    fs::copy(program(), &binary).expect("it is built");
    let mut command = Command::new(binary);
    command.args(["check-program", "--setup", SETUP, "--run", MENDED, "--mounted", "--check"]);
    command.args(["echo more >>f && grep -q -e old -e new f", "--on", "least,ext4:ordered"]);
    if rustix::process::getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    let ran = command.output().expect("the command starts");
    assert_eq!(ran.status.code(), Some(0), "{}{}", text(&ran.stdout), text(&ran.stderr));
}

#[test]
fn without_a_checker_there_are_warnings_and_differences() {
    let _alone = alone();
    let on = ["--on", "least,f2fs:posix,ext4:ordered"];
    let (code, said) = ran(BROKEN, &on);
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "warning: step 4 renames f.tmp to f",
        "no checker, so nothing was judged",
        "only least may leave ",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let (_, said) = ran(BROKEN, &[&on[..], &["--json"]].concat());
    assert!(said.contains(r#"{"differences":[{"on":"least","only_there":"#), "{said}");
}

/// The picture has the rename on the drive, and what it overtook not.
#[test]
fn a_verdict_shows_the_order() {
    let _alone = alone();
    let check = "grep -qx -e old -e new f";
    let (_, said) = ran(BROKEN, &["--on", "least", "--check", check]);
    let drawn = |step: &str, arrow: &str| {
        said.lines().any(|line| line.contains(step) && line.contains(arrow))
    };
    assert!(drawn("write f.tmp 0+3", "|--x"), "{said}");
    assert!(drawn("rename f.tmp f", "|-------->|"), "{said}");
}

/// Everything below this directory, the name of a directory that goes with it.
/// A run that has begun. It minds SIGHUP although the tests may be run under `nohup`.
fn begun(run: &str, more: &[&str], tmp: &Path) -> Child {
    let of_test = command(run, more);
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(of_test.get_program()).args(of_test.get_args());
    command.env("TMPDIR", tmp).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("it starts")
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("it is ours").next().is_none()
}

/// Neither states nor mounts stay behind, whether the program runs or its checker.
#[test]
fn nothing_stays_behind_after_a_signal() {
    let _alone = alone();
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        for (run, check, mounted) in [
            ("touch begun; sleep 100", "true", false),
            (MENDED, "test ! -e f.tmp || sleep 100", false),
            (MENDED, "test ! -e f.tmp || sleep 100", true),
        ] {
            let tmp = tempfile::tempdir().expect("a directory");
            let mut more = vec!["--check", check, "--on", "least,f2fs:posix"];
            more.extend(mounted.then_some("--mounted"));
            let mut child = begun(run, &more, tmp.path());
            // Not below the mount that records, which could not be unmounted meanwhile.
            let of_state = "strandline-states-*/*/f.tmp";
            let marker = if run == MENDED { of_state } else { ".tmp*/begun" };
            let look = format!("ls {}/{marker}", tmp.path().display());
            eventually("it works", || {
                let found = Command::new("sh").args(["-c", &look]).output();
                !found.expect("a shell").stdout.is_empty()
            });
            kill_process(Pid::from_child(&child), signal).expect("it is there");
            let ended = child.wait().expect("it ends");
            assert_eq!(ended.code(), Some(status), "{run} {check}");
            assert!(is_empty(tmp.path()), "{run} {check}: {:?}", fs::read_dir(tmp.path()));
        }
    }
}

/// A budget of time is one although a single check takes longer than a state should.
#[test]
fn a_search_ends_in_time() {
    let _alone = alone();
    let more = ["--check", "sleep 0.4", "--on", "least,f2fs:posix", "--max-time", "2"];
    let begun = cores::now();
    let (code, said) = ran(BROKEN, &more);
    assert_eq!(code, Some(0), "{said}");
    assert!(cores::now() - begun < 20_000_000_000, "{said}");
    assert!(said.contains("stopped early") && said.contains("not every state"), "{said}");
}

/// Checkers that hang, talk without end, leave daemons, close their directory, or die.
#[test]
fn a_checker_may_do_what_it_likes() {
    let _alone = alone();
    let judge = |check: &str, more: &[&str]| {
        let tmp = tempfile::tempdir().expect("a directory");
        let mut command = command(MENDED, &[&["--check", check, "--on", "least"], more].concat());
        let output = command.env("TMPDIR", tmp.path()).output().expect("it starts");
        assert!(is_empty(tmp.path()), "{check}");
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = judge("sleep 600 & setsid sleep 3 & exit 0", &[]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = judge("mkdir -p a/b && touch a/b/c && chmod 0 a/b a && exit 0", &[]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = judge("yes | head -c 9000000; exit 0", &[]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = judge("test ! -e f.tmp || exec yes", &["--check-timeout", "1"]);
    assert!(code == Some(1) && said.contains("still running after 1 s"), "{said}");
    let (code, said) = judge("test ! -e f.tmp || kill -SEGV $$", &[]);
    assert!(code == Some(1) && said.contains("ended by signal 11"), "{said}");
}

/// A program that is killed promises nothing that could be checked.
#[test]
fn a_program_that_fails_is_not_judged() {
    let _alone = alone();
    for (run, why) in [
        ("echo x >g; kill -9 $$", "signal: 9"),
        ("exit 3", "exit status: 3; nothing was judged"),
        ("true", "the program changed nothing"),
        ("./here", "exit status: 127 (it runs in a directory of its own: name programs by full"),
    ] {
        let (code, said) = ran(run, &["--check", "true"]);
        assert!(code == Some(2) && said.contains(why), "{said}");
    }
}

/// Places where nothing can be judged are no success, and the one that is left out is named.
#[test]
fn what_is_not_tried_is_said() {
    let _alone = alone();
    let check = ["--check", "grep -qx -e old -e new f"];
    for (on, code, why) in [
        (&["--on", "ext4", "--drive", "zn540"][..], 2, "no mode of ext4 runs on zn540"),
        (&["--on", "fsync-fails"], 2, "fsync-fails: the program calls no fsync"),
        (&["--on", "least,fsync-fails"], 1, "BROKEN"),
    ] {
        let (found, said) = ran(BROKEN, &[&check[..], on].concat());
        assert!(found == Some(code) && said.contains(why), "{on:?}: {said}");
    }
    let synced_late = "printf new >f.tmp && mv f.tmp f && sync f";
    let (_, said) = ran(synced_late, &[&check[..], &["--on", "least,fsync-fails"]].concat());
    assert!(said.contains("fsync-fails was not tried"), "{said}");
}

#[test]
fn a_marker_that_never_comes_is_a_warning() {
    let _alone = alone();
    let more = ["--check", "true", "--on", "least", "--acknowledged", "comitted (.*)"];
    let (code, said) = ran("echo x >g; echo committed 1", &more);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing that --acknowledged 'comitted (.*)' matches"), "{said}");
}

/// The next run may name it again.
#[test]
fn a_directory_to_keep_a_state_is_there_only_if_one_is_kept() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let kept = dir.path().join("kept");
    let keep = ["--on", "least", "--keep", kept.to_str().expect("it is text"), "--check"];
    let check = [&keep[..], &["grep -qx -e old -e new f"]].concat();
    for (run, code, is_kept) in [(MENDED, 0, false), ("exit 3", 2, false), (BROKEN, 1, true)] {
        assert_eq!(ran(run, &check).0, Some(code), "{run}");
        assert_eq!(kept.join("f").exists(), is_kept, "{run}");
    }
    assert_eq!(ran(MENDED, &check).0, Some(2), "it is taken");
    assert!(kept.join("f").exists());
}

/// Nothing else is there that it could belong to.
#[test]
fn a_single_file_that_is_written_where_it_is_found_is_no_commit_of_several() {
    let _alone = alone();
    let check = "test ! -e 'a file' || grep -q x 'a file'";
    let (code, said) = ran("echo x >'a file'; sync 'a file'", &["--check", check, "--on", "least"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("mistake: overwrite in place"), "{said}");
    assert!(said.contains("write a%20file 0+2"), "{said}");
}
