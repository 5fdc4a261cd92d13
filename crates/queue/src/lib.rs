//! Multi-queue block layer: per-core submission, tags, write order per sequential zone.
#![forbid(unsafe_code)]
