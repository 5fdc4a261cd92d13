//! Traces turned into scripts, as text.

use super::*;

fn converted(trace: &str) -> Converted {
    convert(trace, "t", Path::new("/srv/db")).expect("it is a trace")
}

#[test]
fn a_database_commit_becomes_its_operations() {
    let trace = r#"
100 execve("/usr/bin/db", ["db"], 0x7ffd /* 20 vars */) = 0
100 openat(AT_FDCWD, "/etc/ld.so.cache", O_RDONLY|O_CLOEXEC) = 3
100 close(3) = 0
100 openat(AT_FDCWD, "/srv/db/main", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 3
100 fstat(3, {st_mode=S_IFREG|0644, st_size=8192, ...}) = 0
100 pread64(3, "SQL"..., 100, 0) = 100
100 openat(AT_FDCWD, "main-journal", O_RDWR|O_CREAT|O_EXCL, 0640) = 4
100 pwrite64(4, "\0\0"..., 512, 0) = 512
100 write(4, "abc", 3) = 3
100 fdatasync(4) = 0
100 open("/srv/db", O_RDONLY|O_DIRECTORY) = 5
100 fsync(5) = 0
100 pwrite64(3, "x"..., 4096, 4096) = 4096
100 fdatasync(3) = 0
100 unlink("/srv/db/main-journal") = 0
100 write(4, "q", 1) = 1
100 close(4) = 0
100 unlink("/srv/db/none") = -1 ENOENT (No such file or directory)
100 ioctl(3, FICLONE, 4) = 0
100 mmap(NULL, 32768, PROT_READ|PROT_WRITE, MAP_SHARED, 3, 0) = 0x7f0000000000
100 what is this
100 +++ exited with 0 +++
"#;
    let converted = converted(trace);
    let text = converted.script.text();
    let wanted = "create main 644\nwrite main 0+8192 seed=4\nbegin\n\
        create main-journal 640\nwrite main-journal 0+512 seed=1\n\
        write main-journal 0+3 seed=2\nfdatasync main-journal\nfsync /\n\
        write main 4096+4096 seed=3\nfdatasync main\nopen main-journal h2\n\
        unlink main-journal\nwrite #h2 3+1 seed=4\nclose h2\n";
    // The prepared bytes take the seed after the last of the trace.
    assert_eq!(text, wanted.replace("0+8192 seed=4", "0+8192 seed=5"));
    assert_eq!((converted.used.1, converted.failed), (11, 1));
    let left_out: Vec<_> = converted.left_out.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(
        left_out,
        [("(lines that are no call)", 1), ("ioctl", 1), ("mmap (shared, for writing)", 1)]
    );
    let said = converted.to_string();
    assert!(said.contains("LEFT OUT: 3 ((lines that are no call) 1, ioctl 1,"), "{said}");
}

#[test]
fn descriptors_are_shared_as_fork_and_dup_share_them() {
    let trace = r#"
1 creat("/srv/db/log", 0600) = 3
1 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 2
2 write(3, "ab", 2) = 2
1 write(3, "cd", 2) = 2
1 dup2(3, 9) = 9
1 close(3) = 0
1 write(9, "ef", 2) = 2
1 mkdir("/srv/db/d", 0755) = 0
1 rename("/srv/db/log", "/srv/db/d/log") = 0
1 rename("/srv/db/d", "/srv/db/e") = 0
1 fsync(9) = 0
2 openat(AT_FDCWD, "/srv/db/e/../old/x", O_WRONLY|O_APPEND|O_DSYNC) = 4
2 write(4, "z", 1) = 1
2 renameat2(AT_FDCWD, "/srv/db/a", AT_FDCWD, "/srv/db/b", RENAME_EXCHANGE) = 0
2 link("/srv/other/a", "/srv/db/b") = 0
"#;
    let converted = converted(trace);
    let wanted = "mkdir old 755\ncreate old/x 644\nbegin\ncreate log 600\n\
        write log 0+2 seed=1\nwrite log 2+2 seed=2\nwrite log 4+2 seed=3\nmkdir d 755\n\
        rename log d/log none\nrename d e none\nfsync e/log\nappend old/x 1 seed=4\n\
        fdatasync old/x\n";
    assert_eq!(converted.script.text(), wanted);
    let names: Vec<&str> = converted.left_out.keys().map(String::as_str).collect();
    assert_eq!(names, ["link (across the root)", "renameat2 (its flags)"]);
}

#[test]
fn what_has_nothing_below_the_root_is_refused() {
    let refused = |trace: &str, root: &str| {
        convert(trace, "t", Path::new(root)).err().expect("it is refused").to_string()
    };
    assert!(refused("fsync(3) = 0\n", "/srv").starts_with("t: nothing in it"));
    assert!(refused("sync() = 0\n", "srv").contains("absolute"));
}
