//! Mounting: options, and ext4 as the layers above know it.

mod dump;
mod kind;
mod options;

pub use kind::Format;
pub use options::MountOptions;
