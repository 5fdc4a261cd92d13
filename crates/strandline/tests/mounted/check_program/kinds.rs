//! Programs that write in other ways than write(2): mapped, directly, in several processes; and
//! with names that shells and scripts take apart.

use std::process::Command;

use crate::common::{program, text};
use crate::mounting::alone;

const PLACES: &str = "least,f2fs:posix,ext4:ordered";

/// `run` is judged by `check`; whether nothing was rejected.
fn survives(setup: &str, run: &str, check: &str) -> bool {
    let mut command = Command::new(program());
    command.args(["check-program", "--on", PLACES, "--max-states", "600", "--setup", setup]);
    command.args(["--run", run, "--check", check, "--acknowledged", r"^committed (\d+)$"]);
    let output = command.output().expect("the command starts");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    assert!(said.contains("least"), "{said}");
    output.status.success()
}

fn python(script: &str) -> String {
    format!("python3 -c '{script}'")
}

/// What was changed through a mapping is durable after msync(2), and not before.
#[test]
fn a_mapping_is_durable_after_msync() {
    let _alone = alone();
    let run = |msync: &str| {
        python(&format!(
            "import mmap\nf = open(\"db\", \"r+b\")\nm = mmap.mmap(f.fileno(), 0)\n\
             for n in range(1, 4):\n m[n * 4096] = n\n {msync}\n \
             print(\"committed\", n, flush=True)"
        ))
    };
    let check = python(
        "import os\nb = open(\"db\", \"rb\").read()\n\
         n = int(os.environ.get(\"STRANDLINE_ACKNOWLEDGED\", \"0\"))\n\
         assert len(b) == 16384 and all(b[i * 4096] == i for i in range(1, n + 1))",
    );
    let setup = "truncate -s 16384 db";
    assert!(survives(setup, &run("m.flush()"), &check));
    assert!(!survives(setup, &run("pass"), &check));
}

/// `O_DIRECT` goes past the page cache, and not past a drive's.
#[test]
fn a_direct_write_is_durable_after_fdatasync() {
    let _alone = alone();
    let run = |conv: &str| {
        format!(
            "for n in 1 2 3; do head -c 4096 /dev/zero | tr '\\0' $n | dd of=db bs=4096 \
             oflag=direct conv=notrunc{conv} status=none && echo committed $n; done"
        )
    };
    let check = r#"[ "$(head -c 1 db | tr -d '\0')" -ge "${STRANDLINE_ACKNOWLEDGED:-0}" ]"#;
    let setup = "printf 0 >db; truncate -s 4096 db";
    assert!(survives(setup, &run(",fdatasync"), check));
    assert!(!survives(setup, &run(""), check));
}

/// Processes that write at once: each promise counts for what was done before it.
#[test]
fn several_processes_are_one_program() {
    let _alone = alone();
    let run = |sync: &str| {
        format!(
            "for n in 1 2 3 4; do (echo $n >file.$n && {sync}) & done; wait; \
             sync . && echo committed 4"
        )
    };
    let check = r#"[ "${STRANDLINE_ACKNOWLEDGED:-0}" = 0 ] ||
        for n in 1 2 3 4; do [ "$(cat file.$n)" = $n ] || exit 1; done"#;
    assert!(survives("true", &run("sync file.$n"), check));
    assert!(!survives("true", &run("true"), check));
}

/// Spaces, line ends, `#`, a leading `-`, and symbolic links that lead out of the directory.
#[test]
fn names_are_only_names() {
    let _alone = alone();
    let run = "for name in '#auto#' 'two words' \"$(printf 'a\\nb')\" -rf '*' 'q\"q'; do \
               echo x >\"./$name.tmp\" && sync \"./$name.tmp\" && \
               mv -- \"./$name.tmp\" \"./$name\" || exit; done; \
               ln -s /etc/hostname out && ln -s ../../.. up && sync .";
    let check = r#"[ "$STRANDLINE_EXITED" = 0 ] || {
        n=$(cat './#auto#' './two words' ./-rf './*' './q"q' "./$(printf 'a\nb')" | wc -l)
        [ "$n" = 6 ] && [ "$(readlink out)" = /etc/hostname ] && [ -L up ]; }"#;
    assert!(survives("true", run, check));
    assert!(!survives("true", &run.replace("&& sync .", ""), check));
}
