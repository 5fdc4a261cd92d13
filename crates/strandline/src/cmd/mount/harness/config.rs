//! LazyFS's configuration file. What it does not know it passes over, and so does this.

use std::path::{Path, PathBuf};

use lab::record::harness::{Call, Clear, Fault, Parts, Torn, TornOp, TornSeq, When};
use toml::{Table, Value};

/// The FIFO that is not named.
const FIFO: &str = "faults.fifo";
/// What the cache holds if nothing else is said.
const CACHE_BYTES: u64 = 1 << 30;

/// See the module's header. Paths are absolute.
#[derive(Debug)]
pub(super) struct Config {
    /// Where commands come from.
    pub(super) fifo: Option<PathBuf>,
    /// Where it is said that a clear is done.
    pub(super) completed: Option<PathBuf>,
    /// The size of LazyFS's cache, of which shares are shown. Here nothing depends on it.
    pub(super) cache_bytes: u64,
    /// The volume writes back by itself.
    pub(super) evicts: bool,
    pub(super) logs_calls: bool,
    pub(super) logfile: Option<PathBuf>,
    pub(super) injections: Vec<Fault>,
    /// What is wrong with the injections that are left out.
    pub(super) complaints: Vec<String>,
}

impl Config {
    /// Of a mount without a configuration, whose commands come from elsewhere.
    pub(super) fn none() -> Self {
        Self {
            fifo: None,
            completed: None,
            cache_bytes: CACHE_BYTES,
            evicts: false,
            logs_calls: false,
            logfile: None,
            injections: Vec::new(),
            complaints: Vec::new(),
        }
    }

    /// Relative paths are those below `beside`.
    pub(super) fn parse(text: &str, beside: &Path) -> Result<Self, String> {
        // The page writes what is no TOML.
        let header = |line: &str| match line.trim() {
            "[file system]" => "[\"file system\"]\n".to_owned(),
            _ => format!("{line}\n"),
        };
        let text: String = text.lines().map(header).collect();
        let all: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let faults = section(&all, "faults")?;
        let cache = section(&all, "cache")?;
        let path = |section: &Section<'_>, key: &str| -> Result<Option<PathBuf>, String> {
            let text = section.text(key)?.filter(|text| !text.is_empty());
            Ok(text.map(|text| beside.join(text)))
        };
        // The code reads one and the page shows the other.
        let files = match all.contains_key("filesystem") {
            true => section(&all, "filesystem")?,
            false => section(&all, "file system")?,
        };
        let mut config = Self {
            fifo: path(&faults, "fifo_path")?.or_else(|| Some(beside.join(FIFO))),
            completed: path(&faults, "fifo_path_completed")?,
            cache_bytes: cache_bytes(&cache)?,
            evicts: cache.flag("apply_eviction")?.unwrap_or(false),
            logs_calls: files.flag("log_all_operations")?.unwrap_or(false),
            logfile: path(&files, "logfile")?,
            ..Self::none()
        };
        let injections = match all.get("injection") {
            None => &Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => return Err("injection: expected a list of tables, [[injection]]".into()),
        };
        for (number, injection) in (1..).zip(injections) {
            config.add(number, injection)?;
        }
        Ok(config)
    }

    /// An injection: a fault, or a complaint.
    fn add(&mut self, number: usize, injection: &Value) -> Result<(), String> {
        let name = format!("injection {number}");
        let table = injection.as_table().ok_or_else(|| format!("{name}: expected a table"))?;
        let keys = Section { name: name.clone(), table: Some(table) };
        let kind = keys.text("type")?.ok_or_else(|| format!("{name}: key 'type' is missing"))?;
        let fault = match kind {
            "torn-seq" => keys.torn_seq(),
            "torn-op" => keys.torn_op(),
            // The code knows one, and the page the other.
            "clear-cache" | "clear" => keys.clear(),
            _ => Err(format!("{name}: key 'type' has an unknown value")),
        };
        match fault {
            Ok(fault) => self.injections.push(fault),
            Err(why) => self
                .complaints
                .push(format!("[lazyfs.config]: a fault of type '{kind}' is left out: {why}")),
        }
        Ok(())
    }
}

/// A table with its name, or none.
struct Section<'t> {
    name: String,
    table: Option<&'t Table>,
}

