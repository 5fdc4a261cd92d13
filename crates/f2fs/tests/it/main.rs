//! The integration tests of this crate, in one binary: each of its own would be linked alone.
//!
//! Beside it is `fuzz_smoke`, which replaces the process's panic hook.

#[cfg(feature = "foreign")]
mod android;
mod atomic_write;
mod attributes;
mod attributes_page;
mod bad_input;
mod by_age;
mod caches;
mod check;
mod check_corruption;
mod crash;
mod data_sums;
mod defrag;
mod devices;
mod direct;
mod discard;
mod discards;
mod failed_reads;
mod failed_writes;
mod fsync_beside;
mod full_recovery;
mod fuzz_body;
mod gc;
mod harness;
mod ioctl;
mod ioctls;
mod judge;
mod judges;
mod limits;
mod linux_ways;
mod maintain;
mod mkfs;
mod model;
mod nearly_full;
mod newer_attributes;
mod onlookers;
mod quota;
mod recovery;
mod regressions;
mod repair;
mod resize;
mod roll_forward_room;
mod root_reserve;
mod small_and_full;
mod streams;
mod threads;
mod torn;
mod tunables;
mod unreadable;
mod versions;
mod writeback;
mod zones;
