//! Line width, the sizes of files and functions as ratchets, and how many entries the top folder of
//! the largest crate has.
//!
//! Whatever is larger than the limit is in `xtask/ratchet.toml` with its size. It may shrink, and
//! the entry must then follow; it may not grow, and nothing may be added.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Finding, Source};

/// Where the exceptions are, from the root.
pub(super) const RATCHET: &str = "xtask/ratchet.toml";

const WIDTH_MAX: usize = 100;
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const TOP_ENTRIES_MAX: usize = 12;

/// What is larger than its limit, in lines: files by path, functions by `path::name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ratchet {
    files: BTreeMap<String, usize>,
    functions: BTreeMap<String, usize>,
}

pub(super) fn check_width(source: &Source, findings: &mut Vec<Finding>) {
    for (number, line) in source.lines.iter().enumerate() {
        let width = line.chars().count();
        if width > WIDTH_MAX {
            let what = format!("{width} columns, more than {WIDTH_MAX}");
            findings.push(Finding::new(&source.path, number + 1, what));
        }
    }
}

/// Checks how many entries the top folder of the largest crate has.
pub(super) fn check_top(sources: &[Source], findings: &mut Vec<Finding>) {
    let mut crates: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for source in sources {
        let Some((name, rest)) = source.path.split_once("/src/") else { continue };
        let (lines, entries) = crates.entry(name).or_default();
        *lines += source.lines.len();
        entries.extend(rest.split('/').next());
    }
    let largest = crates.into_iter().max_by_key(|(_, (lines, _))| *lines);
    let Some((name, (_, entries))) = largest else { return };
    if entries.len() > TOP_ENTRIES_MAX {
        let what = format!("{} entries, more than {TOP_ENTRIES_MAX}", entries.len());
        findings.push(Finding::new(&format!("{name}/src"), 0, what));
    }
}

impl Ratchet {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error| format!("{RATCHET}: {error}"))?;
        let section = |name: &str| -> Result<BTreeMap<String, usize>, String> {
            let entries = table.get(name).and_then(|t| t.as_table()).into_iter().flatten();
            entries
                .map(|(key, value)| {
                    let lines = value.as_integer().and_then(|n| usize::try_from(n).ok());
                    let lines = lines.ok_or_else(|| format!("{RATCHET}: `{key}` is no size"))?;
                    Ok((key.clone(), lines))
                })
                .collect()
        };
        Ok(Self { files: section("files")?, functions: section("functions")? })
    }

    /// What is too large now.
    pub(super) fn measure(sources: &[Source]) -> Self {
        let mut found = Self::default();
        for source in sources {
            if source.lines.len() > FILE_LINES_MAX {
                found.files.insert(source.path.clone(), source.lines.len());
            }
            for (name, lines) in functions(&source.code.join("\n")) {
                if lines > FUNCTION_LINES_MAX {
                    let size =
                        found.functions.entry(format!("{}::{name}", source.path)).or_default();
                    *size = lines.max(*size);
                }
            }
        }
        found
    }

    /// The entries of `self` that still apply, with today's sizes if those are smaller.
    pub(super) fn lowered_to(&self, actual: &Self) -> Self {
        let lower = |old: &BTreeMap<String, usize>, new: &BTreeMap<String, usize>| {
            let kept = old.iter().filter_map(|(k, &o)| Some((k.clone(), o.min(*new.get(k)?))));
            kept.collect()
        };
        Self {
            files: lower(&self.files, &actual.files),
            functions: lower(&self.functions, &actual.functions),
        }
    }

    /// Compares the present sizes (`self`) with those allowed.
    pub(super) fn compare(&self, allowed: &Self, findings: &mut Vec<Finding>) {
        compare_sizes(&self.files, &allowed.files, FILE_LINES_MAX, findings);
        compare_sizes(&self.functions, &allowed.functions, FUNCTION_LINES_MAX, findings);
    }
}

impl fmt::Display for Ratchet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Files of more than {FILE_LINES_MAX} lines and functions of more than")?;
        writeln!(
            f,
            "# {FUNCTION_LINES_MAX}. Sizes here may only shrink: `cargo xtask tidy --bless`."
        )?;
        for (name, sizes) in [("files", &self.files), ("functions", &self.functions)] {
            writeln!(f, "\n[{name}]")?;
            for (key, lines) in sizes {
                writeln!(f, "\"{key}\" = {lines}")?;
            }
        }
        Ok(())
    }
}