fn section<'t>(all: &'t Table, name: &str) -> Result<Section<'t>, String> {
    let table = match all.get(name) {
        None => None,
        Some(Value::Table(table)) => Some(table),
        Some(_) => return Err(format!("{name}: expected a table, [{name}]")),
    };
    Ok(Section { name: name.to_owned(), table })
}

impl<'t> Section<'t> {
    fn get<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'t Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.table.and_then(|table| table.get(key)) else { return Ok(None) };
        let name = &self.name;
        read(value).map(Some).ok_or_else(|| format!("{name}: key '{key}': expected {expected}"))
    }

    fn text(&self, key: &str) -> Result<Option<&'t str>, String> {
        self.get(key, "a string", Value::as_str)
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        self.get(key, "true or false", Value::as_bool)
    }

    fn number(&self, key: &str) -> Result<Option<u64>, String> {
        self.get(key, "a number", |value| value.as_integer()?.try_into().ok())
    }

    fn numbers(&self, key: &str) -> Result<Option<Vec<u64>>, String> {
        self.get(key, "a list of numbers", |value| {
            let numbers = value.as_array()?.iter();
            numbers.map(|number| number.as_integer()?.try_into().ok()).collect()
        })
    }

    fn needed<T>(&self, key: &str, found: Option<T>) -> Result<T, String> {
        found.ok_or_else(|| format!("{}: key '{key}' is not defined", self.name))
    }

    fn file(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(self.text(key)?.map(|file| file.as_bytes().to_vec()))
    }

    fn torn_seq(&self) -> Result<Fault, String> {
        let file = self.needed("file", self.file("file")?)?;
        if self.needed("op", self.text("op")?)? != "write" {
            return Err(format!("{}: operation must be 'write'", self.name));
        }
        let occurrence = self.number("occurrence")?.unwrap_or(1);
        let persist = self.needed("persist", self.numbers("persist")?)?;
        let made = TornSeq::new(file, occurrence, persist);
        made.map(|seq| Fault::Torn(Torn::Seq(seq))).map_err(|why| self.wrong(&why))
    }

    fn torn_op(&self) -> Result<Fault, String> {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let sizes = |all: Vec<u64>| all.into_iter().map(size).collect::<Vec<usize>>();
        let file = self.needed("file", self.file("file")?)?;
        let occurrence = self.number("occurrence")?.unwrap_or(1);
        let persist = sizes(self.needed("persist", self.numbers("persist")?)?);
        let parts = match (self.number("parts")?, self.numbers("parts_bytes")?) {
            (Some(parts), None) => Parts::Equal(size(parts)),
            (None, Some(bytes)) => Parts::Bytes(sizes(bytes)),
            _ => return Err(format!("{}: define either 'parts' or 'parts_bytes'", self.name)),
        };
        let made = TornOp::new(file, occurrence, parts, persist);
        made.map(|op| Fault::Torn(Torn::Op(op))).map_err(|why| self.wrong(&why))
    }

    fn clear(&self) -> Result<Fault, String> {
        let occurrence = self.number("occurrence")?.unwrap_or(1);
        let timing = self.needed("timing", self.text("timing")?)?;
        let op = self.needed("op", self.text("op")?)?;
        let crash = self.needed("crash", self.flag("crash")?)?;
        let when = When::named(timing).ok_or("timing must be 'before' or 'after'")?;
        let call = Call::named(op).ok_or("operation not available")?;
        let (from, to) = (self.file("from")?, self.file("to")?);
        let made = Clear::new((call, when), from, to, occurrence, crash);
        made.map(Fault::Clear).map_err(|why| self.wrong(&why))
    }

    fn wrong(&self, why: &dyn std::fmt::Display) -> String {
        format!("{}: {why}", self.name)
    }
}

