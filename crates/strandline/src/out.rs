//! Standard output and error. Nothing here panics when the other end has gone.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::{Failure, Outcome};

/// Writes `text` as it is.
pub(crate) fn text(text: &str) -> Outcome<()> {
    bytes(text.as_bytes())
}

/// Writes one line.
pub(crate) fn line(text: impl std::fmt::Display) -> Outcome<()> {
    bytes(format!("{text}\n").as_bytes())
}

/// Writes bytes.
pub(crate) fn bytes(bytes: &[u8]) -> Outcome<()> {
    io::stdout().write_all(bytes).map_err(Failure::Output)
}

/// Writes one JSON object on a line of its own.
pub(crate) fn json(value: &impl Serialize) -> Outcome<()> {
    let text = serde_json::to_string(value).map_err(|e| Failure::Problem(e.to_string()))?;
    line(text)
}

/// Writes what is still buffered.
pub(crate) fn flush() -> Outcome<()> {
    io::stdout().flush().map_err(Failure::Output)
}

/// Ignores that the reader has gone. For commands whose exit status is a verdict, which stays the
/// same.
pub(crate) fn heard(told: Outcome<()>) -> Outcome<()> {
    match told {
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        told => told,
    }
}

/// How many columns the terminal has that standard output is; 80 if it is none.
pub(crate) fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0).unwrap_or(80)
}

/// One line on standard error. If that is closed, it is dropped.
pub(crate) fn error(failure: &Failure) {
    complain(&failure.to_string());
}

/// One line on standard error about something that does not end the command.
pub(crate) fn complain(text: &str) {
    let text = plain(text).replace('\n', " ");
    drop(writeln!(io::stderr(), "strandline: {text}"));
}

/// An error in the words of strerror(3), without the numbers that Rust adds.
pub(crate) fn plain(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |told, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|digit| digit.is_ascii_digit()) => told + rest,
        _ => told + " (os error " + part,
    })
}

/// A file's name, for standard output: as it is to a program; to a terminal with what does not
/// print as `ls -b` escapes it.
pub(crate) fn name(bytes: &[u8]) -> Cow<'_, [u8]> {
    if io::stdout().is_terminal() { escaped(bytes).into_bytes().into() } else { bytes.into() }
}

/// Control characters, and bytes that are not UTF-8, as a backslash and three octal digits.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let octal = |byte: u8, text: &mut String| *text += &format!("\\{byte:03o}");
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text += "\\\\",
                char if char.is_control() => {
                    let mut buffer = [0; 4];
                    let bytes = char.encode_utf8(&mut buffer).bytes();
                    bytes.for_each(|byte| octal(byte, &mut text));
                }
                char => text.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| octal(*byte, &mut text));
    }
    text
}

/// The bytes of a name in hexadecimal, if it is not UTF-8, which JSON needs.
pub(crate) fn hex_unless_text(name: &[u8]) -> Option<String> {
    let hex = || name.iter().map(|byte| format!("{byte:02x}")).collect();
    std::str::from_utf8(name).is_err().then(hex)
}

/// A byte string as text, for people.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bytes_and_shown_as_text() {
        assert_eq!(escaped("häß.txt".as_bytes()), "häß.txt");
        assert_eq!(escaped(b"a\xffb\nc\\\x1b[31m"), "a\\377b\\012c\\\\\\033[31m");
        assert_eq!(escaped(b"\xc3"), "\\303");
        assert_eq!(hex_unless_text("ä".as_bytes()), None);
        assert_eq!(hex_unless_text(b"a\xff").as_deref(), Some("61ff"));
    }

    #[test]
    fn errors_are_told_in_words() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(plain(&error), "No such file or directory");
        assert_eq!(plain(format!("a: {error}; b: {error}!").as_str()), {
            "a: No such file or directory; b: No such file or directory!"
        });
        assert_eq!(plain("x (os error y) (os error 5"), "x (os error y) (os error 5");
    }
}
