//! LazyFS's own examples of faults, from configuration files, and its command line as Jepsen and
//! its scripts give it.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Lazy, synced};
use crate::mounting::{Disk, NOBODY, Rig, run};

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

/// What `jepsen.lazyfs` does on a node, with `lazyfs --install` before: it checks LazyFS out,
/// builds it, mounts, loses, and clears everything away.
#[test]
fn jepsen_starts_it_and_loses_what_was_not_fsynced() {
    let rig = Rig::empty();
    let base = rig.image().with_file_name("db.lazyfs");
    fs::create_dir_all(base.join("data")).unwrap();
    // The service's user, who is not the one who mounts.
    chown(base.join("data"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(base.join("data"), Permissions::from_mode(0o710)).unwrap();
    let name = |name: &str| base.join(name).display().to_string();
    let config = format!(
        "[faults]\nfifo_path=\"{}\"\n# Not sure how to use this yet.\n\n[cache]\n\
         apply_eviction=false\n\n[cache.simple]\ncustom_size=\"0.5GB\"\nblocks_per_page=1\n\n\
         [filesystem]\nlogfile=\"{}\"\nlog_all_operations=true\n",
        name("fifo"),
        name("log")
    );
    fs::write(base.join("config"), config).unwrap();
    fs::write(base.join("log"), "").unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_strandline")).parent().unwrap().display();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let shell = |text: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-ec", text]).current_dir(base.parent().unwrap());
        shell.env("PATH", &path).env("LAZYFS_SIZE", "128m").env("POINT", rig.point());
        let ran = shell.env("LAZYFS", LAZYFS).stdin(Stdio::null()).output().unwrap();
        assert!(ran.status.success(), "{text}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    shell(
        "sh \"$LAZYFS\" --install lazyfs && cd lazyfs && git fetch && git checkout 0.3.0
         git clean -fx && (cd libs/libpcache && ./build.sh) && (cd lazyfs && ./build.sh)",
    );
    let mount = "cd lazyfs/lazyfs && data=$(realpath ../../db.lazyfs) &&
        scripts/mount-lazyfs.sh -c $data/config -m $POINT -r $data/data";
    shell(mount);
    let found = shell("findmnt $POINT && mountpoint -q $POINT");
    assert!(found.contains("lazyfs"), "{found}");
    let root = fs::metadata(rig.point()).unwrap();
    assert_eq!((root.uid(), root.mode() & 0o777), (NOBODY, 0o710));
    let said = |what: &str| fs::read_to_string(base.join("log")).unwrap().contains(what);
    fs::write(rig.point().join("checkpointed"), "kept").unwrap();
    rig.eventually("it takes commands", || said("running LazyFS..."));
    shell("echo lazyfs::cache-checkpoint > db.lazyfs/fifo");
    rig.eventually("it has written", || said("checkpoint is done."));
    fs::write(rig.point().join("lost"), "lost").unwrap();
    rig.eventually("it is closed", || said(&format!("lfs_release(path={}/lost)", name("data"))));
    shell("echo lazyfs::clear-cache > db.lazyfs/fifo");
    rig.eventually("it has lost", || said("cache is cleared."));
    assert_eq!(fs::read(rig.point().join("checkpointed")).unwrap(), b"kept");
    assert!(!rig.point().join("lost").exists());
    shell("cd lazyfs/lazyfs && scripts/umount-lazyfs.sh -m $POINT");
    rig.eventually("it has ended", || said("stopping LazyFS"));
    shell(mount);
    assert_eq!(fs::read(rig.point().join("checkpointed")).unwrap(), b"kept");
    shell("fusermount3 -uz $POINT && rm -rf db.lazyfs");
    assert!(!rig.is_mounted() && !base.exists());
}

const LAZYFS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/lazyfs");

/// As etcd's and WiredTiger's tests start it: in the foreground, in another working directory. They
/// read what it prints, and stop it with `SIGTERM`.
#[test]
fn a_test_starts_it_in_the_foreground_and_reads_what_it_says() {
    let rig = Rig::empty();
    let base = rig.image().with_file_name("a test's");
    fs::create_dir_all(base.join("data")).unwrap();
    let fifo = base.join("sock.fifo");
    let config = format!(
        "[faults]\nfifo_path={:?}\n[cache]\napply_eviction=false\n[cache.simple]\n\
         custom_size=\"1gb\"\nblocks_per_page=1\n[filesystem]\nlog_all_operations=false\n",
        fifo.display()
    );
    fs::write(base.join("config.toml"), config).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_strandline")).parent().unwrap().display();
    let mut lazyfs = Command::new("sh");
    lazyfs.arg(LAZYFS).arg(rig.point()).arg("--config-path").arg(base.join("config.toml"));
    lazyfs.args(["-o", "modules=subdir", "-o"]);
    lazyfs.arg(format!("subdir={}", base.join("data").display())).arg("-f").current_dir("/");
    lazyfs.env("PATH", format!("{program}:{}", std::env::var("PATH").unwrap()));
    lazyfs.env("LAZYFS_SIZE", "128m");
    let mut server = lazyfs.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut expect = |what: &str| {
        let found = said.find(|line| line.as_ref().is_ok_and(|line| line.contains(what)));
        assert!(found.is_some(), "it never said '{what}'");
    };
    expect("waiting for fault commands");
    fs::write(rig.point().join("lost"), "lost").unwrap();
    fs::write(&fifo, "lazyfs::clear-cache\n").unwrap();
    expect("cache is cleared");
    assert!(!rig.point().join("lost").exists());
    run("sh", &["-c", &format!("kill {}", server.id())], Path::new("/"));
    assert!(server.wait().unwrap().success());
    assert!(!rig.is_mounted());
}
