//! What is done to a volume that is not mounted: making, resizing, labelling and showing it.

pub mod dump;
pub mod label;
pub mod mkfs;
pub mod resize;
mod super_write;
