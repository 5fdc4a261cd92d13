//! A volume from mount to unmount. `load` reads it from the drive, `engine` is everything that its
//! lock protects, `fs` is the file system around it, and `calls` its POSIX operations. The other
//! files are its options, ioctls and settings, and its background work.

pub mod attributes;
mod calls;
pub mod devices;
pub(crate) mod engine;
pub(crate) mod faults;
pub(crate) mod fs;
mod inject;
pub(crate) mod io;
mod ioctl;
pub(crate) mod iostat;
mod kind;
pub(crate) mod linux_options;
pub(crate) mod load;
pub(crate) mod maintain;
pub(crate) mod options;
pub(crate) mod quota;
mod range_lock;
pub(crate) mod since;
pub mod versions;

pub use attributes::{GcMode, IpuPolicy, Knobs, Status};
pub use fs::F2fs;
pub use kind::Format;
pub use linux_options::LookupMode;
pub(crate) use load::load;
pub use maintain::Maintenance;
pub use options::{AllocationMode, BackgroundGc, FsyncMode, Inject, MountOptions, OnError};
pub use range_lock::RangeLock;
