//! Commands: `lazyfs::NAME`, and for faults `::KEY=VALUE` as often as needed. Through a socket
//! `lazyfs::` may be missing.

use lab::record::harness::{Call, Crash, Fail, Fault, Parts, Torn, TornOp, TornSeq, When};
use regex::bytes::{Regex, RegexBuilder};

/// What a line says.
#[derive(Debug)]
pub(super) enum Command {
    /// Lose what is not durable, or only what `seed` says.
    Clear {
        seed: Option<u64>,
    },
    Checkpoint,
    Usage,
    Report,
    Help,
    /// A fault of this kind and how it is shown, or all that is wrong with it.
    Fault {
        kind: &'static str,
        fault: Result<(Fault, String), Vec<String>>,
    },
    Unknown,
}

/// The most memory that a pattern may take, in bytes.
const PATTERN_MAX: usize = 1 << 20;

/// What `lazyfs::help` says.
pub(super) const HELP: [(&str, &str); 10] = [
    ("lazyfs::clear-cache", "clears un-fsynced data"),
    ("lazyfs::clear-cache::seed=N", "clears a part of it, which N chooses"),
    ("lazyfs::display-cache-usage", "shows how much of the cache's size is un-fsynced"),
    ("lazyfs::cache-checkpoint", "makes all cached data durable"),
    ("lazyfs::unsynced-data-report", "reports which files and names are not synced"),
    ("lazyfs::crash::timing=T::op=O::from_rgx=R::to_rgx=R", "kills the server at a call"),
    (
        "lazyfs::torn-op::file=F::parts=N::persist=P,P::occurrence=N",
        "kills it after parts of a write",
    ),
    (
        "lazyfs::torn-seq::op=write::file=F::persist=P,P::occurrence=N",
        "kills it after some of several writes",
    ),
    ("lazyfs::fail::op=O::from_rgx=R::times=N", "fails writes or fsyncs with EIO"),
    ("lazyfs::help", "displays this message"),
];

/// What LazyFS's commands begin with.
const PREFIX: &str = "lazyfs::";

impl Command {
    /// As LazyFS has it.
    pub(super) fn parse(line: &str) -> Self {
        line.strip_prefix(PREFIX).map_or(Self::Unknown, Self::named)
    }

    /// The same, with or without [`PREFIX`].
    pub(super) fn parse_plain(line: &str) -> Self {
        Self::named(line.strip_prefix(PREFIX).unwrap_or(line))
    }

    fn named(line: &str) -> Self {
        let mut parts = line.split("::");
        let name = parts.next();
        let pairs: Option<Vec<_>> = parts.map(|part| part.split_once('=')).collect();
        let Some(pairs) = pairs else { return Self::Unknown };
        let keys = Keys(pairs);
        let fault = |kind, fault| Self::Fault { kind, fault };
        match (name, &keys.0[..]) {
            (Some("clear-cache"), []) => Self::Clear { seed: None },
            (Some("clear-cache"), [("seed", seed)]) => {
                seed.parse().map_or(Self::Unknown, |seed| Self::Clear { seed: Some(seed) })
            }
            (Some("cache-checkpoint"), []) => Self::Checkpoint,
            (Some("display-cache-usage"), []) => Self::Usage,
            (Some("unsynced-data-report"), []) => Self::Report,
            (Some("help"), []) => Self::Help,
            (Some("crash"), _) => fault("crash", keys.crash()),
            (Some("torn-op"), _) => fault("torn-op", keys.torn_op()),
            (Some("torn-seq"), _) => fault("torn-seq", keys.torn_seq()),
            (Some("fail"), _) => fault("fail", keys.fail()),
            _ => Self::Unknown,
        }
    }
}

/// The keys of a command with their values.
struct Keys<'a>(Vec<(&'a str, &'a str)>);

type Made = Result<(Fault, String), Vec<String>>;

