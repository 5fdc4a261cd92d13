//! What is to happen before or after which call: in LazyFS's words, so that its configurations and
//! commands mean here what they mean there.

use regex::bytes::Regex;
use thiserror::Error;

use super::torn::{Tear, Torn};

/// A call that a fault may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// unlink(2).
    Unlink,
    /// truncate(2), also that of an open with `O_TRUNC`.
    Truncate,
    /// fsync(2) or fdatasync(2), of a file or a directory.
    Fsync,
    /// write(2).
    Write,
    /// open(2) that makes a file, or mknod(2) of one.
    Create,
    /// access(2). The kernel answers it by itself, so that it never comes.
    Access,
    /// open(2) of a file that is there.
    Open,
    /// read(2), where the kernel has the contents not cached.
    Read,
    /// rename(2).
    Rename,
    /// link(2).
    Link,
    /// symlink(2): from the target to the new name.
    Symlink,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 11] = [
        Call::Unlink,
        Call::Truncate,
        Call::Fsync,
        Call::Write,
        Call::Create,
        Call::Access,
        Call::Open,
        Call::Read,
        Call::Rename,
        Call::Link,
        Call::Symlink,
    ];

    /// Its name in LazyFS.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Unlink => "unlink",
            Call::Truncate => "truncate",
            Call::Fsync => "fsync",
            Call::Write => "write",
            Call::Create => "create",
            Call::Access => "access",
            Call::Open => "open",
            Call::Read => "read",
            Call::Rename => "rename",
            Call::Link => "link",
            Call::Symlink => "symlink",
        }
    }

    /// The call of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.name() == name)
    }

    /// Whether it is about two paths.
    pub const fn has_two_paths(self) -> bool {
        matches!(self, Call::Rename | Call::Link | Call::Symlink)
    }
}

/// Before a call takes effect, or after it has and before its caller learns of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before.
    Before,
    /// After. Not if the call fails.
    After,
}

impl When {
    /// `before` or `after`.
    pub const fn name(self) -> &'static str {
        match self {
            When::Before => "before",
            When::After => "after",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        [When::Before, When::After].into_iter().find(|when| when.name() == name)
    }
}

/// Why there can be no such fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FaultError {
    /// No path of a call with two.
    #[error("should specify 'from_rgx' and/or 'to_rgx'")]
    NoPattern,
    /// Not exactly the path that the call has.
    #[error("should specify 'from_rgx' regex (and not 'to_rgx')")]
    OnePattern,
    /// A call with two paths, of which one is missing.
    #[error("'from' and 'to' must be set for operations with two paths")]
    TwoPaths,
    /// A call with one path, which is missing, or a second one.
    #[error("should specify 'from' (and not 'to')")]
    OnePath,
    /// Counting begins at 1.
    #[error("occurrence must be greater than 0")]
    Occurrence,
    /// A write cannot be divided like that.
    #[error("parts, and lengths of parts, must be greater than 0")]
    Parts,
    /// There are no such parts.
    #[error("persist must be greater than 0 and not greater than the number of parts")]
    PersistParts,
    /// There are no such writes.
    #[error("persist must be greater than 0")]
    PersistWrites,
    /// Counting begins at 1, and only some calls can fail.
    #[error("only 'write' and 'fsync' can fail, and at least once")]
    Fails,
    /// There is no room for more.
    #[error("there are {FAULTS_MAX} faults already")]
    TooMany,
}

/// The most faults that can wait at a time.
pub(super) const FAULTS_MAX: usize = 1024;

/// The process dies at any call of a kind whose paths match.
#[derive(Debug)]
pub struct Crash {
    call: Call,
    when: When,
    from: Option<Regex>,
    to: Option<Regex>,
}

impl Crash {
    /// At `call`, where its paths match.
    ///
    /// # Errors
    ///
    /// Not the patterns that the call needs: one of the two, or `from` if it has one path.
    pub fn new(
        call: Call,
        when: When,
        from: Option<Regex>,
        to: Option<Regex>,
    ) -> Result<Self, FaultError> {
        match (call.has_two_paths(), &from, &to) {
            (true, None, None) => Err(FaultError::NoPattern),
            (false, None, _) | (false, _, Some(_)) => Err(FaultError::OnePattern),
            _ => Ok(Self { call, when, from, to }),
        }
    }

    fn is_met(&self, event: &Event, when: When) -> bool {
        let from = |pattern: &Regex| event.from.iter().any(|path| pattern.is_match(path));
        let to = |pattern: &Regex| event.to.iter().any(|path| pattern.is_match(path));
        (self.call, self.when) == (event.call, when)
            && self.from.as_ref().is_none_or(from)
            && self.to.as_ref().is_none_or(to)
    }
}

/// What is not durable is lost at one call of a path, counted from 1.
#[derive(Debug)]
pub struct Clear {
    call: Call,
    when: When,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    occurrence: u64,
    crash: bool,
    /// Calls that have begun.
    begun: u64,
}

