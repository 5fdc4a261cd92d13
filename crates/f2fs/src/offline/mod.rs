//! Operations on an unmounted volume: making, resizing, labelling and showing it.

pub mod dump;
pub mod label;
pub mod mkfs;
pub mod resize;
mod super_write;
