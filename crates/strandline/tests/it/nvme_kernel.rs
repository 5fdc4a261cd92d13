//! The Linux kernel as host of `strandline drive serve`: nvme-cli, blkzone, mkfs.f2fs and the
//! kernel's own F2FS, over NVMe/TCP, beside QEMU's own zoned NVMe drive given the same commands.
//! fio's and nvme-cli's own suites are in `nvme_suites.rs`.

use std::path::Path;
use std::process::Command;

use linux::Guest;

use crate::served::{Served, strandline};

const MIB: u64 = 1 << 20;
const ZONE_MIB: u64 = 4;
const CAPACITY_MIB: u64 = 3;
/// Sequential zones, and conventional ones before them.
const ZONES: u64 = 72;
const CONVENTIONAL: u64 = 24;

fn geometry() -> String {
    format!(
        "--profile zn540-noplp --zone-size {ZONE_MIB}m --zone-capacity {CAPACITY_MIB}m \
         --zones {} --conventional {CONVENTIONAL}",
        ZONES + CONVENTIONAL
    )
}

/// A guest with a drive of QEMU's that is like ours.
fn with_qemus_drive(dir: &Path) -> Guest {
    let theirs = dir.join("qemu.img");
    let file = std::fs::File::create(&theirs).expect("file");
    file.set_len(ZONES * ZONE_MIB * MIB).expect("space");
    let limits = "zoned.max_open=14,zoned.max_active=14,zoned.cross_read=true";
    let guest = Guest::new().network().timeout(900).cpus(2);
    guest.zns_with(&theirs, ZONE_MIB * MIB, CAPACITY_MIB * MIB, limits)
}