impl Clear {
    /// At the `occurrence`-th `call` of these paths; with `crash` the process dies.
    ///
    /// # Errors
    ///
    /// Not the paths that the call has, or no such occurrence.
    pub fn new(
        (call, when): (Call, When),
        from: Option<Vec<u8>>,
        to: Option<Vec<u8>>,
        occurrence: u64,
        crash: bool,
    ) -> Result<Self, FaultError> {
        if occurrence == 0 {
            return Err(FaultError::Occurrence);
        }
        match (call.has_two_paths(), from, to) {
            (false, Some(from), None) => {
                Ok(Self { call, when, from, to: None, occurrence, crash, begun: 0 })
            }
            (true, Some(from), to @ Some(_)) => {
                Ok(Self { call, when, from, to, occurrence, crash, begun: 0 })
            }
            (true, ..) => Err(FaultError::TwoPaths),
            (false, ..) => Err(FaultError::OnePath),
        }
    }

    /// Its paths as calls have them; the target of a symbolic link is no path.
    fn place(&mut self, placed: impl Fn(&[u8]) -> Vec<u8>) {
        if self.call != Call::Symlink {
            self.from = placed(&self.from);
        }
        self.to = self.to.as_deref().map(placed);
    }

    fn is_met(&mut self, event: &Event, when: When) -> bool {
        let is_call =
            self.call == event.call && event.from.contains(&self.from) && self.to == event.to;
        self.begun += u64::from(is_call && when == When::Before);
        is_call && self.when == when && self.begun == self.occurrence
    }
}

/// Calls fail with `EIO` and do nothing: a drive's errors.
#[derive(Debug)]
pub struct Fail {
    call: Call,
    pattern: Regex,
    /// How often it is still to happen.
    left: u64,
}

impl Fail {
    /// The next so many writes or fsyncs of files whose paths match.
    ///
    /// # Errors
    ///
    /// It is another call, or no times.
    pub fn new(call: Call, pattern: Regex, times: u64) -> Result<Self, FaultError> {
        match call {
            Call::Write | Call::Fsync if times > 0 => Ok(Self { call, pattern, left: times }),
            _ => Err(FaultError::Fails),
        }
    }

    fn is_met(&mut self, event: &Event, when: When) -> bool {
        let matches = |path: &Vec<u8>| self.pattern.is_match(path);
        let is_met = when == When::Before
            && self.call == event.call
            && self.left > 0
            && event.from.iter().any(matches);
        self.left -= u64::from(is_met);
        is_met
    }
}

/// Something that is to happen.
#[derive(Debug)]
pub enum Fault {
    /// See [`Crash`].
    Crash(Crash),
    /// See [`Clear`].
    Clear(Clear),
    /// See [`Torn`].
    Torn(Torn),
    /// See [`Fail`].
    Fail(Fail),
}

/// A call with its paths as users see them. A file with several names has several.
pub(super) struct Event {
    pub(super) call: Call,
    pub(super) from: Vec<Vec<u8>>,
    pub(super) to: Option<Vec<u8>>,
    /// Offset and length in bytes.
    pub(super) range: Option<(u64, u64)>,
}

/// What is due at a call; the last of these, if there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Fail,
    Clear,
    Crash,
}

/// All faults that wait.
#[derive(Default)]
pub(super) struct Faults {
    all: Vec<Fault>,
    /// Every call is reported.
    pub(super) reports_calls: bool,
}

impl Faults {
    /// Adds a fault, whose paths `placed` makes those that calls have.
    pub(super) fn add(
        &mut self,
        mut fault: Fault,
        placed: impl Fn(&[u8]) -> Vec<u8>,
    ) -> Result<(), FaultError> {
        match &mut fault {
            Fault::Clear(clear) => clear.place(placed),
            Fault::Torn(torn) => *torn.file() = placed(torn.file()),
            Fault::Crash(_) | Fault::Fail(_) => {}
        }
        if self.all.len() == FAULTS_MAX {
            return Err(FaultError::TooMany);
        }
        self.all.push(fault);
        Ok(())
    }

    /// Whether anybody wants to know of calls.
    pub(super) fn watches(&self) -> bool {
        self.reports_calls || !self.all.is_empty()
    }

    /// What is due before or after this call. Each fault counts it, whatever another one does.
    pub(super) fn due(&mut self, event: &Event, when: When) -> Option<Due> {
        let due = self.all.iter_mut().filter_map(|fault| match fault {
            Fault::Crash(crash) => crash.is_met(event, when).then_some(Due::Crash),
            Fault::Clear(clear) => {
                let kind = if clear.crash { Due::Crash } else { Due::Clear };
                clear.is_met(event, when).then_some(kind)
            }
            Fault::Fail(fail) => fail.is_met(event, when).then_some(Due::Fail),
            Fault::Torn(_) => None,
        });
        // All of them, because each counts.
        let due = due.max();
        self.all.retain(|fault| !matches!(fault, Fault::Fail(fail) if fail.left == 0));
        due
    }

