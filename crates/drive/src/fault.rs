//! Drives that fail on purpose, on top of any other drive.

use std::collections::VecDeque;
use std::ops::Range;

use cores::{Mutex, Nanos};

use crate::{
    Command, Completion, Drive, Identify, Lba, Output, Status, Zone, ZoneAction, ZoneState,
};

/// Which commands a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// Reads.
    Read,
    /// Writes and appends.
    Write,
    /// Flushes.
    Flush,
    /// Writes, appends and flushes, counted together.
    WriteOrFlush,
    /// Discards, zone management and reports.
    Other,
}

impl FaultOn {
    /// Whether a rule of this kind strikes a command of kind `on`.
    fn covers(self, on: Self) -> bool {
        self == on || self == Self::WriteOrFlush && matches!(on, Self::Write | Self::Flush)
    }
}

#[derive(Clone, Debug)]
struct Rule {
    on: FaultOn,
    range: Range<Lba>,
    /// Lets this many pass first.
    skip: u64,
    /// Strikes this often.
    times: u64,
    status: Status,
    /// How long the drive tries before it gives up.
    tries_for: Nanos,
}

/// What the fault layer has for a waiter.
enum Own {
    Done(Completion),
    /// A command fails then.
    Later(Nanos),
    Nothing,
}

/// While a failure is to come, a waiter looks this often for what completes before it.
const LOOK: Nanos = 10_000;

#[derive(Default)]
struct Faults {
    rules: Vec<Rule>,
    zones: Vec<(Lba, ZoneState)>,
    /// A flush is answered but not made.
    lies: bool,
    /// Answers given here, by queue, and when.
    own: VecDeque<(u16, Nanos, Completion)>,
    /// Zone reports that must be changed on their way back, by queue and identifier.
    reports: Vec<(u16, u16)>,
}

/// Makes commands fail by number or by address, and zones by state. Everything else passes.
pub struct Fault<D> {
    below: D,
    faults: Mutex<Faults>,
}

impl<D: Drive> Fault<D> {
    /// No faults yet.
    pub fn new(below: D) -> Self {
        Self { below, faults: Mutex::new(Faults::default()) }
    }

    /// The drive below.
    pub fn below(&self) -> &D {
        &self.below
    }

    /// The `n`-th command of kind `on` from now on, counted from 0, fails once.
    pub fn fail_nth(&self, on: FaultOn, n: u64, status: Status) {
        self.fail_nth_after(on, n, status, 0);
    }

    /// As [`Fault::fail_nth`], but the command is under way for `tries_for` nanoseconds before it
    /// fails, as on a drive that retries. Others can meet it in flight.
    pub fn fail_nth_after(&self, on: FaultOn, n: u64, status: Status, tries_for: Nanos) {
        self.add(Rule { on, range: 0..Lba::MAX, skip: n, times: 1, status, tries_for });
    }

    /// Every command of kind `on` that touches `range` fails.
    pub fn fail_range(&self, on: FaultOn, range: Range<Lba>, status: Status) {
        self.add(Rule { on, range, skip: 0, times: u64::MAX, status, tries_for: 0 });
    }

    /// The zone that starts at `zone` is read only or offline from now on.
    pub fn fail_zone(&self, zone: Lba, state: ZoneState) {
        self.faults.lock().zones.push((zone, state));
    }

    /// Every flush is reported as done and is not, as on drives that win benchmarks.
    pub fn lie_about_flushes(&self) {
        self.faults.lock().lies = true;
    }

    /// Forgets all faults.
    pub fn clear(&self) {
        let mut faults = self.faults.lock();
        faults.lies = false;
        faults.rules.clear();
        faults.zones.clear();
    }

    /// Whether any command is still set to fail.
    pub fn is_armed(&self) -> bool {
        self.faults.lock().rules.iter().any(|rule| rule.times > 0)
    }

    fn add(&self, rule: Rule) {
        self.faults.lock().rules.push(rule);
    }

    /// When a command that is answered here completes, and how. If a command passes but its answer
    /// must be changed on the way back, that is noted.
    fn fail(&self, queue: u16, cid: u16, command: &Command) -> Option<(Nanos, Completion)> {
        let mut faults = self.faults.lock();
        if let Some((status, tries_for)) = self.strikes(&mut faults, command) {
            let at = if tries_for > 0 { cores::now().saturating_add(tries_for) } else { 0 };
            return Some((at, Completion { cid, result: Err(status) }));
        }
        if faults.lies && matches!(command, Command::Flush) {
            return Some((0, Completion { cid, result: Ok(Output::Done) }));
        }
        if matches!(command, Command::ReportZones { .. }) {
            faults.reports.push((queue, cid));
        }
        None
    }

