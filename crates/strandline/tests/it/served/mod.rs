//! A drive served to a guest's kernel, for the tests of `drive serve` that need one.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linux::{Guest, Output};

const STRANDLINE: &str = env!("CARGO_BIN_EXE_strandline");

/// What every script begins with: the network, and our drive as `$ours`.
const CONNECT: &str = r#"
host="-q nqn.2014-08.org.nvmexpress:uuid:5a0c6d3e-0000-4000-8000-000000000001
    -I 5a0c6d3e-0000-4000-8000-000000000001"
connect() {
    nvme connect -t tcp -a 10.0.2.2 -s $port -n $nqn $host -i 2 -c 1 "$@" || return
    for try in $(seq 200); do [ -b /dev/${controller}n${nsid:-2} ] && break; sleep 0.1; done
    [ -b /dev/${controller}n${nsid:-2} ]
}
disconnect() {
    nvme disconnect -n $nqn >/dev/null
    for try in $(seq 200); do [ -b /dev/${controller}n${nsid:-2} ] || break; sleep 0.1; done
}
# ask WHAT: the host does it.
ask() {
    echo "$*" >/host/ask.new && mv /host/ask.new /host/ask
    while [ -e /host/ask ]; do sleep 0.1; done
}
modprobe -a nvme_tcp f2fs && network || exit 9
"#;

/// A drive that is served while this lives.
pub struct Served {
    child: Child,
    pub image: PathBuf,
    port: u16,
    pub nqn: String,
    /// Its later output; it would end if nobody read it.
    _said: BufReader<ChildStdout>,
}

impl Served {
    /// A drive in `dir`, created and served with these options.
    pub fn new(dir: &Path, create: &str, options: &[&str]) -> Self {
        let image = dir.join("disk.img");
        let create = ["drive", "create"].into_iter().chain(create.split_whitespace());
        let create = create.chain(image.to_str());
        strandline(&create.collect::<Vec<_>>());
        let mut child = Command::new(STRANDLINE)
            .args(["drive", "serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .arg(&image)
            .stdout(Stdio::piped())
            .spawn()
            .expect("drive serve");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = || {
            let mut line = String::new();
            said.read_line(&mut line).expect("text");
            line.trim_end().to_owned()
        };
        assert!(line().contains("only this machine can connect"));
        let connect = line();
        let words: Vec<&str> = connect.split(' ').collect();
        let after = |flag| words[words.iter().position(|word| *word == flag).unwrap() + 1];
        let (port, nqn) = (after("-s").parse().unwrap(), after("-n").to_owned());
        Self { child, image, port, nqn, _said: said }
    }

    /// Runs `script` in `guest`; what it asks of the host are commands of `strandline drive`, in
    /// which `DISK` is our drive.
    pub fn judge(&self, guest: Guest, controller: &str, script: &str) -> Output {
        let header = format!("port={} nqn={} controller={controller}", self.port, self.nqn);
        let asked = guest.share().join("ask");
        let over = Arc::new(AtomicBool::new(false));
        let (image, ended) = (self.image.clone(), over.clone());
        let helper = cores::spawn("helper", None, move || {
            while !ended.load(Ordering::Acquire) {
                cores::sleep(20_000_000);
                let Ok(words) = std::fs::read_to_string(&asked) else { continue };
                let image = image.to_str().unwrap();
                let words: Vec<&str> = words
                    .split_whitespace()
                    .map(|word| if word == "DISK" { image } else { word })
                    .collect();
                strandline(&[&["drive"][..], &words].concat());
                std::fs::remove_file(&asked).expect("the shared directory");
            }
        });
        let output = guest.run(&format!("{header}\n{CONNECT}\n{script}"));
        over.store(true, Ordering::Release);
        helper.join();
        output
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("SIGTERM");
        assert!(self.child.wait().expect("the server's end").success());
    }
}

pub fn strandline(arguments: &[&str]) -> String {
    let out = Command::new(STRANDLINE).args(arguments).output().expect("strandline");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    text(&out.stdout)
}
