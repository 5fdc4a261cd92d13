//! A drive that records the commands that it passes on: what an fsync really sends.

use cores::Mutex;

use crate::{Command, Completion, Drive, Identify, ZoneAction};

/// Records every command on its way to the drive below.
///
/// One entry per command, as in `blktrace`'s RWBS column: `R 8+4` read four blocks at 8, `W`
/// write, `WF` forced write, `A` append (at the zone's start), `F` flush, `D` discard, `Z` zone
/// report, `ZO ZC ZF ZR` zone open, close, finish, reset (`*`: all).
pub struct Trace<D> {
    below: D,
    log: Mutex<Vec<String>>,
}

impl<D> Trace<D> {
    /// Traces what is sent to `below`.
    pub fn new(below: D) -> Self {
        Self { below, log: Mutex::new(Vec::new()) }
    }

    /// The drive below.
    pub fn below(&self) -> &D {
        &self.below
    }

    /// The commands since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock())
    }
}

impl<D: Drive> Drive for Trace<D> {
    fn identify(&self) -> &Identify {
        self.below.identify()
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        self.log.lock().push(line(&command));
        self.below.submit(queue, cid, command);
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        self.below.poll(queue)
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.below.wait(queue)
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.below.wait_for(queue, cid)
    }
}

/// A command in one line.
fn line(command: &Command) -> String {
    match command {
        Command::Read { lba, blocks } => format!("R {lba}+{blocks}"),
        Command::Write { lba, data, fua } => {
            format!("W{} {lba}+{}", if *fua { "F" } else { "" }, data.len())
        }
        Command::Append { zone, data, fua } => {
            format!("A{} {zone}+{}", if *fua { "F" } else { "" }, data.len())
        }
        Command::Flush => "F".to_owned(),
        Command::Discard { lba, blocks } => format!("D {lba}+{blocks}"),
        Command::ReportZones { lba, .. } => format!("Z {lba}"),
        Command::ManageZone { action, zone } => {
            let name = match action {
                ZoneAction::Open => "ZO",
                ZoneAction::Close => "ZC",
                ZoneAction::Finish => "ZF",
                ZoneAction::Reset => "ZR",
                ZoneAction::Offline => "ZX",
            };
            zone.map_or_else(|| format!("{name} *"), |zone| format!("{name} {zone}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Blocks, Fault, ram};

    #[test]
    fn records_and_passes_on() {
        let data = || Blocks::from_iter([Block::from_prefix(b"x"), Block::zeroed()]);
        // Stacked: the fault below shows that what is traced above really passes through.
        let trace = Trace::new(Fault::new(ram(64)));
        trace.submit(0, 1, Command::Write { lba: 3, data: data(), fua: false });
        trace.submit(0, 2, Command::Write { lba: 5, data: data(), fua: true });
        trace.submit(0, 3, Command::Flush);
        trace.submit(0, 4, Command::Discard { lba: 5, blocks: 1 });
        trace.submit(0, 5, Command::ManageZone { action: ZoneAction::Reset, zone: None });
        let log = trace.take();
        assert_eq!(log, ["W 3+2", "WF 5+2", "F", "D 5+1", "ZR *"]);
        assert!(trace.take().is_empty());
        let answers: Vec<_> = std::iter::from_fn(|| trace.poll(0)).map(|c| c.cid).collect();
        assert_eq!(answers, [1, 2, 3, 4, 5]);
    }
}