    /// The status with which `command` fails, if it does, and how long that takes.
    fn strikes(&self, faults: &mut Faults, command: &Command) -> Option<(Status, Nanos)> {
        let (on, range) = self.reach(command);
        if let Some(status) = self.zone_status(faults, command, &range) {
            return Some((status, 0));
        }
        let overlaps = |rule: &Rule| rule.range.start < range.end && range.start < rule.range.end;
        let mut struck = None;
        for rule in faults.rules.iter_mut().filter(|rule| rule.on.covers(on) && overlaps(rule)) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if struck.is_none() && rule.times > 0 {
                rule.times -= 1;
                struck = Some((rule.status, rule.tries_for));
            }
        }
        struck
    }

    fn zone_status(&self, faults: &Faults, command: &Command, at: &Range<Lba>) -> Option<Status> {
        let size = self.below.identify().zones?.size;
        let hits = |zone: Lba| zone < at.end && at.start < zone.saturating_add(size);
        let mut states =
            faults.zones.iter().filter(|(zone, _)| hits(*zone)).map(|(_, state)| *state);
        states.find_map(|state| refusal(command, state))
    }

    /// A command's kind and blocks.
    fn reach(&self, command: &Command) -> (FaultOn, Range<Lba>) {
        let span = |lba: Lba, blocks: u64| lba..lba.saturating_add(blocks);
        match command {
            Command::Read { lba, blocks } => (FaultOn::Read, span(*lba, u64::from(*blocks))),
            Command::Write { lba, data, .. } => (FaultOn::Write, span(*lba, data.len() as u64)),
            Command::Append { zone, data, .. } => (FaultOn::Write, span(*zone, data.len() as u64)),
            Command::Flush => (FaultOn::Flush, 0..Lba::MAX),
            Command::Discard { lba, blocks } => (FaultOn::Other, span(*lba, *blocks)),
            Command::ReportZones { lba, .. } => (FaultOn::Other, span(*lba, 1)),
            Command::ManageZone { zone, .. } => {
                (FaultOn::Other, zone.map_or(0..Lba::MAX, |zone| span(zone, 1)))
            }
        }
    }

    /// The next answer of the fault layer on `queue`, or that to `cid`.
    fn own(&self, queue: u16, cid: Option<u16>) -> Own {
        let own = &mut self.faults.lock().own;
        let wanted = own
            .iter()
            .enumerate()
            .filter(|(_, (of, _, done))| *of == queue && cid.is_none_or(|cid| done.cid == cid));
        let Some((at, due)) =
            wanted.map(|(at, (_, due, _))| (at, *due)).min_by_key(|(_, due)| *due)
        else {
            return Own::Nothing;
        };
        if due > 0 && due > cores::now() {
            return Own::Later(due);
        }
        own.remove(at).map_or(Own::Nothing, |(_, _, completion)| Own::Done(completion))
    }

    /// A completion from below. In a report, zones that failed here show as failed.
    fn touch_up(&self, queue: u16, mut completion: Completion) -> Completion {
        let mut faults = self.faults.lock();
        let key = (queue, completion.cid);
        if let Some(at) = faults.reports.iter().position(|report| *report == key) {
            faults.reports.swap_remove(at);
            if let Ok(Output::Zones(zones)) = &mut completion.result {
                zones.iter_mut().for_each(|zone| overlay(zone, &faults.zones));
            }
        }
        completion
    }
}

/// What a failed zone answers.
fn refusal(command: &Command, state: ZoneState) -> Option<Status> {
    match (command, state) {
        (
            Command::Read { .. } | Command::Write { .. } | Command::Append { .. },
            ZoneState::Offline,
        ) => Some(Status::ZoneOffline),
        (Command::Write { .. } | Command::Append { .. }, _) => Some(Status::ZoneReadOnly),
        (Command::ManageZone { zone: Some(_), .. }, _) => Some(Status::InvalidZoneStateTransition),
        _ => None,
    }
}

fn overlay(zone: &mut Zone, failed: &[(Lba, ZoneState)]) {
    if let Some((_, state)) = failed.iter().find(|(start, _)| *start == zone.start) {
        zone.state = *state;
    }
}

impl<D: Drive> Drive for Fault<D> {
    fn identify(&self) -> &Identify {
        self.below.identify()
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        match self.fail(queue, cid, &command) {
            Some((at, failed)) => self.faults.lock().own.push_back((queue, at, failed)),
            None => self.below.submit(queue, cid, command),
        }
    }

    fn issue(&self, queue: u16, cid: u16, command: Command) -> Option<Completion> {
        match self.fail(queue, cid, &command) {
            Some((0, failed)) => Some(failed),
            Some((at, failed)) => {
                self.faults.lock().own.push_back((queue, at, failed));
                None
            }
            None => {
                let done = self.below.issue(queue, cid, command);
                done.map(|done| self.touch_up(queue, done))
            }
        }
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        match self.own(queue, None) {
            Own::Done(completion) => Some(completion),
            _ => self.below.poll(queue).map(|done| self.touch_up(queue, done)),
        }
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        loop {
            let done = match self.own(queue, None) {
                Own::Done(completion) => return Some(completion),
                Own::Later(due) => match self.below.poll(queue) {
                    None => {
                        cores::sleep(due.saturating_sub(cores::now()).min(LOOK));
                        continue;
                    }
                    done => done,
                },
                Own::Nothing => self.below.wait(queue),
            };
            return done.map(|done| self.touch_up(queue, done));
        }
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        loop {
            match self.own(queue, Some(cid)) {
                Own::Done(completion) => return Some(completion),
                Own::Later(due) => cores::sleep(due.saturating_sub(cores::now())),
                Own::Nothing => {
                    let done = self.below.wait_for(queue, cid);
                    return done.map(|done| self.touch_up(queue, done));
                }
            }
        }
    }
}

