//! The suites that fio and nvme-cli come with, run by the Linux kernel on a drive of `strandline
//! drive serve`. `guest/suites` gets them; they are under the GPL and used as they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use linux::Guest;

use crate::served::Served;

/// `suite COMMAND` runs it where bash, coreutils and Python are; `/tmp/suites` is its own copy.
const SUITES: &str = r#"
modprobe ext4
mkdir /debian && mount -t ext4 -o ro /dev/vda /debian || exit 9
ln -s /proc/self/fd /dev/fd
for dir in dev proc sys; do mount -o rbind /$dir /debian/$dir; done
mount -t tmpfs none /debian/tmp && cp -r /debian/suites /debian/tmp || exit 9
suite() {
    chroot /debian /usr/bin/env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
"#;

/// A guest with the suites.
fn guest() -> Guest {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/suites");
    let out = Command::new(script).output().expect("guest/suites");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let disk = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
    Guest::new().network().drive(&disk).cpus(2)
}

/// Without test 54: it combines `experimental_verify` with zones, at which this fio fails an
/// assertion of its own, and which later ones refuse (fio's commit "zbd: prevent experimental
/// verify with zonemode=zbd").
const ZBD: &str = r#"
nsid=1
connect -l 30 || exit 8
zbd=/debian/tmp/suites/fio/t/zbd/test-zbd-support
tests=$(sed -n 's/^test\([0-9]*\)() *{.*/-t \1/p' $zbd | grep -vx -- '-t 54')
suite bash ${zbd#/debian} -r -w $tests /dev/${controller}n1 ||
    { tail -n 40 $(grep -l '^FAIL' $zbd.log.*); exit 4; }
disconnect
"#;

/// Why tests skip themselves: they are about SCSI, about conventional zones, which NVMe does not
/// have, or about drives without zones.
const LEFT_OUT: [&str; 3] =
    ["is not a SCSI device", " conventional zones", "is not a regular block device"];

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn fios_own_tests_of_zoned_drives_pass() {
    let dir = tempfile::tempdir().expect("directory");
    let drive = "--profile zn540-noplp --zone-size 1m --zone-capacity 768k --zones 192";
    let served = Served::new(dir.path(), drive, &[]);
    let guest = guest().memory(2048).timeout(3000);
    let output = served.judge(guest, "nvme0", &format!("{SUITES}{ZBD}"));
    println!("{}", output.text);
    let text = output.success();
    let results = |of| text.lines().filter(move |line| line.contains(of));
    let known = |line: &&str| LEFT_OUT.iter().any(|why| line.ends_with(why));
    assert_eq!(results(" ... SKIP").find(|line| !known(line)), None, "left out, why?");
    let passed = results("tests passed").next().and_then(|line| line.split(' ').next());
    assert!(passed.and_then(|n| n.parse().ok()) >= Some(40_u32), "{passed:?}");
}

const CLI: &str = r#"
nsid=1
connect -l 30 || exit 8
cp /host/suite.py /debian/tmp/suites/nvme-cli
suite python3 /tmp/suites/nvme-cli/suite.py /dev/$controller
status=$?
disconnect
exit $status
"#;

/// Which part of nvme-cli's suite applies to our drive, and why the rest does not. Its tests ask
/// for a drive on PCIe, only because they were written for those.
const CLI_SUITE: &str = r#"
import glob, io, json, os, sys, unittest

APPLY = ['compare', 'dsm', 'error_log', 'flush', 'fw_log', 'get_features', 'id_ctrl', 'id_ns',
         'read_write', 'verify', 'writezeros']
NOT_THERE = {
    'attach_detach_ns': 'namespaces are not managed over the wire (OACS)',
    'create_max_ns': 'namespaces are not managed over the wire (OACS)',
    'format': 'Format is not there (OACS)',
    'copy': 'Copy is not there (ONCS)',
    'writeuncor': 'Write Uncorrectable is not there (ONCS)',
    'get_lba_status': 'Get LBA Status is not there (OACS)',
    'lba_status_log': 'and neither is the log that belongs to it',
    'smart_log': 'looks for data_units_read, which this nvme-cli calls Data Units Read',
    'simple_template': 'tests nothing',
}
# Interrupts: on PCIe only (NVMe base 2.0, section 5.27).
NO_FEATURES = ['0x08', '0x09']

os.chdir(os.path.dirname(sys.argv[0]))
sys.path.insert(0, 'tests')
controller = sys.argv[1]
with open('tests/config.json', 'w') as file:
    json.dump({'controller': controller, 'ns1': controller + 'n1', 'log_dir': 'logs'}, file)
import nvme_get_features_test, nvme_test
nvme_test.TestNVMe.validate_pci_device = lambda self: None
mandatory = nvme_get_features_test.TestNVMeGetMandatoryFeatures
get = mandatory.get_mandatory_features
mandatory.get_mandatory_features = lambda self, id: id in NO_FEATURES or get(self, id)

known = [name[len('tests/nvme_'):-len('_test.py')] for name in glob.glob('tests/nvme_*_test.py')]
wrong = set(known) ^ set(APPLY + list(NOT_THERE))
out, passed = sys.stdout, 0
for name in APPLY:
    sys.stdout, result = io.StringIO(), unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromName(f'nvme_{name}_test').run(result)
    said, sys.stdout, sys.stderr = sys.stdout, out, out
    if result.testsRun == 1 and result.wasSuccessful():
        passed += 1
    else:
        print(said.getvalue(), *[why for _, why in result.failures + result.errors])
        wrong.add(name)
print(f'{passed} of {len(APPLY)} pass; wrong: {sorted(wrong)}')
sys.exit(bool(wrong))
"#;

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn nvme_clis_own_tests_pass() {
    let dir = tempfile::tempdir().expect("directory");
    // With several namespaces the kernel passes no command to one by the controller's name.
    let served = Served::new(dir.path(), "--profile conventional-noplp --size 64m", &[]);
    let guest = guest().file("suite.py", CLI_SUITE);
    let output = served.judge(guest, "nvme0", &format!("{SUITES}{CLI}"));
    println!("{}", output.success());
}
