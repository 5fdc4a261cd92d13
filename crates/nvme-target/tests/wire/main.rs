//! What a host sees that keeps to the specification, or breaks it on purpose. What no host should
//! send is in `robustness`, whose process is its own: it measures the memory.

#[cfg(feature = "auth")]
mod authentication;
mod commands;
mod durability;
#[path = "../host/mod.rs"]
mod host;
mod queues;
