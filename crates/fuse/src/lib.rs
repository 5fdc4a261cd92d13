//! Serves any [`vfs::kind::Volume`] to the Linux kernel through FUSE.
//!
//! [`Session::start`] mounts, its threads answer the kernel's requests, and [`Session::wait`] waits
//! for the end. `abi` and `wire` implement the protocol; ARCHITECTURE.md says why no library does.

#![deny(unsafe_code)]

mod abi;
mod atime;
mod busy_poll;
mod mount;
mod nodes;
mod options;
#[expect(unsafe_code, reason = "the kernel reads and writes what a ring's entries point to")]
mod ring;
mod server;
mod session;
mod wire;

pub use atime::Atime;
pub use mount::{How, MountError, remount, unmount};
pub use options::MountOptions;
pub use server::{Control, Reopened};
pub use session::{Ended, KernelCache, Session};
