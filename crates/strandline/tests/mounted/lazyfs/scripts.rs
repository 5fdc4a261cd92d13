//! LazyFS's own examples of faults, from configuration files, and its command line as Jepsen and
//! its scripts give it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Lazy, synced};
use crate::mounting::{Disk, Rig, run};

fn injection(text: &str) -> String {
    format!("\n[[injection]]\n{text}\n")
}

/// The page's third example, with and without a crash; here `before` the sixth is before the sixth.
#[test]
fn clear_cache_comes_at_the_sixth_fsync() {
    for crash in [false, true] {
        let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
        lazy.rig.unmount();
        lazy.mount(&injection(&format!(
            "type=\"clear\"\nfrom=\"f1.txt\"\ntiming=\"before\"\nop=\"fsync\"\noccurrence=6\n\
             crash={crash}"
        )));
        let file = File::create(lazy.path("f1.txt")).unwrap();
        for n in 1..=6 {
            file.write_all_at(&[b'0' + n], 0).unwrap();
            // Others do not count.
            drop(synced(&lazy.path("f2.txt"), b"x"));
            assert_eq!(file.sync_all().is_ok(), n < 6, "{n}");
        }
        drop(file);
        lazy.await_line("Triggered fault condition (op=fsync,timing=before)");
        if crash {
            lazy.await_death();
            lazy.mount("");
        } else {
            lazy.await_line("cache is cleared.");
        }
        assert_eq!(fs::read(lazy.path("f1.txt")).unwrap(), b"5");
    }
}

/// The page's second example: the fifth write, in three parts of which the first and the third
/// persist.
#[test]
fn torn_op_persists_parts_of_a_write() {
    for (fs, root) in [("f2fs", ""), ("ext4", "/data.root/")] {
        for (divide, left) in
            [("parts=3", &b"aa\0\0ccd"[..]), ("parts_bytes=[1,3,3]", b"a\0\0\0ccd")]
        {
            let mut lazy = Lazy::new(fs, Disk::Plain(128), "");
            lazy.rig.unmount();
            if !root.is_empty() {
                lazy.options += ",modules=subdir,subdir=/data.root";
            }
            lazy.mount(&injection(&format!(
                "type=\"torn-op\"\nfile=\"{root}output1.txt\"\noccurrence=5\n{divide}\n\
                 persist=[1,3]"
            )));
            let file = File::create(lazy.path("output1.txt")).unwrap();
            for n in 0..4 {
                file.write_all_at(b"lost", 100 * n).unwrap();
            }
            file.write_all_at(b"aabbccd", 8192).unwrap_err();
            drop(file);
            lazy.await_death();
            lazy.mount("");
            let data = fs::read(lazy.path("output1.txt")).unwrap();
            assert!(data[..8192].iter().all(|byte| *byte == 0), "{fs}");
            assert_eq!(data[8192..], *left, "{fs}");
        }
    }
}

/// A fault whose parts do not add up does not come.
#[test]
fn torn_op_does_not_come_if_the_parts_are_not_the_write() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    lazy.tell("lazyfs::torn-op::file=f::parts_bytes=4096,3600,1260::persist=1,3");
    lazy.await_line("received: VALID torn-op fault");
    drop(synced(&lazy.path("f"), b"short"));
    lazy.await_line("sum of parts is different");
    drop(synced(&lazy.path("f"), &[1; 8956]));
    lazy.clear();
    assert_eq!(fs::read(lazy.path("f")).unwrap(), [1; 8956]);
}

