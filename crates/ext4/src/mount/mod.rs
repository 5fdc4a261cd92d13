//! Mounting, a mounted volume, and ext4 as the layers above know it.

pub(crate) mod apply;
mod calls;
pub(crate) mod draft;
mod dump;
mod dump_fast;
pub(crate) mod engine;
mod fs;
pub(crate) mod inject;
mod ioctl;
pub(crate) mod journal;
mod kind;
mod linux_options;
mod load;
mod maintain;
pub(crate) mod options;
mod orphans;
mod status;
pub(crate) mod want;

pub use fs::Ext4;
pub use inject::Inject;
pub use journal::Replay;
pub use kind::Format;
pub use maintain::Maintenance;
pub use options::{DataMode, MountOptions, OnError};