/// `[cache.simple]` or `[cache.manual]`.
fn cache_bytes(cache: &Section<'_>) -> Result<u64, String> {
    let below = |name: &str| match cache.table {
        Some(table) => section(table, name),
        None => Ok(Section { name: name.to_owned(), table: None }),
    };
    if let Some(size) = below("simple")?.text("custom_size")? {
        let wrong = || format!("cache.simple: key 'custom_size': '{size}' is not a size");
        let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim();
        let unit = match &size[size.trim_end_matches(char::is_alphabetic).len()..] {
            unit if unit.eq_ignore_ascii_case("gb") || unit.eq_ignore_ascii_case("g") => 30,
            unit if unit.eq_ignore_ascii_case("mb") || unit.eq_ignore_ascii_case("m") => 20,
            unit if unit.eq_ignore_ascii_case("kb") || unit.eq_ignore_ascii_case("k") => 10,
            _ => return Err(wrong()),
        };
        let number: f64 = digits.parse().map_err(|_| wrong())?;
        let bytes = number * f64::from(1_u32 << unit);
        return if bytes >= 1.0 { Ok(bytes as u64) } else { Err(wrong()) };
    }
    let manual = below("manual")?;
    let (page, pages) = (manual.number("page_size")?, manual.number("no_pages")?);
    let bytes = page.zip(pages).map(|(page, pages)| page.saturating_mul(pages));
    Ok(bytes.unwrap_or(CACHE_BYTES).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("/etc/lazyfs"))
    }

    #[test]
    fn the_page_s_example_is_understood() {
        let config = parse(include_str!("example.toml")).unwrap();
        assert_eq!(config.fifo.as_deref(), Some(Path::new("/tmp/faults.fifo")));
        assert_eq!(config.completed, None);
        assert_eq!(config.cache_bytes, 512 << 20);
        assert_eq!(config.logfile.as_deref(), Some(Path::new("/tmp/lazyfs.log")));
        assert!(!config.evicts && !config.logs_calls);
        assert_eq!((config.injections.len(), &config.complaints[..]), (3, &[][..]));
    }

    #[test]
    fn little_is_needed_and_the_unknown_is_passed_over() {
        let config = parse("[cache]\napply_eviction=true\nnew=1\n[newer]\na=[]").unwrap();
        assert_eq!(config.fifo.as_deref(), Some(Path::new("/etc/lazyfs/faults.fifo")));
        assert!(config.evicts && config.logfile.is_none() && config.injections.is_empty());
        let config = parse("[filesystem]\nlogfile=\"\"\nlog_all_operations=true").unwrap();
        assert!(config.logs_calls && config.logfile.is_none());
        let config =
            parse("[[injection]]\ntype='torn-op'\nfile='f'\nparts=2\npersist=[1]").unwrap();
        assert_eq!((config.injections.len(), &config.complaints[..]), (1, &[][..]));
        let manual = "[cache.manual]\nio_block_size=4096\npage_size=4096\nno_pages=10";
        assert_eq!(parse(manual).unwrap().cache_bytes, 40960);
    }

    #[test]
    fn bad_injections_are_left_out_and_named() {
        let complaint = |text: &str| {
            let config = parse(&format!("[[injection]]\n{text}")).unwrap();
            assert!(config.injections.is_empty(), "{text}");
            config.complaints.join("; ")
        };
        for (text, why) in [
            ("type='x'", "unknown value"),
            ("type='torn-seq'", "'file' is not defined"),
            ("type='torn-seq'\nfile='f'\nop='read'\noccurrence=1\npersist=[1]", "'write'"),
            ("type='torn-seq'\nfile='f'\nop='write'\noccurrence=-1\npersist=[1]", "a number"),
            ("type='torn-op'\nfile='f'\noccurrence=1\npersist=[1]", "either"),
            ("type='torn-op'\nfile='f'\noccurrence=1\npersist=[3]\nparts=2", "persist"),
            ("type='clear'\nfrom='f'\nop='fsync'\noccurrence=1\ncrash=true", "'timing'"),
            (
                "type='clear-cache'\nfrom='f'\nop='rename'\noccurrence=1\ncrash=true\n\
                 timing='after'",
                "two paths",
            ),
        ] {
            let said = complaint(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, why) in [
            ("[faults", "TOML"),
            ("faults=1", "[faults]"),
            ("[faults]\nfifo_path=1", "a string"),
            ("[cache.simple]\ncustom_size=\"much\"", "'much' is not a size"),
            ("[cache.simple]\ncustom_size=\"-1gb\"", "'-1gb' is not a size"),
            ("injection=1", "a list of tables"),
            ("[[injection]]\nop='write'", "key 'type' is missing"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