/// Commands in which `DEV` is the drive: the same result from both, or the script says how they
/// differ.
const SAME: &str = r#"
modprobe nvme
while [ ! -b /dev/nvme0n1 ]; do sleep 0.1; done
nvme discover -t tcp -a 10.0.2.2 -s $port $host | grep subnqn
connect -l 30 || exit 8
ours=/dev/${controller}n2 theirs=/dev/nvme0n1
differ=0 count=0
same() {
    for side in ours theirs; do
        eval dev=\$$side
        echo "$*" | sed "s|DEV|$dev|g" >/tmp/command
        sh /tmp/command >/tmp/$side 2>&1
        echo "exit status $?" >>/tmp/$side
        sed -i "s|$dev|DEV|g; s|${dev#/dev/}|DEV|g; s|nsid:[12]||" /tmp/$side
    done
    count=$((count + 1))
    if ! cmp -s /tmp/ours /tmp/theirs; then
        differ=$((differ + 1))
        echo "DIFFERS: $*"
        diff /tmp/ours /tmp/theirs
    fi
}
head -c 4096 /dev/urandom >/tmp/one; head -c 65536 /dev/urandom >/tmp/many
# QEMU has more formats to choose from.
same 'nvme id-ns DEV | grep -E "^(nsze|dps) "; nvme id-ns DEV | grep "in use" | cut -d: -f2-'
same 'nvme zns id-ns DEV | grep -E "^(zoc|ozcs|mar|mor)"'
same 'nvme zns id-ns DEV | grep "in use" | cut -d: -f2-'
same 'cat /sys/block/$(basename DEV)/queue/zoned'
same 'cat /sys/block/$(basename DEV)/queue/chunk_sectors'
same 'cat /sys/block/$(basename DEV)/queue/max_open_zones'
same 'cat /sys/block/$(basename DEV)/queue/max_active_zones'
same 'blkzone report DEV'
same 'nvme zns report-zones DEV'
# Writes and appends, right and wrong.
same 'nvme zns zone-append DEV -s 0 -z 4096 -d /tmp/one'
same 'nvme zns zone-append DEV -s 0 -z 65536 -d /tmp/many'
same 'nvme zns zone-append DEV -s 1 -z 4096 -d /tmp/one'
same 'nvme zns zone-append DEV -s 73728 -z 4096 -d /tmp/one'
same 'nvme write DEV -s 17 -c 0 -z 4096 -d /tmp/one'
same 'nvme write DEV -s 17 -c 0 -z 4096 -d /tmp/one'
same 'nvme write DEV -s 30 -c 0 -z 4096 -d /tmp/one'
same 'nvme write DEV -s 73728 -c 0 -z 4096 -d /tmp/one'
same 'nvme read DEV -s 0 -c 17 -z 73728 | md5sum'
same 'nvme read DEV -s 18 -c 1 -z 8192 | md5sum'
same 'nvme read DEV -s 73727 -c 1 -z 8192'
same 'nvme compare DEV -s 0 -c 0 -z 4096 -d /tmp/one'
same 'nvme compare DEV -s 1 -c 0 -z 4096 -d /tmp/one'
same 'nvme write-zeroes DEV -s 18 -c 3'
same 'nvme write-zeroes DEV -s 18 -c 3'
same 'nvme flush DEV'
same 'nvme verify DEV -s 0 -c 7'
same 'nvme zns report-zones DEV -d 2'
# Every action on every state.
same 'nvme zns open-zone DEV -s 1024'
same 'nvme zns open-zone DEV -s 0'
same 'nvme zns close-zone DEV -s 0'
same 'nvme zns close-zone DEV -s 0'
same 'nvme zns close-zone DEV -s 2048'
same 'nvme zns finish-zone DEV -s 3072'
same 'nvme zns finish-zone DEV -s 3072'
same 'nvme zns open-zone DEV -s 3072'
same 'nvme zns close-zone DEV -s 3072'
same 'nvme zns zone-append DEV -s 3072 -z 4096 -d /tmp/one'
same 'nvme write DEV -s 3072 -c 0 -z 4096 -d /tmp/one'
same 'nvme zns offline-zone DEV -s 1024'
same 'nvme zns reset-zone DEV -s 1025'
same 'nvme zns reset-zone DEV -s 73728'
same 'nvme zns zone-mgmt-send DEV -s 0 -z 9'
same 'nvme zns zone-mgmt-send DEV -s 0 -z 0x10'
same 'nvme zns report-zones DEV -d 5'
for state in 1 2 3 4 5 6 7; do same "nvme zns report-zones DEV -S $state -d 3"; done
same 'nvme zns report-zones DEV -p -d 3'
same 'nvme zns report-zones DEV -s 2049 -d 3'
same 'nvme zns report-zones DEV -S 9 -d 3'
same 'nvme zns report-zones DEV -e -d 3'
# Up to the limits of open and active zones, and over a zone's capacity.
for zone in 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
    same "nvme zns open-zone DEV -s $((zone * 1024))"
