//! What an fsync of the kernel's F2FS sends to the drive, in which order, and which of it the
//! kernel waits for: the kernel's own trace of block requests, beside the writes that reached our
//! drive.
//!
//! A page of a file is overwritten; the page is found through a direct node. In the lines below
//! `inode` and `node` are that file's, with `*` if they have the fsync mark that recovery looks
//! for, and `FUA` before them if the write was forced. `|` stands where all requests so far had
//! been answered. Where the kernel does not wait, an answer may still come early, so of several
//! rounds the one that returned after the fewest answers is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::Arc;

use cores::Mutex;
use drive::{Command, Drive, EventKind, Lba, Ssd, Timing};
use f2fs::ondisk::node::RawNodeFooter;
use lab::rig;
use linux::Guest;
use nvme_target::{Options, Server, Unit};

const NQN: &str = "nqn.2026-11.com.github.strandline:fsync";
/// The page that is written, over and over.
const PAGE: u8 = b'Z';
const ROUNDS: usize = 9;
/// Blocks of the drive without zones.
const BLOCKS: u64 = 1 << 17;
/// Room on the one with zones, in bytes.
const FOOTPRINT: u64 = 16 << 20;

/// Mode, further options, the call.
type Case = (&'static str, &'static str, &'static str);

/// What the guest does in each case: a file of 4 MiB, then rounds of a page and the call.
const SCRIPT: &str = r#"
modprobe nvme_core multipath=N
modprobe -a nvme_tcp f2fs && network || exit 9
host=5a0c6d3e-0000-4000-8000-000000000001
nvme connect -t tcp -a 10.0.2.2 -s $port -n $nqn -i 1 -I $host \
    -q nqn.2014-08.org.nvmexpress:uuid:$host || exit 8
for try in $(seq 200); do [ -b /dev/nvme0n$namespaces ] && break; sleep 0.1; done
set -e
echo "release $(uname -r)"
for n in $(seq $namespaces); do
    # Disks are numbered as they are found, which is chance.
    disk=$(dirname $(grep -lx $n /sys/block/nvme0n*/nsid))
    echo "device $(cat $disk/dev)"
    [ $n != 1 ] || device=/dev/${disk##*/}
    devices="/dev/${disk##*/} $devices"
done
[ $namespaces = 1 ] || zoned="-m -c"
mount -t tracefs none /sys/kernel/tracing
cd /sys/kernel/tracing
echo 0 >tracing_on
for event in block/block_rq_issue block/block_rq_complete f2fs/f2fs_sync_file_exit; do
    echo 1 >events/$event/enable
done
head -c 4096 /dev/zero | tr '\0' Z >/tmp/page
overwrite() { dd if=/tmp/page of=/mnt/file bs=4096 seek=1000 conv=notrunc 2>/dev/null; }
while read mode options call; do
    mkfs.f2fs -f $zoned $devices >/tmp/mkfs 2>&1 || { cat /tmp/mkfs; exit 4; }
    mount -t f2fs -o fsync_mode=$mode,$options $device /mnt
    dd if=/dev/zero of=/mnt/file bs=65536 count=64 2>/dev/null
    sync
    for round in $(seq $rounds); do
        overwrite
        echo >trace
        echo 1 >tracing_on
        if [ $call = fsync ]; then sync /mnt/file; else sync -d /mnt/file; fi
        sleep 0.2
        echo 0 >tracing_on
        echo "round"
        grep -v '^#' trace
    done
    echo "end"
    umount /mnt
done </host/cases
nvme disconnect -n $nqn >/dev/null
"#;

/// What a block held when it was written.
fn kind(lba: Lba, block: &[u8; drive::BLOCK_SIZE]) -> &'static str {
    let footer = RawNodeFooter::of(block);
    // A node names the next of its log, which is the next block.
    let is_node = footer.ino.get() != 0 && u64::from(footer.next_blkaddr.get()) == lba + 1;
    match (is_node, footer.is_inode(), footer.is_fsync()) {
        (true, true, true) => "inode*",
        (true, true, false) => "inode",
        (true, false, true) => "node*",
        (true, false, false) => "node",
        _ if block.iter().all(|byte| *byte == PAGE) => "data",
        _ => "other",
    }
}

/// Blocks in the order in which they came to the drive.
type Written = Vec<(Lba, &'static str)>;

/// What the rounds of a case sent.
type Rounds = Vec<Vec<String>>;

/// Runs all cases on a drive. The kernel's release comes with what was sent.
fn rounds(zoned: bool, kernel: Option<&str>, cases: &[Case]) -> (String, Vec<Rounds>) {
    let profile = if zoned { "zn540-noplp" } else { "conventional-noplp" };
    let mut spec = rig::spec(profile, FOOTPRINT).expect("a profile");
    if !zoned {
        spec = spec.blocks(BLOCKS);
    }
    let ssd = Ssd::new(spec, Timing::Paced, 1).expect("a drive");
    let written = Arc::new(Mutex::named("what was written", Written::new()));
    let sink = written.clone();
    ssd.observe(Box::new(move |event, _| {
        if let EventKind::Command { command: Command::Write { lba, data, .. }, .. } = event.kind {
            let blocks = (*lba..).zip(data.iter());
            sink.lock().extend(blocks.map(|(lba, block)| (lba, kind(lba, block))));
        }
    }));
    let zones = ssd.identify().zones;
    let conventional = zones.map_or(0, |zones| u64::from(zones.conventional) * zones.size);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let server = Server::start(listener, vec![Unit::new("drive", ssd)], Options::new(NQN));
    let server = server.expect("a server");
    let table: String =
        cases.iter().map(|(mode, options, call)| format!("{mode} {options} {call}\n")).collect();
    let mut guest = Guest::new().network().timeout(900).file("cases", table);
    if let Some(kernel) = kernel {
        guest = guest.kernel(kernel);
    }
    let (port, namespaces) = (server.address().port(), if zoned { 2 } else { 1 });
    let header = format!("port={port} nqn={NQN} namespaces={namespaces} rounds={ROUNDS}\n");
    let output = guest.run(&format!("{header}{SCRIPT}"));
    let text = output.success();
    let written = std::mem::take(&mut *written.lock());
    read(text, &[0, conventional], &written)
}

/// The guest's text, with its devices at those blocks of the drive.
fn read(text: &str, starts: &[Lba], written: &Written) -> (String, Vec<Rounds>) {
    let (mut release, mut devices) = (String::new(), BTreeMap::new());
    let (mut cases, mut told, mut requests) = (Vec::new(), Vec::new(), None);
    let mut written = written.iter();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.first().copied(), words.get(1)) {
            (Some("device"), Some(number)) => {
                devices.insert(number.replace(':', ","), starts[devices.len()]);
            }
            (Some("release"), Some(name)) => release = (*name).to_owned(),
            (Some("round"), None) => {
                told.extend(requests.replace(Requests::default()).map(|requests| requests.said));
            }
            (Some("end"), None) => {
                told.extend(requests.take().map(|requests| requests.said));
                cases.push(std::mem::take(&mut told));
            }
            _ => {
                if let Some(requests) = &mut requests {
                    requests.see(&words, &devices, &mut written);
                }
            }
        }
    }
    (release, cases)
}

