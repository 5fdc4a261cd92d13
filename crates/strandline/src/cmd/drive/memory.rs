//! Persistent memory as a drive of its own kind.

use std::path::Path;

use drive::pm::{Mapped, PmInfo};
use serde::Serialize;

use crate::failure::{Failure, Outcome};

/// What `drive info` says about a memory.
#[derive(Serialize)]
pub(super) struct Memory {
    /// What survives: `memory` needs write-backs and fences, `caches` fences after streaming
    /// stores, `process` survives a killed process and not the power.
    domain: &'static str,
    nodes: Vec<Node>,
}

#[derive(Serialize)]
struct Node {
    node: u32,
    start: u64,
    bytes: u64,
}

impl Memory {
    pub(super) fn of(info: &PmInfo) -> Self {
        let node = |node: &drive::pm::PmNode| Node {
            node: node.node,
            start: node.range.start,
            bytes: node.range.end - node.range.start,
        };
        Self { domain: info.domain.name(), nodes: info.nodes.iter().map(node).collect() }
    }

    /// In one line.
    pub(super) fn tell(&self) -> String {
        let what = match self.domain {
            "memory" => "lines that are written back and fenced survive a power cut",
            "caches" => "what the caches hold survives a power cut",
            _ => "survives a killed process, not a power cut",
        };
        format!("persistent memory: domain {}, {what}; nodes: {}", self.domain, self.nodes.len())
    }
}

/// Makes a file of memory.
pub(super) fn create(path: &Path, bytes: u64) -> Outcome<()> {
    Mapped::create(path, bytes).map_err(|error| Failure::Problem(error.to_string()))
}
