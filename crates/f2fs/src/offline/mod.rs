//! Operations on an unmounted volume: making, resizing, labelling and showing it.

pub mod dump;
pub mod label;
pub mod mkfs;
pub mod resize;
pub(crate) mod super_write;
