//! Copies what is in a file, with its holes.

use vfs::{Attr, Result, Seek};

use super::{Copy, Sink, Source, Sparse, Told};

/// Bytes per read and write.
pub(super) const CHUNK: usize = 1 << 20;

/// What `--sparse=always` looks at for zeroes.
const HOLE: usize = 4096;

/// Why a file's contents end early.
enum End {
    Read(vfs::Error),
    Write(vfs::Error),
    Interrupted,
}

impl<S: Source, T: Sink> Copy<'_, S, T> {
    pub(super) fn contents(
        &mut self,
        source: &S::Node,
        attr: &Attr,
        node: &T::Node,
        path: &[u8],
    ) -> Result<(), Told> {
        let (from, to) = (self.from.show(source), self.to.show(path));
        let opened = self.from.open(source);
        let input =
            opened.map_err(|e| self.fail(format!("cannot open '{from}' for reading"), &e))?;
        let opened = self.to.open(node);
        let output =
            opened.map_err(|e| self.fail(format!("cannot open '{to}' for writing"), &e))?;
        let mut chunk = std::mem::take(&mut self.chunk);
        let copied = self.extents(&input, &output, attr.size, &mut chunk);
        self.chunk = chunk;
        copied.map_err(|end| match end {
            End::Read(e) => self.fail(format!("error reading '{from}'"), &e),
            End::Write(e) => self.fail(format!("error writing '{to}'"), &e),
            End::Interrupted => Told,
        })
    }

    /// Copies the parts that hold data, as `--sparse` asks.
    fn extents(
        &mut self,
        input: &S::File,
        output: &T::File,
        size: u64,
        chunk: &mut [u8],
    ) -> Result<(), End> {
        if size == 0 {
            // Files of proc(5) claim to be empty and are not.
            return self.range(input, output, 0..u64::MAX, chunk).map(drop);
        }
        let mut offset = 0;
        let mut written = 0;
        while offset < size {
            let mut end = size;
            if self.options.sparse != Sparse::Never {
                let data = self.from.seek(input, offset, Seek::Data).map_err(End::Read)?;
                let Some(data) = data.filter(|data| *data < size) else { break };
                offset = data;
                let hole = self.from.seek(input, offset, Seek::Hole).map_err(End::Read)?;
                end = hole.unwrap_or(size).min(size);
            }
            written = self.range(input, output, offset..end, chunk)?.max(written);
            offset = end.max(offset + 1);
        }
        self.counts.bytes += size;
        if written < size {
            self.to.set_size(output, size).map_err(End::Write)?;
        }
        Ok(())
    }

    /// Copies one range; returns where the last written byte ends.
    fn range(
        &self,
        input: &S::File,
        output: &T::File,
        range: std::ops::Range<u64>,
        chunk: &mut [u8],
    ) -> Result<u64, End> {
        let mut written = 0;
        let mut offset = range.start;
        while offset < range.end {
            let want = usize::try_from(range.end - offset).unwrap_or(usize::MAX).min(chunk.len());
            let got = self.from.read(input, offset, &mut chunk[..want]).map_err(End::Read)?;
            if got == 0 {
                break;
            }
            if self.options.interrupt.came() {
                return Err(End::Interrupted);
            }
            let pieces = if self.options.sparse == Sparse::Always { HOLE } else { got };
            for (piece, at) in chunk[..got].chunks(pieces).zip((offset..).step_by(pieces)) {
                if pieces == got || piece.iter().any(|byte| *byte != 0) {
                    self.to.write(output, at, piece).map_err(End::Write)?;
                    written = at + piece.len() as u64;
                }
            }
            offset += got as u64;
        }
        Ok(written)
    }
}