/// One call's requests so far.
#[derive(Default)]
struct Requests {
    said: Vec<String>,
    /// By device and sector.
    under_way: BTreeSet<(String, u64)>,
}

impl Requests {
    /// A line of the kernel's trace: `… block_rq_issue: 259,1 WS 4096 () 24576 + 8 …`.
    fn see(
        &mut self,
        words: &[&str],
        devices: &BTreeMap<String, Lba>,
        written: &mut std::slice::Iter<'_, (Lba, &'static str)>,
    ) {
        let of = |event| words.iter().position(|word| *word == event);
        if of("f2fs_sync_file_exit:").is_some() {
            self.said.push("return".into());
        }
        let (issued, answered) = (of("block_rq_issue:"), of("block_rq_complete:"));
        let (Some(at), Some(plus)) = (issued.or(answered), of("+")) else { return };
        let (device, rwbs) = (words[at + 1], words[at + 2]);
        // A flush is `FF` and has no length, whatever address it shows.
        let is_flush = rwbs == "FF";
        if !rwbs.contains('W') && !is_flush {
            return;
        }
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let sector = if is_flush { u64::MAX } else { number(plus - 1) };
        let request = (device.to_owned(), sector);
        if answered.is_some() {
            // A flush is answered twice: to the block layer, which made it, and to the caller.
            if self.under_way.remove(&request) && self.under_way.is_empty() {
                self.said.push("|".into());
            }
            return;
        }
        self.under_way.insert(request);
        if is_flush {
            self.said.push("flush".into());
            return;
        }
        if rwbs.rsplit('W').next().is_some_and(|after| after.contains('F')) {
            self.said.push("FUA".into());
        }
        let first = devices[device] + sector / 8;
        for lba in first..first + number(plus + 1) / 8 {
            let found = written.find(|(at, _)| *at == lba);
            self.said.push(found.map_or("lost", |(_, kind)| kind).into());
        }
    }
}

