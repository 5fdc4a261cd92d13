//! The subcommands.

pub(crate) mod bench;
mod campaign;
pub(crate) mod cat;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod crash;
pub(crate) mod defrag;
pub(crate) mod drive;
pub(crate) mod dump;
mod explore;
pub(crate) mod fsck;
mod kernel_crash;
pub(crate) mod lab;
pub(crate) mod label;
pub(crate) mod ls;
pub(crate) mod man;
mod merge;
pub(crate) mod mkfs;
pub(crate) mod mount;
mod record;
pub(crate) mod resize;
mod schedules;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod tree;
pub(crate) mod tune;
pub(crate) mod umount;
