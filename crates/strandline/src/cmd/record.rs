//! `strandline crash record`: a program's run on a mount, made a workload.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use clap::Args;
use fuse::{How, MountOptions, Session};
use lab::record::Watched;

use crate::failure::{Failure, Outcome};
use crate::out;

/// Make a workload from what a program does in a directory.
///
/// The program runs in an empty directory, a mount in memory that records each change and each
/// fsync. Bytes are made up. The file is a text that `crash --workload file:FILE` cuts, to judge
/// the file system; `check-program` judges the program.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline crash record db.workload -- sqlite3 main 'create table t(x); insert into t values(1)'
  strandline crash record save.workload --setup 'git init -q .' -- sh -c 'date >f; git add f'
  strandline crash --workload file:db.workload --modes posix,oprw --every-state")]
pub(crate) struct Record {
    /// File to write
    file: PathBuf,
    /// Shell command to run first: what it does is durable before the power may fail
    #[arg(long, value_name = "COMMAND")]
    setup: Option<String>,
    /// Program and arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// A file system that records, in which this process's user may work.
pub(super) fn watched() -> Outcome<Watched> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    Watched::new().owned_by(uid, gid).map_err(Failure::on("the mount"))
}

impl Record {
    pub(crate) fn run(self) -> Outcome {
        let dir = tempfile::tempdir().map_err(Failure::on("a directory to mount on"))?;
        let fs = Arc::new(watched()?);
        let options = MountOptions::default();
        let session = Session::start(fs.clone(), None, Path::new("record"), dir.path(), &options)
            .map_err(Failure::host(dir.path()))?;
        let worked = self.work(&fs, dir.path());
        if let Err(error) = fuse::unmount(dir.path(), How::Plainly) {
            // Processes that still use it lose it when this process ends.
            let _ = fuse::unmount(dir.path(), How::Lazily);
            return worked.and(Err(Failure::on("what the program began still goes on")(error)));
        }
        session.wait().map_err(Failure::on("the mount"))?;
        worked?;
        let script = fs.script(&self.command[0].to_string_lossy())?;
        self.save(&script.text()).map_err(Failure::host(&self.file))?;
        let (steps, file) = (script.steps().len(), self.file.display());
        out::line(format!("{file}: {steps} steps"))?;
        out::line(format!("next: strandline crash --workload file:{file} --every-state"))?;
        Ok(0)
    }

    /// All or nothing: half a workload would be one, too.
    fn save(&self, text: &str) -> io::Result<()> {
        let saved = fs::write(&self.file, text);
        if saved.is_err() && self.file.is_file() {
            let _left = fs::remove_file(&self.file);
        }
        saved
    }

    fn work(&self, fs: &Watched, dir: &Path) -> Outcome<()> {
        if let Some(setup) = &self.setup {
            succeed(Command::new("sh").arg("-c").arg(setup).current_dir(dir))?;
            fs.begin();
        }
        succeed(Command::new(&self.command[0]).args(&self.command[1..]).current_dir(dir))
    }
}

/// Its output goes to the user.
fn succeed(command: &mut Command) -> Outcome<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(Failure::on(&program))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Problem(format!("{program}: {status}; no workload was written")))
}
