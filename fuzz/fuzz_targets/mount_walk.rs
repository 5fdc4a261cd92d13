//! Mounts, walks, changes and checks damaged F2FS volumes; `crates/f2fs/tests/fuzz_smoke.rs` runs
//! the same body on seeded tapes.

#![no_main]

#[path = "../../crates/f2fs/tests/it/fuzz_body/mod.rs"]
mod fuzz_body;

libfuzzer_sys::fuzz_target!(
    init: {
        // Making the volumes is not the first input's time, of which -timeout has an opinion.
        fuzz_body::bases();
    },
    |data: &[u8]| {
        fuzz_body::run(data);
    }
);