fn compare_sizes(
    actual: &BTreeMap<String, usize>,
    allowed: &BTreeMap<String, usize>,
    max: usize,
    findings: &mut Vec<Finding>,
) {
    for (key, &lines) in actual {
        let what = match allowed.get(key) {
            None => format!("{lines} lines, more than {max}: split it"),
            Some(&old) if lines > old => format!("grew from {old} to {lines} lines: split it"),
            Some(&old) if lines < old => {
                format!("shrank from {old} to {lines} lines: run `cargo xtask tidy --bless`")
            }
            Some(_) => continue,
        };
        findings.push(Finding::new(key, 0, what));
    }
    for key in allowed.keys().filter(|key| !actual.contains_key(*key)) {
        let what = format!("`{key}` is no longer too large: run `cargo xtask tidy --bless`");
        findings.push(Finding::new(RATCHET, 0, what));
    }
}

/// Names of the functions that have a body, and their lines from `fn` to the closing brace.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        if code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[start + 3..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if let Some(body) = body_end(rest).filter(|_| !name.is_empty()) {
            found.push((name, rest[..body].matches('\n').count() + 1));
        }
    }
    found
}

/// Where the body of a function ends, after its name; `None` if a semicolon comes first. A
/// semicolon within brackets (`[u8; 4]`) or parentheses does not count.
fn body_end(code: &str) -> Option<usize> {
    let (mut brackets, mut braces) = (0_i32, 0_i32);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if brackets == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    fn long_function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    x();\n".repeat(lines - 2))
    }

    #[test]
    fn wide_lines_are_found_by_characters() {
        let text = format!("{}\n{}\n", "ä".repeat(100), "x".repeat(101));
        let mut findings = Vec::new();
        check_width(&Source::new("a.rs", &text), &mut findings);
        assert_eq!(texts(&findings), ["a.rs:2: 101 columns, more than 100"]);
    }

    #[test]
    fn the_largest_crate_has_few_entries_at_the_top() {
        let sources = |entries: usize| -> Vec<Source> {
            let small = (0..20).map(|n| Source::new(&format!("crates/a/src/f{n}.rs"), ""));
            let large = (0..entries).map(|n| format!("crates/b/src/f{n}/a.rs"));
            small.chain(large.map(|path| Source::new(&path, "mod x;\n"))).collect()
        };
        for (entries, said) in [(12, vec![]), (13, vec!["crates/b/src: 13 entries, more than 12"])]
        {
            let mut findings = Vec::new();
            check_top(&sources(entries), &mut findings);
            assert_eq!(texts(&findings), said);
        }
    }

    #[test]
    fn functions_are_measured() {
        let code = "fn a(x: [u8; 4]) -> u8 {\n  {}\n}\ntrait T {\n fn b();\n fn c() {\n }\n}\n\
                    type F = fn (u8);\nfn d<F: Fn()>(f: F)\nwhere\n    F: Copy,\n{\n}\n";
        let found = functions(code);
        let expected = [("a", 3), ("c", 2), ("d", 5)];
        assert_eq!(found, expected.map(|(name, lines)| (name.to_string(), lines)));
    }

    #[test]
    fn the_ratchet_only_shrinks() {
        let source = |lines| Source::new("a.rs", &long_function("f", lines));
        let at = |lines| Ratchet::measure(&[source(lines)]);
        assert_eq!(at(70), Ratchet::default());
        let against = |lines, allowed: &Ratchet| {
            let mut findings = Vec::new();
            at(lines).compare(allowed, &mut findings);
            texts(&findings)
        };
        assert_eq!(against(80, &at(80)), [""; 0]);
        assert_eq!(against(80, &at(70)), ["a.rs::f: 80 lines, more than 70: split it"]);
        assert_eq!(against(81, &at(80)), ["a.rs::f: grew from 80 to 81 lines: split it"]);
        assert!(against(79, &at(80))[0].contains("shrank"));
        assert!(against(70, &at(80))[0].contains("no longer too large"));
        assert_eq!(at(80).lowered_to(&at(75)), at(75));
        assert_eq!(at(80).lowered_to(&at(90)), at(80), "blessing does not allow growth");
        assert_eq!(Ratchet::default().lowered_to(&at(90)), Ratchet::default());
    }

    #[test]
    fn the_ratchet_file_round_trips() {
        let text = format!("{}{}", long_function("f", 90), "\n".repeat(500));
        let ratchet = Ratchet::measure(&[Source::new("crates/a.rs", &text)]);
        assert_eq!((ratchet.files.len(), ratchet.functions.len()), (1, 1));
        assert_eq!(Ratchet::parse(&ratchet.to_string()), Ok(ratchet));
        assert!(Ratchet::parse("[files]\n\"a\" = \"b\"").is_err());
    }
}