    /// What becomes of a write, and of which path.
    pub(super) fn tear(&mut self, event: &Event, data: &[u8]) -> Option<(Vec<u8>, Tear)> {
        let (offset, _) = event.range?;
        let mut found = None;
        for torn in self.torn(event) {
            found = found.or(torn.meet(offset, data).map(|tear| (torn.file().clone(), tear)));
        }
        found
    }

    /// A file is fsynced.
    pub(super) fn fsynced(&mut self, event: &Event) {
        self.torn(event).for_each(Torn::fsynced);
    }

    /// The faults that tear writes of this call's file.
    fn torn<'a>(&'a mut self, event: &'a Event) -> impl Iterator<Item = &'a mut Torn> {
        self.all.iter_mut().filter_map(|fault| match fault {
            Fault::Torn(torn) => event.from.contains(torn.file()).then_some(torn),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(call: Call, from: &str, to: Option<&str>) -> Event {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Event { call, from: vec![bytes(from)], to: to.map(bytes), range: None }
    }

    fn pattern(text: &str) -> Option<Regex> {
        Some(Regex::new(text).unwrap())
    }

    #[test]
    fn a_crash_needs_the_paths_that_its_call_has() {
        let crash = |call, from, to| Crash::new(call, When::Before, from, to).err();
        assert_eq!(crash(Call::Rename, None, None), Some(FaultError::NoPattern));
        assert_eq!(crash(Call::Rename, None, pattern("a")), None);
        assert_eq!(crash(Call::Write, None, None), Some(FaultError::OnePattern));
        assert_eq!(crash(Call::Write, pattern("a"), pattern("a")), Some(FaultError::OnePattern));
    }

    #[test]
    fn patterns_match_anywhere_and_both_must() {
        let mut faults = Faults::default();
        let crash = Crash::new(Call::Rename, When::After, pattern("w[a]l"), pattern("z$")).unwrap();
        faults.add(Fault::Crash(crash), <[u8]>::to_vec).unwrap();
        let due = |faults: &mut Faults, from, to, when| {
            faults.due(&event(Call::Rename, from, Some(to)), when)
        };
        assert_eq!(due(&mut faults, "/d/wal.1", "/xyz", When::After), Some(Due::Crash));
        assert_eq!(due(&mut faults, "/d/wal.1", "/xyz", When::Before), None);
        assert_eq!(due(&mut faults, "/d/wal.1", "/xyzw", When::After), None);
        assert_eq!(due(&mut faults, "/d/log.1", "/xyz", When::After), None);
        assert_eq!(faults.due(&event(Call::Link, "/wal", Some("/z")), When::After), None);
    }

    #[test]
    fn a_call_fails_as_often_as_it_is_to() {
        let fail = |call, times| Fail::new(call, Regex::new("a").unwrap(), times);
        assert_eq!(fail(Call::Read, 1).err(), Some(FaultError::Fails));
        assert_eq!(fail(Call::Write, 0).err(), Some(FaultError::Fails));
        let mut faults = Faults::default();
        faults.add(Fault::Fail(fail(Call::Write, 2).unwrap()), <[u8]>::to_vec).unwrap();
        let mut met = Vec::new();
        for (call, path) in [
            (Call::Write, "/b"),
            (Call::Fsync, "/a"),
            (Call::Write, "/a"),
            (Call::Write, "/a"),
            (Call::Write, "/a"),
        ] {
            met.push(faults.due(&event(call, path, None), When::Before));
            assert_eq!(faults.due(&event(call, path, None), When::After), None);
        }
        assert_eq!(met, [None, None, Some(Due::Fail), Some(Due::Fail), None]);
        assert!(!faults.watches());
    }

    #[test]
    fn a_clear_comes_at_one_occurrence_of_one_path() {
        for when in [When::Before, When::After] {
            let mut faults = Faults::default();
            let clear = Clear::new((Call::Fsync, when), Some(b"/f".to_vec()), None, 2, false);
            faults.add(Fault::Clear(clear.unwrap()), <[u8]>::to_vec).unwrap();
            let mut met = Vec::new();
            for path in ["/f", "/g", "/f", "/f"] {
                let event = event(Call::Fsync, path, None);
                for when in [When::Before, When::After] {
                    met.push(faults.due(&event, when).map(|_| when));
                }
            }
            let second = if when == When::Before { 4 } else { 5 };
            let expected: Vec<_> = (0..8).map(|n| (n == second).then_some(when)).collect();
            assert_eq!(met, expected);
        }
        let clear = |call, to: Option<&[u8]>, occurrence| {
            let to = to.map(<[u8]>::to_vec);
            Clear::new((call, When::After), Some(b"/f".to_vec()), to, occurrence, true).err()
        };
        assert_eq!(clear(Call::Fsync, None, 0), Some(FaultError::Occurrence));
        assert_eq!(clear(Call::Fsync, Some(b"/g"), 1), Some(FaultError::OnePath));
        assert_eq!(clear(Call::Link, None, 1), Some(FaultError::TwoPaths));
        assert_eq!(clear(Call::Link, Some(b"/g"), 1), None);
    }
}
