//! The null file system behind `fuse-backend-rs`.

use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::Attr;
use fuse_backend_rs::api::filesystem::{Context, Entry, FileSystem, FsOptions, ZeroCopyReader};
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::transport::{FuseChannel, FuseSession};

use crate::null::{self, FILE_SIZE, ROOT, THREADS, VALID_SECS};

struct Null;

const VALID: Duration = Duration::from_secs(VALID_SECS);

fn attr(ino: u64) -> libc::stat64 {
    let (mode, size) = if ino == ROOT { (libc::S_IFDIR, 0) } else { (libc::S_IFREG, FILE_SIZE) };
    let attr = Attr { ino, size, mode: mode | 0o777, nlink: 1, blksize: 4096, ..Attr::default() };
    attr.into()
}

impl FileSystem for Null {
    type Inode = u64;
    type Handle = u64;

    fn init(&self, _: FsOptions) -> io::Result<FsOptions> {
        Ok(FsOptions::ASYNC_READ
            | FsOptions::BIG_WRITES
            | FsOptions::MAX_PAGES
            | FsOptions::PARALLEL_DIROPS
            | FsOptions::ZERO_MESSAGE_OPENDIR
            | FsOptions::HANDLE_KILLPRIV_V2)
    }

    fn lookup(&self, _: &Context, _: u64, name: &CStr) -> io::Result<Entry> {
        let inode = null::inode_of(name.to_bytes())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        Ok(Entry {
            inode,
            generation: 0,
            attr: attr(inode),
            attr_flags: 0,
            attr_timeout: VALID,
            entry_timeout: VALID,
        })
    }

    fn getattr(
        &self,
        _: &Context,
        inode: u64,
        _: Option<u64>,
    ) -> io::Result<(libc::stat64, Duration)> {
        Ok((attr(inode), VALID))
    }

    fn write(
        &self,
        _: &Context,
        _: u64,
        _: u64,
        data: &mut dyn ZeroCopyReader,
        size: u32,
        _: u64,
        _: Option<u64>,
        _: bool,
        _: u32,
        _: u32,
    ) -> io::Result<usize> {
        let len = size as usize;
        let mut result = Ok(());
        null::keep(len, |pages| result = data.read_exact(pages));
        result.map(|()| len)
    }

    fn fsync(&self, _: &Context, _: u64, _: bool, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Mounts on `point` and serves until it is unmounted.
pub(crate) fn serve(point: &Path) {
    let mut session = FuseSession::new(point, "null", "", false).expect("a session");
    session.mount().expect("a mount");
    let server = Arc::new(Server::new(Null));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (server, channel) = (server.clone(), session.new_channel().expect("a channel"));
            std::thread::spawn(move || answer(&server, channel))
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread that ended well");
    }
}

fn answer(server: &Server<Null>, mut channel: FuseChannel) {
    while let Ok(Some((request, reply))) = channel.get_request() {
        if server.handle_message(request, reply.into(), None, None).is_err() {
            return;
        }
    }
}
