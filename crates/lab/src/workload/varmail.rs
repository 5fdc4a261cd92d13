//! A mail server, after Filebench's `varmail.f`: each turn deletes one mail, delivers one
//! (create, append, fsync), reads one and appends to it (fsync), and reads another.

use super::Workload;
use super::content::Rng;
use crate::workload::recorder::{Node, Recorder};
use crate::{Error, Result};

/// Parameters; Filebench's defaults are 1,000 files, 16 KiB mean size and 16 KiB mean append.
#[derive(Clone, Copy, Debug)]
pub struct Varmail {
    /// Which directory: threads have one each.
    pub mailbox: u64,
    /// Mails at the start.
    pub files: u64,
    /// Turns of the loop, two fsyncs each.
    pub turns: u64,
    /// Mean size of a mail and of an append, in bytes.
    pub mean: u64,
}

impl Varmail {
    /// Half as many turns as cuts: about one fsync per cut.
    pub fn for_cuts(cuts: usize) -> Self {
        Self { mailbox: 0, files: 100, turns: (cuts as u64 / 2).clamp(30, 2_000), mean: 16 << 10 }
    }
}

struct Mailbox<'a> {
    fs: &'a Recorder,
    rng: Rng,
    dir: Node,
    mails: Vec<(Vec<u8>, Node)>,
    delivered: u64,
    mean: u64,
}

impl Mailbox<'_> {
    fn append(&mut self, mail: Node) -> Result<()> {
        let len = self.rng.within(1, 2 * self.mean - 1);
        let bytes = self.rng.bytes(len as usize);
        self.fs.write(mail, self.fs.size(mail), &bytes)
    }

    fn deliver(&mut self) -> Result<Node> {
        let name = format!("mail{:06}", self.delivered).into_bytes();
        self.delivered += 1;
        let mail = self.fs.create(self.dir, &name, 0o600)?;
        self.append(mail)?;
        self.mails.push((name, mail));
        Ok(mail)
    }

    fn pick(&mut self) -> usize {
        self.rng.below(self.mails.len() as u64) as usize
    }

    fn read(&mut self, mail: Node) -> Result<()> {
        let mut bytes = vec![0; self.fs.size(mail) as usize];
        self.fs.fs().read(mail.ino, 0, &mut bytes).map_err(Error::at("read", b""))?;
        Ok(())
    }

    fn turn(&mut self) -> Result<()> {
        let old = self.pick();
        let (name, _) = self.mails.swap_remove(old);
        self.fs.unlink(self.dir, &name)?;
        let new = self.deliver()?;
        self.fs.fsync(new)?;
        let answered = self.pick();
        let mail = self.mails[answered].1;
        self.read(mail)?;
        self.append(mail)?;
        self.fs.fsync(mail)?;
        let other = self.pick();
        self.read(self.mails[other].1)
    }
}

impl Workload for Varmail {
    fn name(&self) -> &str {
        "varmail"
    }

    fn footprint(&self) -> u64 {
        (self.files + 2 * self.turns) * (self.mean + 8192) * 2
    }

    fn run(&self, fs: &Recorder, seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let dir = fs.mkdir(fs.root(), format!("mail{}", self.mailbox).as_bytes(), 0o755)?;
        let rng = Rng::new(seed, 3);
        let mean = self.mean;
        let mut mailbox = Mailbox { fs, rng, dir, mails: Vec::new(), delivered: 0, mean };
        for _ in 0..self.files {
            mailbox.deliver()?;
        }
        fs.sync()?;
        started();
        for _ in 0..self.turns {
            mailbox.turn()?;
        }
        Ok(())
    }
}
