//! Emulated drives for real kernels: a controller of NVMe 2.0 over TCP (NVMe/TCP transport 1.0,
//! ZNS 1.1), and the power switch of the drives behind it.
//!
//! A [`Server`] shows its [`Unit`]s as namespaces of one subsystem to any host that runs `nvme
//! connect -t tcp`. Nothing that a host sends can make the server panic, hang or exhaust its
//! memory; only that host gets an error.
//!
//! With the feature `auth`, hosts can be required to authenticate (DH-HMAC-CHAP).

#![forbid(unsafe_code)]

mod admin;
mod answer;
#[cfg(feature = "auth")]
mod auth;
#[cfg(not(feature = "auth"))]
#[path = "no_auth.rs"]
mod auth;
mod command;
mod connection;
pub mod control;
mod controller;
mod discovery;
mod features;
mod identify;
mod input;
mod io;
mod logs;
mod namespace;
mod output;
mod pdu;
mod power;
mod queue;
mod request;
mod server;
mod subsystem;
mod transfer;
mod zns;

#[cfg(feature = "auth")]
pub use auth::{Keys, Secret, SecretError};
pub use namespace::Unit;
pub use power::{After, When};
pub use server::{Options, Server};
pub use subsystem::DISCOVERY_NQN;