done
same 'nvme zns zone-append DEV -s 30720 -z 4096 -d /tmp/one'
same 'nvme zns close-zone DEV -s 4096'
same 'nvme zns close-zone DEV -s 5120'
same 'nvme zns zone-append DEV -s 30720 -z 4096 -d /tmp/one'
same 'nvme zns reset-zone DEV -s 6144'
same 'nvme zns zone-append DEV -s 30720 -z 4096 -d /tmp/one'
same 'nvme zns report-zones DEV -d 32'
same 'nvme zns reset-zone DEV -a'
same 'nvme zns report-zones DEV -d 32'
same 'for n in $(seq 48); do nvme zns zone-append DEV -s 7168 -z 65536 -d /tmp/many; done'
same 'nvme zns report-zones DEV -s 7168 -d 1'
same 'for n in $(seq 47); do nvme zns zone-append DEV -s 8192 -z 65536 -d /tmp/many; done'
same 'nvme zns zone-append DEV -s 8192 -z 61440 -d /tmp/many'
same 'nvme zns zone-append DEV -s 8192 -z 65536 -d /tmp/many'
same 'nvme zns report-zones DEV -s 8192 -d 1'
# As the block layer does it.
same 'blkzone reset DEV'
same 'blkzone report DEV | sort | uniq -c | wc -l'
same 'blkzone open -o 8192 -c 2 DEV'
same 'blkzone report -o 8192 -c 3 DEV'
same 'blkzone close -o 8192 -c 2 DEV'
same 'blkzone finish -o 8192 -c 1 DEV'
same 'dd if=/tmp/many of=DEV bs=65536 seek=64 oflag=direct 2>/dev/null'
same 'dd if=/tmp/many of=DEV bs=65536 seek=64 oflag=direct 2>/dev/null'
same 'dd if=DEV bs=65536 skip=64 count=2 iflag=direct 2>/dev/null | md5sum'
same 'blkzone report -c 6 DEV'
same 'blkzone reset -o 0 -c 4 DEV'
same 'blkzone report -c 6 DEV'
echo "$count commands, $differ differ"
disconnect
connect --hdr-digest --data-digest -l 30 || exit 7
dd if=/tmp/many of=/dev/${controller}n1 bs=4096 oflag=direct 2>/dev/null
dd if=/dev/${controller}n1 bs=65536 count=1 iflag=direct 2>/dev/null | cmp - /tmp/many || exit 6
disconnect
"#;

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn a_kernel_finds_the_drive_that_qemu_has() {
    let dir = tempfile::tempdir().expect("directory");
    let served = Served::new(dir.path(), &geometry(), &[]);
    let guest = with_qemus_drive(dir.path());
    let output = served.judge(guest, "nvme1", SAME);
    let text = output.success();
    println!("{text}");
    assert!(text.contains(&served.nqn), "discovered");
    assert!(text.contains(", 0 differ"), "{text}");
}

