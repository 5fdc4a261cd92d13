//! What runs on the machine whose kernel is judged: one program, for campaigns and for the scripts
//! of tests.
//!
//! ```text
//! serve ADDRESS:PORT                       does what the campaign at that address asks
//! manifest DIR                             all that DIR holds, as JSON
//! apply DIR FILE                           applies the operations in FILE; prints how many
//!                                          succeeded
//! put IMAGE OFFSET REPORT DEVICE           fills a zoned device
//! take DEVICE REPORT IMAGE OFFSET          reads one out; REPORT is made with blkzone
//! speed-of-ours DEVICE OPTIONS OPS         write+fsync per second, our engine on a device
//! speed-of-theirs FILE OPS                 the same on a mounted file system
//! zones DEVICE                             what `blkzone report` would print
//! mkfs DEVICE...                           an empty volume of ours
//! load OPTIONS SEED FROM DEVICE...         a load for it, to be killed; see its source
//! verify OPTIONS SEED STEPS DEVICE...      what it was promised is there
//! ```

mod load;
mod looks;
mod serve;
mod speed;
mod zoned;

use std::error::Error;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;

pub use serve::serve;
#[cfg(test)]
pub(crate) use serve::serve_at;

use crate::{Directory, Manifest};

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Does what these words say.
pub fn run(words: &[&str]) -> Done {
    match *words {
        ["serve", address] => serve(address)?,
        ["manifest", dir] => {
            let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
            serde_json::to_writer(&mut out, &Manifest::of_directory(Path::new(dir))?)?;
            out.flush()?;
        }
        ["apply", dir, file] => println!("{}", apply(Path::new(dir), &fs::read_to_string(file)?)?),
        ["put", image, offset, report, device] => {
            let report = fs::read_to_string(report)?;
            zoned::put(Path::new(image), offset.parse()?, &report, Path::new(device))?;
        }
        ["take", device, report, image, offset] => {
            let report = fs::read_to_string(report)?;
            zoned::take(Path::new(device), &report, Path::new(image), offset.parse()?)?;
        }
        ["speed-of-ours", device, options, ops] => {
            println!("{:.1}", speed::ours(Path::new(device), options, ops.parse()?)?);
        }
        ["speed-of-theirs", file, ops] => {
            println!("{:.1}", speed::theirs(Path::new(file), ops.parse()?)?);
        }
        ["zones", device] => load::zones(device)?,
        ["mkfs", ref devices @ ..] => load::mkfs(devices)?,
        ["load", options, seed, from, ref devices @ ..] => {
            load::load(options, seed.parse()?, from.parse()?, devices)?;
        }
        ["verify", options, seed, steps, ref devices @ ..] => {
            load::verify(options, seed.parse()?, steps.parse()?, devices)?;
        }
        _ => return Err("unknown; its source says what there is".into()),
    }
    Ok(())
}

fn apply(dir: &Path, text: &str) -> Done<usize> {
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut tree = Directory::new(dir);
    let mut succeeded = 0;
    for op in vfs::ops::parse(text)? {
        if !tree.meets_a_device(&op) && tree.apply(&op).is_ok() {
            succeeded += 1;
        }
    }
    Ok(succeeded)
}
