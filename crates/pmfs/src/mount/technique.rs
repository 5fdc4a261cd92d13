//! What the designs promise.

use vfs::kind::{Promise, Technique};

/// Data in place, metadata by a redo record (JIIBC 2023). An fsync has nothing to do: what a call
/// did is durable when it returns. Overwritten bytes are old or new by words of 8.
pub const INPLACE: &Technique = &Technique {
    name: "inplace",
    title: "in-place data, metadata journal",
    options: "",
    promise: |_| Promise { durable: true, intact: true, atomic: false, whole: false },
    runs_on: |drive| drive.pm.is_some(),
};