/// The kernel's F2FS on our two namespaces: what it fsynced is there after the drive was cut under
/// it, first politely, then for good.
const F2FS: &str = r#"
set -e
connect -l 30
set -- /dev/${controller}n1 /dev/${controller}n2
mkfs.f2fs -f -m -c $2 $1 >/tmp/mkfs 2>&1 || { cat /tmp/mkfs; exit 4; }
mount -t f2fs $1 /mnt
mkdir /mnt/dir
for n in 1 2 3 4 5 6 7 8; do head -c 300000 /dev/urandom >/mnt/dir/$n; done
cd /mnt && md5sum dir/* >/tmp/sums && cp /tmp/sums /mnt/sums && cd /
umount /mnt && mount -t f2fs $1 /mnt
check() { (cd /mnt && md5sum -c /tmp/sums >/dev/null); }
check
umount /mnt
disconnect
connect -l 30
mount -t f2fs $1 /mnt && check
# Dead but polite: an fsynced file, and one that was not.
cp /tmp/sums /mnt/synced && f2fs_io fsync /mnt/synced >/dev/null
cp /tmp/sums /mnt/lost
ask cut DISK --polite --seed 3
sync
umount /mnt
ask restore DISK
disconnect
connect -l 1
mount -t f2fs $1 /mnt
check && cmp /tmp/sums /mnt/synced && [ ! -s /mnt/lost ]
echo recovered after a polite cut
# For good: the controller is lost, and the mount with it.
head -c 3000000 /dev/urandom >/tmp/big && cp /tmp/big /mnt/big && f2fs_io fsync /mnt/big >/dev/null
cp /tmp/big /mnt/lost
ask cut DISK --stay-off --seed 4
umount /mnt || umount -l /mnt || true
ask restore DISK
for try in $(seq 300); do [ -e /dev/$controller ] || break; sleep 0.1; done
connect -l 30
fsck.f2fs --dry-run $1 >/tmp/fsck 2>&1 || true
mount -t f2fs $1 /mnt
check && cmp /tmp/sums /mnt/synced && cmp /tmp/big /mnt/big
echo recovered after a cut
umount /mnt
fsck.f2fs -f $1 >/tmp/fsck 2>&1 || { cat /tmp/fsck; exit 5; }
! grep -q Fail /tmp/fsck
disconnect
"#;

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_kernels_f2fs_recovers_when_the_drive_is_cut() {
    let dir = tempfile::tempdir().expect("directory");
    let served = Served::new(dir.path(), &geometry(), &[]);
    let guest = Guest::new().network().timeout(900).cpus(2);
    let output = served.judge(guest, "nvme0", F2FS);
    let text = output.success();
    println!("{text}");
    assert!(text.contains("recovered after a polite cut") && text.contains("after a cut"));
    let stats = strandline(&["drive", "stats", "--json", served.image.to_str().unwrap()]);
    assert!(stats.contains("\"cuts\":2"), "{stats}");
}

/// fio on the zones of both drives, which end up alike; then on a file system, verified again after
/// a disconnect.
const FIO: &str = r#"
modprobe nvme
while [ ! -b /dev/nvme0n1 ]; do sleep 0.1; done
connect -l 30 || exit 8
cp -r /host/fio /tmp/fio
run() {
    LD_LIBRARY_PATH=/tmp/fio /tmp/fio/fio --ioengine=psync --direct=1 --thread --randseed=7 \
        --minimal "$@" >/tmp/said 2>&1 || { echo "fio $*"; cat /tmp/said; exit 3; }
}
for dev in /dev/${controller}n2 /dev/nvme0n1; do
    zbd="--filename=$dev --zonemode=zbd --max_open_zones=8"
    verify="--verify=crc32c --verify_fatal=1"
    run --name=seq $zbd $verify --rw=write --bs=64k --size=12m
    run --name=random $zbd $verify --rw=randwrite --bs=16k --offset=16m --size=12m --do_verify=1
    # More than the zones have room for: they are reset on the way.
    run --name=again $zbd --rw=randrw --bs=8k --offset=32m --size=8m --io_size=12m
    run --name=read $zbd --rw=randread --bs=4k --size=12m --io_size=2m
    blkzone report -c 16 $dev >/tmp/$(basename $dev)
done
cmp /tmp/${controller}n2 /tmp/nvme0n1 || { diff /tmp/${controller}n2 /tmp/nvme0n1; exit 4; }
echo the zones are alike
set -- /dev/${controller}n1 /dev/${controller}n2
mkfs.f2fs -f -m -c $2 $1 >/tmp/mkfs 2>&1 || { cat /tmp/mkfs; exit 5; }
mount -t f2fs $1 /mnt || exit 6
file="--name=file --directory=/mnt --rw=randwrite --bs=4k --size=8m --verify=crc32c"
run $file --fsync=32 --do_verify=1
umount /mnt && disconnect && connect -l 30 && mount -t f2fs $1 /mnt || exit 7
run $file --verify_only
umount /mnt
echo what was written is there
disconnect
"#;

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn fio_writes_zones_as_on_the_drive_that_qemu_has() {
    let dir = tempfile::tempdir().expect("directory");
    let served = Served::new(dir.path(), &geometry(), &[]);
    let guest = with_qemus_drive(dir.path());
    fio_into(&guest.share().join("fio"));
    let output = served.judge(guest.memory(2048), "nvme1", FIO);
    println!("{}", output.text);
    let text = output.success();
    assert!(text.contains("zones are alike") && text.contains("is there"), "{text}");
}

/// fio and everything it is linked with: too much to put into every guest.
fn fio_into(dir: &Path) {
    std::fs::create_dir(dir).expect("the shared directory");
    let script = r#"set -e
        fio=$(command -v fio) || { echo "fio: missing Debian package: fio"; exit 1; }
        cp -L "$fio" $(ldd "$fio" | grep -o '/[^ ]*') "$0""#;
    let out = Command::new("sh").args(["-c", script]).arg(dir).output().expect("sh");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}
