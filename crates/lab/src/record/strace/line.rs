//! One call of a trace, taken apart: `123 openat(AT_FDCWD, "a", O_RDWR) = 3 <0.000012>`.
//!
//! Understands what strace(1) puts around a call with -f, -t, -r, -T and -y, and joins calls that
//! it printed in two parts.

use std::collections::BTreeMap;

/// A call that returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) args: Vec<String>,
    /// What it returned; -1 has an error.
    pub(super) result: i64,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Call(Call),
    /// A process ended.
    Exit(u32),
    /// A signal, the first half of a call, or one that did not return.
    Nothing,
    /// Not a line of a trace.
    Strange,
}

/// Puts interrupted calls together.
#[derive(Default)]
pub(super) struct Lines {
    /// By process: what was printed before `<unfinished ...>`.
    begun: BTreeMap<u32, String>,
}

impl Lines {
    pub(super) fn take(&mut self, line: &str) -> Said {
        let (pid, line) = preamble(line.trim());
        if line.starts_with("+++") {
            return Said::Exit(pid);
        }
        if line.is_empty() || line.starts_with("---") || line.starts_with("strace:") {
            return Said::Nothing;
        }
        if let Some(begun) = line.strip_suffix("<unfinished ...>") {
            self.begun.insert(pid, begun.trim_end().to_owned());
            return Said::Nothing;
        }
        let whole = match line.strip_prefix("<... ").and_then(|rest| rest.split_once("resumed>")) {
            Some((_, rest)) => match self.begun.remove(&pid) {
                Some(begun) => begun + rest,
                None => return Said::Strange,
            },
            None => line.to_owned(),
        };
        call(pid, &whole).unwrap_or(Said::Strange)
    }
}

/// The process and the rest of the line: times are left out.
fn preamble(line: &str) -> (u32, &str) {
    let (mut pid, mut line) = (0, line);
    if let Some((number, rest)) =
        line.strip_prefix("[pid").and_then(|rest| rest.trim_start().split_once(']'))
    {
        (pid, line) = (number.trim().parse().unwrap_or(0), rest.trim_start());
    }
    while let Some((word, rest)) = line.split_once(' ') {
        let is_time = word.chars().all(|c| c.is_ascii_digit() || ":.".contains(c));
        if !is_time || word.is_empty() {
            break;
        }
        if let Ok(number) = word.parse() {
            pid = number;
        }
        line = rest.trim_start();
    }
    (pid, line)
}

fn call(pid: u32, text: &str) -> Option<Said> {
    let (name, rest) = text.split_once('(')?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    let (args, rest) = arguments(rest)?;
    let result = rest.trim_start().strip_prefix('=')?.trim_start();
    if result.starts_with('?') {
        return Some(Said::Nothing);
    }
    let end = result.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(result.len());
    let number = &result[..end];
    let result = match number.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
        None => number.parse().ok()?,
    };
    Some(Said::Call(Call { pid, name: name.into(), args, result }))
}

