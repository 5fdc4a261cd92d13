//! What the tests have done inside the guest.
//!
//! ```text
//! guest-agent manifest DIR                        all that DIR holds, as JSON
//! guest-agent apply DIR FILE                      applies the operations in FILE; prints how many
//!                                                 succeeded
//! guest-agent put IMAGE OFFSET REPORT DEVICE      fills a zoned device
//! guest-agent take DEVICE REPORT IMAGE OFFSET     reads one out; REPORT is made with blkzone
//! guest-agent speed-of-ours DEVICE OPTIONS OPS    write+fsync per second, our engine on a device
//! guest-agent speed-of-theirs FILE OPS            the same on a mounted file system
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use linux::{Directory, Manifest, speed, zoned};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest-agent {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    match arguments {
        ["manifest", dir] => {
            let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
            serde_json::to_writer(&mut out, &Manifest::of_directory(Path::new(dir))?)?;
            out.flush()?;
        }
        ["apply", dir, file] => {
            println!("{}", apply(Path::new(dir), &fs::read_to_string(file)?)?);
        }
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
        _ => return Err("unknown; its source says what there is".into()),
    }
    Ok(())
}

fn apply(dir: &Path, text: &str) -> Result<usize, Box<dyn Error>> {
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut linux = Directory::new(dir);
    let mut succeeded = 0;
    for op in vfs::ops::parse(text)? {
        if !linux.meets_a_device(&op) && linux.apply(&op).is_ok() {
            succeeded += 1;
        }
    }
    Ok(succeeded)
}