/// A drive that refuses writes.
pub struct ReadOnly<D> {
    fault: Fault<D>,
    identify: Identify,
}

impl<D: Drive> ReadOnly<D> {
    /// Write-protects `below`: reads and reports pass, and a flush has nothing to do.
    pub fn new(below: D) -> Self {
        let identify = Identify { read_only: true, ..below.identify().clone() };
        Self { fault: Fault::new(below), identify }
    }
}

impl<D: Drive> Drive for ReadOnly<D> {
    fn identify(&self) -> &Identify {
        &self.identify
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        let changes = match command {
            Command::Read { .. } | Command::Flush | Command::ReportZones { .. } => false,
            Command::ManageZone { action, .. } => match action {
                ZoneAction::Open
                | ZoneAction::Close
                | ZoneAction::Finish
                | ZoneAction::Reset
                | ZoneAction::Offline => true,
            },
            Command::Write { .. } | Command::Append { .. } | Command::Discard { .. } => true,
        };
        if changes {
            let refusal = Completion { cid, result: Err(Status::WriteProtected) };
            self.fault.faults.lock().own.push_back((queue, 0, refusal));
        } else {
            self.fault.submit(queue, cid, command);
        }
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        self.fault.poll(queue)
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.fault.wait(queue)
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.fault.wait_for(queue, cid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Blocks, Spec, Ssd, Timing, ram};

    fn run(drive: &impl Drive, command: Command) -> Result<Output, Status> {
        drive.submit(0, 7, command);
        drive.wait_for(0, 7).expect("completion").result
    }

    fn write(lba: Lba) -> Command {
        Command::Write { lba, data: Blocks::from_iter([Block::zeroed()]), fua: false }
    }

    #[test]
    fn the_nth_and_the_range_fail_and_nothing_else() {
        let fault = Fault::new(ram(100));
        fault.fail_nth(FaultOn::Write, 1, Status::WriteFault);
        fault.fail_range(FaultOn::Read, 10..12, Status::UnrecoveredRead);
        let writes: Vec<_> = (0..3).map(|lba| run(&fault, write(lba)).is_ok()).collect();
        assert_eq!(writes, [true, false, true]);
        let read = |lba, blocks| run(&fault, Command::Read { lba, blocks });
        assert!(read(8, 2).is_ok() && read(12, 1).is_ok());
        assert_eq!(read(9, 2).expect_err("touches 10"), Status::UnrecoveredRead);
        assert_eq!(read(11, 5).expect_err("again"), Status::UnrecoveredRead);
        fault.clear();
        assert!(read(11, 5).is_ok());
    }

    #[test]
    fn a_failed_zone_refuses_and_says_so_in_reports() {
        let spec = Spec::named("zn540").expect("profile").zone_size(16, 16).zones(4, 0);
        let fault = Fault::new(Ssd::new(spec, Timing::Instant, 0).expect("drive"));
        assert!(run(&fault, write(16)).is_ok());
        fault.fail_zone(16, ZoneState::ReadOnly);
        fault.fail_zone(32, ZoneState::Offline);
        assert_eq!(run(&fault, write(17)).expect_err("read only"), Status::ZoneReadOnly);
        assert!(run(&fault, Command::Read { lba: 16, blocks: 1 }).is_ok());
        let offline = run(&fault, Command::Read { lba: 30, blocks: 4 }).expect_err("offline");
        assert_eq!(offline, Status::ZoneOffline);
        let reset = Command::ManageZone { action: ZoneAction::Reset, zone: Some(16) };
        assert_eq!(run(&fault, reset).expect_err("reset"), Status::InvalidZoneStateTransition);
        let report = run(&fault, Command::ReportZones { lba: 0, max: 9 }).expect("report");
        let Output::Zones(zones) = report else { panic!("{report:?}") };
        let states: Vec<_> = zones.iter().map(|zone| zone.state).collect();
        let expected =
            [ZoneState::Empty, ZoneState::ReadOnly, ZoneState::Offline, ZoneState::Empty];
        assert_eq!(states, expected);
    }

    #[test]
    fn read_only_reads() {
        let drive = ReadOnly::new(ram(10));
        assert!(drive.identify().read_only);
        assert_eq!(run(&drive, write(1)).expect_err("write"), Status::WriteProtected);
        assert!(run(&drive, Command::Read { lba: 1, blocks: 1 }).is_ok());
        assert!(run(&drive, Command::Flush).is_ok());
    }
}