/// The page's first example: of the second group of writes, the first and the fourth persist.
#[test]
fn torn_seq_persists_writes_of_a_group() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    lazy.rig.unmount();
    lazy.mount(&injection(
        "type=\"torn-seq\"\nop=\"write\"\nfile=\"output.txt\"\npersist=[1,4]\noccurrence=2",
    ));
    let file = File::create(lazy.path("output.txt")).unwrap();
    for group in 0..2 {
        for write in 0..4 {
            let done = file.write_all_at(&[b'a' + 4 * group + write; 2], 2 * u64::from(write));
            assert_eq!(done.is_ok(), (group, write) != (1, 3));
        }
        // A single write is no group.
        let synced = file.sync_all().and_then(|()| file.write_all_at(b"!", 8));
        assert_eq!(synced.and_then(|()| file.sync_all()).is_ok(), group == 0);
    }
    drop(file);
    lazy.await_death();
    lazy.mount("");
    assert_eq!(fs::read(lazy.path("output.txt")).unwrap(), b"eebbcchh!");
}

/// A file whose name is not durable either is made again with what persists of it.
#[test]
fn torn_seq_by_command_makes_a_lost_file_again() {
    let lazy = Lazy::new("ext4", Disk::Plain(128), "");
    lazy.tell("lazyfs::torn-seq::op=write::file=d/f::persist=2");
    lazy.await_line("received: VALID torn-seq fault");
    fs::create_dir(lazy.path("d")).unwrap();
    let file = File::create(lazy.path("d/f")).unwrap();
    file.write_all_at(b"one", 0).unwrap();
    file.write_all_at(b"two", 3).unwrap_err();
    drop(file);
    lazy.await_death();
    lazy.mount("");
    assert_eq!(fs::read(lazy.path("d/f")).unwrap(), b"\0\0\0two");
}

/// Jepsen's configuration, command line and commands (its `jepsen.lazyfs`), in front of `packaging/
/// lazyfs` where it has built LazyFS.
#[test]
fn jepsen_starts_it_and_loses_what_was_not_fsynced() {
    let rig = Rig::empty();
    let base = rig.image().with_file_name("db.lazyfs");
    fs::create_dir_all(base.join("data")).unwrap();
    let name = |name: &str| base.join(name).display().to_string();
    let config = format!(
        "[faults]\nfifo_path=\"{}\"\n\n[cache]\napply_eviction=false\n\n[cache.simple]\n\
         custom_size=\"0.5GB\"\nblocks_per_page=1",
        name("fifo")
    );
    fs::write(base.join("config"), config).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_strandline")).parent().unwrap().display();
    let mut lazyfs = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/lazyfs"));
    lazyfs.arg(rig.point()).arg("--config-path").arg(base.join("config"));
    lazyfs.args(["-o", "allow_other", "-o", "modules=subdir", "-o"]);
    lazyfs.arg(format!("subdir={}", name("data"))).arg("-f").current_dir(&base);
    lazyfs.env("PATH", format!("{program}:{}", std::env::var("PATH").unwrap()));
    lazyfs.env("LAZYFS_SIZE", "128m");
    let log = File::create(base.join("log")).unwrap();
    let mut server = lazyfs.stdin(Stdio::null()).stdout(log).spawn().unwrap();
    // It waits for this.
    rig.eventually("findmnt shows lazyfs", || {
        let found = Command::new("findmnt").arg(rig.point()).output().unwrap();
        String::from_utf8_lossy(&found.stdout).contains("lazyfs")
    });
    let said = |what: &str| fs::read_to_string(base.join("log")).unwrap().contains(what);
    let echo = |command: &str| {
        run("sh", &["-c", &format!("echo {command} > {}", name("fifo")), "sh"], &base);
    };
    fs::write(rig.point().join("checkpointed"), "kept").unwrap();
    rig.eventually("it takes commands", || said("running LazyFS..."));
    echo("lazyfs::cache-checkpoint");
    rig.eventually("it has written", || said("checkpoint is done."));
    fs::write(rig.point().join("lost"), "lost").unwrap();
    echo("lazyfs::clear-cache");
    rig.eventually("it has lost", || said("cache is cleared."));
    assert_eq!(fs::read(rig.point().join("checkpointed")).unwrap(), b"kept");
    assert!(!rig.point().join("lost").exists());
    run("fusermount3", &["-uz"], &rig.point());
    assert!(server.wait().unwrap().success());
    assert!(said("stopping LazyFS"));
}
