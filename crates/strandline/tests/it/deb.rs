//! The Debian package: what is in it, and a volume mounted by a line of fstab after it has been
//! installed. It is installed for real, into an overlay of this machine's root that only this test
//! sees.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::text;

/// Standard output of a program that must succeed.
fn run(command: &mut Command) -> String {
    let out: Output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, wrote) = (text(&out.stderr), text(&out.stdout));
    assert!(out.status.success(), "{command:?}: {}\n{wrote}{said}", out.status);
    wrote
}

/// Builds it, with whatever profile and target directory these tests were built with.
fn package() -> PathBuf {
    let found = Command::new("cargo").args(["deb", "--version"]).output();
    let found = found.is_ok_and(|out| out.status.success());
    assert!(found, "cargo-deb is missing: `make test-all` installs it");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory");
    let mut command = Command::new("cargo");
    command.args(["xtask", "package"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    run(command.env("CARGO_TARGET_DIR", target)).trim().into()
}

const INSTALL_AND_MOUNT: &str = r#"
work="$1" deb="$2"
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root"
mount --rbind /dev "$work/root/dev"
mount -t proc proc "$work/root/proc"
cp "$deb" "$work/root/strandline.deb"
chroot "$work/root" sh -euc '
    PATH=/usr/sbin:/usr/bin:/sbin:/bin
    dpkg --install --force-depends /strandline.deb
    test -x /sbin/mount.strandline -a -x /sbin/umount.fuse.strandline
    mkdir /disk /volume
    strandline drive create --profile zn540-noplp --zone-size 32m --zones 40 --conventional 2 \
        /disk/disk.img
    strandline mkfs /disk/disk.img
    echo "/disk/disk.img /volume strandline fsync_mode=strict,noatime 0 0" >>/etc/fstab
    mount /volume
    grep " /volume fuse.strandline " /proc/mounts
    echo kept >/volume/file
    umount /volume
    strandline fsck -n /disk/disk.img
    mount -t strandline -o ro /disk/disk.img /volume
    test "$(cat /volume/file)" = kept
    ! touch /volume/other 2>/dev/null
    umount /volume
    man --path strandline-mkfs mount.strandline mount.fuse.strandline >/dev/null
    dpkg --remove strandline
    ! command -v strandline
    echo all is well
'
"#;

#[test]
#[ignore = "long: builds the package; wants root and cargo-deb"]
fn the_package_brings_all_that_fstab_needs() {
    let deb = package();
    let list = run(Command::new("dpkg-deb").arg("-c").arg(&deb));
    for (mode, path) in [
        ("-rwxr-xr-x", "./usr/bin/strandline"),
        ("lrwxrwxrwx", "./usr/sbin/mount.strandline -> ../bin/strandline"),
        ("lrwxrwxrwx", "./usr/sbin/mount.fuse.strandline -> ../bin/strandline"),
        ("lrwxrwxrwx", "./usr/sbin/umount.strandline -> ../bin/strandline"),
        ("lrwxrwxrwx", "./usr/sbin/umount.fuse.strandline -> ../bin/strandline"),
        ("-rw-r--r--", "./usr/share/man/man1/strandline.1.gz"),
        ("-rw-r--r--", "./usr/share/man/man1/strandline-drive-create.1.gz"),
        ("-rw-r--r--", "./usr/share/man/man8/mount.strandline.8.gz"),
        ("-rw-r--r--", "./usr/share/bash-completion/completions/strandline"),
        ("-rw-r--r--", "./usr/share/zsh/vendor-completions/_strandline"),
        ("-rw-r--r--", "./usr/share/fish/vendor_completions.d/strandline.fish"),
        ("-rw-r--r--", "./usr/share/doc/strandline/examples/mnt-strandline.mount"),
        ("-rw-r--r--", "./usr/share/doc/strandline/copyright"),
        ("-rw-r--r--", "./usr/share/doc/strandline/LICENSE-APACHE"),
    ] {
        let there = |line: &str| line.starts_with(mode) && line.ends_with(path);
        assert!(list.lines().any(there), "{mode} {path} is missing:\n{list}");
    }
    let depends = run(Command::new("dpkg-deb").arg("-f").arg(&deb).arg("Depends"));
    for package in ["libc6", "fuse3", "usr-is-merged"] {
        assert!(depends.contains(package), "{package}: {depends}");
    }

    let root = rustix::process::geteuid().is_root();
    assert!(root, "root is needed to install the package and mount");
    let work = tempfile::tempdir().unwrap();
    let mut script = Command::new("unshare");
    script.args(["--mount", "--propagation", "private", "sh", "-euc", INSTALL_AND_MOUNT, "sh"]);
    let said = run(script.arg(work.path()).arg(&deb));
    assert!(said.ends_with("all is well\n"), "{said}");
}