impl Keys<'_> {
    /// The last value of a key that is not empty.
    fn get(&self, key: &str) -> Option<&str> {
        let values = self.0.iter().filter(|(name, value)| *name == key && !value.is_empty());
        values.map(|(_, value)| *value).next_back()
    }

    /// What is wrong, if there are other keys than these.
    fn only(&self, known: &[&str], errors: &mut Vec<String>) {
        let unknown = self.0.iter().filter(|(name, _)| !known.contains(name));
        errors.extend(unknown.map(|(name, _)| format!("unknown attribute '{name}'")));
    }

    fn pattern(&self, key: &str, errors: &mut Vec<String>) -> Option<Regex> {
        let pattern = RegexBuilder::new(self.get(key)?).size_limit(PATTERN_MAX).build();
        // The message is a picture of several lines; its last line says it.
        let why = |error: regex::Error| {
            let text = error.to_string();
            format!("{key}: {}", text.lines().last().unwrap_or_default().trim())
        };
        pattern.map_err(|error| errors.push(why(error))).ok()
    }

    fn call(&self, errors: &mut Vec<String>) -> Option<Call> {
        let call = self.get("op").and_then(Call::named);
        if call.is_none() {
            errors.push("operation not available".into());
        }
        call
    }

    fn numbers<T: std::str::FromStr>(&self, key: &str, errors: &mut Vec<String>) -> Option<Vec<T>> {
        let numbers = self.get(key)?.split(',').map(|number| number.parse().ok());
        let numbers: Option<Vec<T>> = numbers.collect();
        if numbers.is_none() {
            errors.push(format!("{key} should be a list of numbers separated by commas"));
        }
        numbers
    }

    /// The number of the call that a fault waits for; the next one if it is not given.
    fn occurrence(&self, errors: &mut Vec<String>) -> u64 {
        let number = self.get("occurrence").map_or(Some(1), |number| number.parse().ok());
        if number.is_none() {
            errors.push("occurrence should be a number".into());
        }
        number.unwrap_or(1)
    }

    fn file(&self, errors: &mut Vec<String>) -> Option<Vec<u8>> {
        let file = self.get("file").map(|file| file.as_bytes().to_vec());
        if file.is_none() {
            errors.push("file not specified".into());
        }
        file
    }

    fn shown(&self) -> String {
        let pairs = self.0.iter().map(|(name, value)| format!("{name} = {value}"));
        pairs.collect::<Vec<_>>().join(", ")
    }

    /// The fault that `made` makes, if nothing is wrong so far.
    fn make<E: ToString>(&self, errors: Vec<String>, made: Option<Result<Fault, E>>) -> Made {
        match made {
            Some(Ok(fault)) if errors.is_empty() => Ok((fault, self.shown())),
            Some(Err(why)) if errors.is_empty() => Err(vec![why.to_string()]),
            _ => Err(errors),
        }
    }

    /// Other keys have no effect, as in LazyFS.
    fn crash(&self) -> Made {
        let mut errors = Vec::new();
        let call = self.call(&mut errors);
        let when = self.get("timing").and_then(When::named);
        if when.is_none() {
            errors.push("timing should be 'before' or 'after'".into());
        }
        let from = self.pattern("from_rgx", &mut errors);
        let to = self.pattern("to_rgx", &mut errors);
        let made = call.zip(when).map(|(call, when)| Crash::new(call, when, from, to));
        self.make(errors, made.map(|made| made.map(Fault::Crash)))
    }

    fn torn_op(&self) -> Made {
        let mut errors = Vec::new();
        self.only(&["file", "occurrence", "parts", "parts_bytes", "persist"], &mut errors);
        let occurrence = self.occurrence(&mut errors);
        let file = self.file(&mut errors);
        let equal = self.numbers::<usize>("parts", &mut errors);
        let bytes = self.numbers::<usize>("parts_bytes", &mut errors);
        let parts = match (equal.as_deref(), bytes) {
            (Some([parts]), None) => Some(Parts::Equal(*parts)),
            (None, Some(bytes)) => Some(Parts::Bytes(bytes)),
            _ => {
                errors.push("should specify 'parts' or 'parts_bytes', not both".into());
                None
            }
        };
        let persist = self.numbers("persist", &mut errors).unwrap_or_default();
        let made = file.zip(parts);
        let made = made.map(|(file, parts)| TornOp::new(file, occurrence, parts, persist));
        self.make(errors, made.map(|made| made.map(|op| Fault::Torn(Torn::Op(op)))))
    }

    fn torn_seq(&self) -> Made {
        let mut errors = Vec::new();
        self.only(&["file", "occurrence", "op", "persist"], &mut errors);
        let occurrence = self.occurrence(&mut errors);
        let file = self.file(&mut errors);
        if self.get("op") != Some("write") {
            errors.push("operation must be 'write'".into());
        }
        let persist = self.numbers("persist", &mut errors).unwrap_or_default();
        let made = file.map(|file| TornSeq::new(file, occurrence, persist));
        self.make(errors, made.map(|made| made.map(|seq| Fault::Torn(Torn::Seq(seq)))))
    }

    /// Not LazyFS's: the next `times` (1) writes or fsyncs fail.
    fn fail(&self) -> Made {
        let mut errors = Vec::new();
        self.only(&["op", "from_rgx", "times"], &mut errors);
        let call = self.call(&mut errors);
        let pattern = self.pattern("from_rgx", &mut errors);
        if pattern.is_none() && errors.is_empty() {
            errors.push("should specify 'from_rgx' regex".into());
        }
        let times = self.get("times").map_or(Some(1), |times| times.parse().ok());
        let times = times.unwrap_or(0);
        let made = call.zip(pattern).map(|(call, pattern)| Fail::new(call, pattern, times));
        self.make(errors, made.map(|made| made.map(Fault::Fail)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(line: &str) -> Vec<String> {
        match Command::parse(line) {
            Command::Fault { fault, .. } => fault.err().unwrap_or_default(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_are_lazyfs_s() {
        let clear = |line: &str| match Command::parse(line) {
            Command::Clear { seed } => Some(seed),
            _ => None,
        };
        assert_eq!(clear("lazyfs::clear-cache"), Some(None));
        assert_eq!(clear("lazyfs::clear-cache::seed=7"), Some(Some(7)));
        for (line, known) in [
            ("lazyfs::cache-checkpoint", "Checkpoint"),
            ("lazyfs::display-cache-usage", "Usage"),
            ("lazyfs::unsynced-data-report", "Report"),
            ("lazyfs::help", "Help"),
            ("", "Unknown"),
            ("lazyfs", "Unknown"),
            ("lazyfs::", "Unknown"),
            ("lazyfs::clear-cache ", "Unknown"),
            ("lazyfs::clear-cache::seed=x", "Unknown"),
            ("lazyfs::help::x=1", "Unknown"),
            ("clear-cache", "Unknown"),
        ] {
            assert_eq!(format!("{:?}", Command::parse(line)), known, "{line}");
        }
    }

    #[test]
    fn a_socket_s_commands_may_be_plain() {
        for line in ["lazyfs::help", "help"] {
            assert!(matches!(Command::parse_plain(line), Command::Help), "{line}");
        }
        for line in ["", "lazyfs", "lazyfs::lazyfs::help", "help "] {
            assert!(matches!(Command::parse_plain(line), Command::Unknown), "{line}");
        }
    }

    #[test]
    fn faults_are_made_or_all_is_said_that_is_wrong() {
        for good in [
            "lazyfs::crash::timing=before::op=write::from_rgx=file1",
            "lazyfs::crash::timing=before::op=link::from_rgx=file1::to_rgx=file2",
            "lazyfs::crash::timing=before::op=rename::to_rgx=fileabd",
            "lazyfs::crash::timing=after::op=write::from_rgx=member/wal/[0-9]+-[0-9]+.wal",
            "lazyfs::torn-op::file=f::persist=1,2::parts=3",
            "lazyfs::torn-op::file=f::persist=1::parts_bytes=4096,3600,1260",
            "lazyfs::torn-seq::op=write::file=f::persist=1,4",
            "lazyfs::torn-op::file=f::parts=3::persist=1::occurrence=3",
            "lazyfs::torn-seq::op=write::file=f::persist=1,4::occurrence=2",
            "lazyfs::fail::op=fsync::from_rgx=wal",
            "lazyfs::fail::op=write::from_rgx=wal::times=3",
        ] {
            assert_eq!(errors(good), [""; 0], "{good}");
        }
        for (bad, why) in [
            ("crash", 2),
            ("crash::timing=now::op=write::from_rgx=a", 1),
            ("crash::timing=before::op=mkdir::from_rgx=a", 1),
            ("crash::timing=before::op=write", 1),
            ("crash::timing=before::op=write::from_rgx=(", 1),
            ("crash::timing=before::op=write::from_rgx=a::to_rgx=b", 1),
            ("torn-op::file=f::persist=1::parts=3::occurrence=0", 1),
            ("torn-seq::op=write::file=f::persist=1::occurrence=x", 1),
            ("torn-op::file=f::persist=1::parts=3::times=2", 1),
            ("torn-op::file=f::persist=1::parts=3::parts_bytes=1,2", 1),
            ("torn-op::file=f::persist=4::parts=3", 1),
            ("torn-op::persist=x", 3),
            ("torn-seq::op=read::file=f::persist=1", 1),
            ("torn-seq::op=write::file=f", 1),
            ("fail::op=open::from_rgx=a", 1),
            ("fail::op=write::from_rgx=a::times=no", 1),
            ("fail::op=write", 1),
        ] {
            let errors = errors(&format!("lazyfs::{bad}"));
            assert_eq!(errors.len(), why, "{bad}: {errors:?}");
        }
    }
}
