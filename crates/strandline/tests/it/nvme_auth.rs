//! DH-HMAC-CHAP between the Linux kernel and `strandline drive serve`: a host that knows the secret
//! gets in, with authentication in one direction and in both, and nobody else gets anything.

use linux::Guest;

use crate::served::Served;

/// Debian 12's 6.1 is built without NVMe authentication.
const KERNEL: &str = "linux-image-6.12-amd64";

/// The hosts' secret and ours, with keys of 32 and 48 bytes, and one that is neither.
const SECRETS: [&str; 3] = [
    "DHHC-1:00:wF2ju30hCUO7v64KD700ywnzaZ8lwe5VfPeonKedN7yZtoYw:",
    "DHHC-1:02:W4Rk5Urlm0lwF4FoJKG7QYRJU0Kiys1cO38AQz4Vm8Tq6AUO8gK6DFeOgvZDsnyMuPG3kA==:",
    "DHHC-1:00:zOYGV/IaK5kU03l2j8n0aihEDhTnWLElPTQ+ltf+RxrdFtNM:",
];

const SCRIPT: &str = r#"
head -c 65536 /dev/urandom >/tmp/data
refused() {
    said=$1; shift
    if connect "$@" >/tmp/said 2>&1; then echo "let in: $*"; exit 4; fi
    grep -q "$said" /tmp/said || { cat /tmp/said; exit 5; }
    [ -e /dev/$controller ] && { echo "a controller is left: $*"; exit 6; }
    dmesg -c >/dev/null
}
admitted() {
    said=$1; shift
    connect "$@" || { dmesg | tail -n 20; exit 7; }
    dmesg -c | grep -q "$said" || exit 8
    for nsid in 1 2; do
        blkzone reset /dev/${controller}n$nsid 2>/dev/null
        dd if=/tmp/data of=/dev/${controller}n$nsid bs=4096 oflag=direct 2>/dev/null || exit 9
        dd if=/dev/${controller}n$nsid bs=65536 count=1 iflag=direct 2>/dev/null |
            cmp - /tmp/data || exit 9
    done
    disconnect
    dmesg -c >/dev/null
}
refused 'Required key not available'
refused 'Key was rejected' --dhchap-secret $other
refused 'Key was rejected' --dhchap-secret $own
admitted 'qid 0: authenticated' --dhchap-secret $host_secret
admitted 'qid 0: controller authenticated' --dhchap-secret $host_secret --dhchap-ctrl-secret $own
refused 'Key was rejected' --dhchap-secret $host_secret --dhchap-ctrl-secret $other
if nvme discover -t tcp -a 10.0.2.2 -s $port $host >/tmp/said 2>&1; then cat /tmp/said; exit 3; fi
echo nobody else got in
"#;

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn only_who_knows_the_secret_gets_in() {
    let dir = tempfile::tempdir().expect("directory");
    let [host, own, other] = SECRETS;
    let keys = dir.path().join("keys");
    std::fs::write(&keys, format!("{host}\n{own}\n")).expect("a file");
    let drive = "--profile zn540-noplp --zone-size 4m --zones 32 --conventional 8";
    let options = ["--dhchap-key-file", keys.to_str().unwrap()];
    let served = Served::new(dir.path(), drive, &options);
    let guest = Guest::new().kernel(KERNEL).network();
    let secrets = format!("host_secret={host} own={own} other={other}");
    let output = served.judge(guest, "nvme0", &format!("{secrets}\n{SCRIPT}"));
    println!("{}", output.text);
    assert!(output.success().contains("nobody else got in"));
}