/// The arguments up to the bracket that closes them, and what follows it.
fn arguments(text: &str) -> Option<(Vec<String>, &str)> {
    let (mut args, mut depth, mut from) = (Vec::new(), 0_usize, 0);
    let mut chars = text.char_indices();
    let mut before = ' ';
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => loop {
                match chars.next()?.1 {
                    '\\' => drop(chars.next()?),
                    '"' => break,
                    _ => {}
                }
            },
            // What -y says of a descriptor; its own brackets are escaped.
            '<' if before.is_ascii_digit() || before == 'D' => {
                if text[at + 1..].starts_with('<') {
                    chars.next();
                } else {
                    while chars.next()?.1 != '>' {}
                }
            }
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => {
                args.push(text[from..at].trim().to_owned());
                return Some((args, &text[at + 1..]));
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                args.push(text[from..at].trim().to_owned());
                from = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    None
}

impl Call {
    /// Argument `n`, empty if there is none.
    pub(super) fn arg(&self, n: usize) -> &str {
        self.args.get(n).map_or("", String::as_str)
    }

    /// As a number, -1 if it is none.
    pub(super) fn number(&self, n: usize) -> i64 {
        let arg = self.arg(n);
        let end = arg.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(arg.len());
        arg[..end].parse().unwrap_or(-1)
    }

    /// As a mode in octal.
    pub(super) fn mode(&self, n: usize) -> u16 {
        let digits: String = self.arg(n).chars().rev().take_while(char::is_ascii_digit).collect();
        let digits: String = digits.chars().rev().collect();
        u16::from_str_radix(&digits, 8).unwrap_or(0o644) & 0o7777
    }

    /// As a string; `None` if it is none, was cut short, or is not UTF-8.
    pub(super) fn string(&self, n: usize) -> Option<String> {
        unquote(self.arg(n))
    }

    /// The value of `field` in a structure, wherever it is shown.
    pub(super) fn field(&self, field: &str) -> Option<&str> {
        self.args.iter().find_map(|arg| {
            let rest = arg.split_once(field)?.1.strip_prefix('=')?;
            Some(rest.split([',', '}']).next().unwrap_or(rest))
        })
    }
}

/// The text in quotes, without its escapes.
fn unquote(text: &str) -> Option<String> {
    let text = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::new();
    let mut left = text.bytes().peekable();
    while let Some(byte) = left.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match left.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'x' => {
                let mut digit = || char::from(left.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            digit @ b'0'..=b'7' => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(next) = left.next_if(|b| (b'0'..=b'7').contains(b)) else { break };
                    value = value * 8 + u32::from(next - b'0');
                }
                u8::try_from(value).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Call {
        match Lines::default().take(line) {
            Said::Call(call) => call,
            said => panic!("{line}: {said:?}"),
        }
    }

    #[test]
    fn what_strace_puts_around_a_call_is_left_out() {
        for line in [
            r#"openat(AT_FDCWD, "a, (b\"", O_RDWR|O_CREAT, 0644) = 3"#,
            r#"[pid    17] openat(AT_FDCWD, "a, (b\"", O_RDWR|O_CREAT, 0644) = 3 <0.000021>"#,
            r#"17 12:00:01.5 openat(AT_FDCWD</x,y>, "a, (b\"", O_RDWR|O_CREAT, 0644) = 3</x/a>"#,
            r#"17    1690000000.123456 openat(AT_FDCWD, "a, (b\42", O_RDWR|O_CREAT, 0644) = 3"#,
        ] {
            let call = one(line);
            assert_eq!((call.name.as_str(), call.result, call.args.len()), ("openat", 3, 4));
            assert_eq!(call.string(1).as_deref(), Some("a, (b\""));
            assert_eq!(call.mode(3), 0o644);
        }
        assert_eq!(one("[pid    17] fsync(4)    = 0").pid, 17);
        assert_eq!(one("fsync(4) = -1 EIO (Input/output error)").result, -1);
        assert_eq!(
            one(r#"fstat(3, {st_mode=S_IFREG|0644, st_size=81, ...}) = 0"#).field("st_size"),
            Some("81")
        );
    }

    #[test]
    fn halves_of_a_call_are_put_together() {
        let mut lines = Lines::default();
        assert_eq!(lines.take("7 pwrite64(3, \"ab\"..., 512, <unfinished ...>"), Said::Nothing);
        assert_eq!(lines.take("8 fsync(4) = ?"), Said::Nothing);
        let said = lines.take("7 <... pwrite64 resumed>1024) = 512");
        let Said::Call(call) = said else { panic!("{said:?}") };
        assert_eq!((call.number(2), call.number(3), call.result), (512, 1024, 512));
        assert_eq!(lines.take("7 <... read resumed>) = 1"), Said::Strange);
        assert_eq!(lines.take("7 +++ exited with 0 +++"), Said::Exit(7));
    }

    #[test]
    fn whatever_the_line_it_does_not_panic() {
        for line in ["", "(", "a(", "a(\"", "a() =", "a(3<", "a(]) = 1", "é(é) = é", "1 2 3 "] {
            drop(Lines::default().take(line));
        }
    }
}
