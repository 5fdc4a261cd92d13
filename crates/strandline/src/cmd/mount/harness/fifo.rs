//! The FIFOs, where commands come from and where it is said that they are done; and lines of
//! commands, from there or from a socket.

use std::fs::File;
use std::io::{self, BufReader, Bytes, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The longest command.
const LINE_MAX: usize = 64 << 10;

/// Opens a FIFO, which is made if it is not there. It has a reader and a writer from now on, so
/// that opening it never blocks: the other end may come and go.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let anybody = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    match rustix::fs::mknodat(CWD, path, FileType::Fifo, anybody, 0) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    // It must not wait for anything else that may have the name.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.file_type().is_fifo() {
        true => Ok(file),
        false => Err(io::Error::other("it is there already, and no FIFO")),
    }
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Vec<u8>),
    /// Longer than any command.
    TooLong,
}

/// The lines of some input. They end when it does, or cannot be read.
pub(super) struct Lines<R> {
    input: Bytes<BufReader<R>>,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::new(input).bytes() }
    }
}

impl Lines<File> {
    /// Of a FIFO that [`open`] has opened.
    pub(super) fn of(file: File) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&file, false)?;
        Ok(Self::new(file))
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let (mut line, mut too_long) = (Vec::new(), false);
        loop {
            match self.input.next() {
                Some(Ok(b'\n')) => break,
                Some(Ok(_)) if line.len() == LINE_MAX => too_long = true,
                Some(Ok(byte)) => line.push(byte),
                // The last line may lack its end.
                None if !line.is_empty() => break,
                None | Some(Err(_)) => return None,
            }
        }
        Some(if too_long { Line::TooLong } else { Line::Whole(line) })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_come_whole_whatever_the_writes_and_long_ones_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        let fifo = open(&path).unwrap();
        // There already.
        let mut writer = open(&path).unwrap();
        let mut lines = Lines::of(fifo).unwrap();
        writer.write_all(b"one\ntwo\nthr").unwrap();
        let whole = |text: &str| Some(Line::Whole(text.as_bytes().to_vec()));
        assert_eq!((lines.next(), lines.next()), (whole("one"), whole("two")));
        writer.write_all(b"ee\n\n").unwrap();
        assert_eq!((lines.next(), lines.next()), (whole("three"), whole("")));
        let long = cores::spawn("writer", None, move || {
            let mut writer = File::options().write(true).open(path).unwrap();
            writer.write_all(&vec![b'x'; LINE_MAX + 5000]).unwrap();
            writer.write_all(b"\nfour\n").unwrap();
        });
        assert_eq!((lines.next(), lines.next()), (Some(Line::TooLong), whole("four")));
        long.join();
    }

    #[test]
    fn input_that_ends_may_end_within_a_line() {
        let lines = |input: &'static [u8]| Lines::new(input).collect::<Vec<_>>();
        let one = || Line::Whole(b"one".to_vec());
        assert_eq!(
            (lines(b""), lines(b"one"), lines(b"one\n")),
            (vec![], vec![one()], vec![one()])
        );
    }

    #[test]
    fn something_else_of_that_name_is_no_fifo() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "text").unwrap();
        assert!(open(&path).is_err() && open(dir.path()).is_err());
        assert!(open(&dir.path().join("no/dir")).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
    }
}