/// The round that returned after the fewest answers; all must have sent the same.
fn least(case: &Case, rounds: &[Vec<String>]) -> String {
    let is_sent = |word: &&String| !["|", "return"].contains(&word.as_str());
    let sent = |round: &[String]| round.iter().filter(is_sent).cloned().collect::<Vec<_>>();
    assert_eq!(rounds.len(), ROUNDS, "{case:?}: {rounds:#?}");
    // The first after a checkpoint may have to write the inode, too.
    let rounds = &rounds[1..];
    assert!(rounds.iter().all(|round| sent(round) == sent(&rounds[0])), "{case:?}: {rounds:#?}");
    let before_return = |round: &&Vec<String>| {
        let before = round.iter().take_while(|word| *word != "return");
        (before.clone().filter(|word| *word == "|").count(), before.count())
    };
    rounds.iter().min_by_key(before_return).expect("a round").join(" ")
}

/// What is sent, without the answers, and whether the call returns when all is answered.
type Expected = (&'static str, bool);

const ON_BOTH: [Case; 4] = [
    ("posix", "mode=lfs", "fsync"),
    ("strict", "mode=lfs", "fsync"),
    ("posix", "mode=lfs", "fdatasync"),
    ("strict", "mode=lfs", "fdatasync"),
];
/// Without zones a page may be overwritten in place, which needs no node.
const IN_PLACE: Case = ("strict", "mode=adaptive", "fsync");

const FSYNC: Expected = ("data inode* node* flush", true);
const FDATASYNC: Expected = ("data node* flush", true);
/// The flush that strict is for, and a node that is not waited for.
const ORDERED: Expected = ("data flush FUA node*", false);
/// Linux 6.1 sends neither that flush nor FUA to a drive with zones.
const NOT_ORDERED: Expected = ("data node* flush", false);

/// On both drives strict's fsync is posix's, and only its fdatasync is ordered.
fn judge(kernel: Option<&str>) {
    for zoned in [true, false] {
        let cases: Vec<Case> = ON_BOTH.into_iter().chain((!zoned).then_some(IN_PLACE)).collect();
        let (release, all) = rounds(zoned, kernel, &cases);
        assert_eq!(all.len(), cases.len());
        let unordered = zoned && release.starts_with("6.1.");
        let last = if unordered { NOT_ORDERED } else { ORDERED };
        let expected = [FSYNC, FSYNC, FDATASYNC, last, ("data inode* flush", true)];
        for ((case, rounds), (sent, waits)) in cases.iter().zip(&all).zip(expected) {
            let (mode, options, call) = case;
            let told = least(case, rounds);
            let drive = if zoned { "zones" } else { "no zones" };
            println!("{release}, {drive}, {mode} {options}, {call}: {told}");
            println!("    the first after a checkpoint: {}", rounds[0].join(" "));
            let words = told.split(' ').filter(|word| !["|", "return"].contains(word));
            assert_eq!(words.collect::<Vec<_>>().join(" "), sent, "{told}");
            // That an answer came first may be chance; that it did not is not.
            assert!(!waits || told == waiting(sent), "{told}");
            assert!(waits || unordered || !told.ends_with("| return"), "{told}");
        }
    }
}

/// The same with an answer to the data, to the nodes and to the flush.
fn waiting(sent: &str) -> String {
    sent.replacen("data ", "data | ", 1).replace(" flush", " | flush | return")
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn strict_orders_no_fsync() {
    judge(None);
}

/// Downloads Debian's newer kernel.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn nor_does_a_newer_kernels() {
    judge(Some("linux-image-amd64/bookworm-backports"));
}
