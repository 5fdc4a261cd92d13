//! A MariaDB server whose data is on a mounted volume. Each commit is synced to the redo log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::programs::succeed;
use super::{Rig, require};

/// A running server. Its socket and its output are outside the volume.
pub(crate) struct Server {
    process: Child,
    outside: PathBuf,
}

/// Makes an empty server's data on the volume.
pub(crate) fn install(rig: &Rig) {
    require("mariadb-install-db", "mariadb-server");
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--user=root", "--skip-test-db"]);
    install.arg("--auth-root-authentication-method=normal").arg(data(rig));
    succeed(&mut install);
}

fn data(rig: &Rig) -> String {
    format!("--datadir={}", rig.point().join("mariadb").display())
}

impl Server {
    /// Starts the server, which recovers what a cut left. The error is its output if it ends
    /// instead.
    pub(crate) fn start(rig: &Rig, outside: &Path) -> Result<Self, String> {
        let log = outside.join("log");
        let mut server = Command::new("mariadbd");
        server.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-log-bin"]);
        server.args(["--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=fsync"]);
        server.args(["--innodb-log-file-size=48M", "--innodb-buffer-pool-size=64M"]);
        server.arg(data(rig)).arg(socket(outside));
        server.arg(format!("--pid-file={}", outside.join("pid").display()));
        server.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let process = server.spawn().expect("mariadbd runs");
        let mut server = Self { process, outside: outside.to_owned() };
        let mut ended = None;
        rig.eventually("the server answers, or ends", || {
            ended = server.process.try_wait().unwrap();
            ended.is_some() || server.ask("SELECT 1").is_ok()
        });
        let Some(status) = ended else { return Ok(server) };
        let said = std::fs::read_to_string(&log).unwrap();
        let errors: Vec<&str> = said.lines().filter(|line| line.contains("[ERROR]")).collect();
        Err(format!("mariadbd: {status}: {}", errors.join("; ")))
    }

    /// The option of its clients that says where it is.
    pub(crate) fn socket(&self) -> String {
        socket(&self.outside)
    }

    /// What it answers to statements, or says is wrong with them.
    pub(crate) fn ask(&self, statements: &str) -> Result<String, String> {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"]);
        let output = client.arg(self.socket()).arg("-e").arg(statements).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Shuts it down.
    pub(crate) fn stop(mut self) {
        self.ask("SHUTDOWN").unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "mariadbd ended with {status}");
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn socket(outside: &Path) -> String {
    format!("--socket={}", outside.join("socket").display())
}
