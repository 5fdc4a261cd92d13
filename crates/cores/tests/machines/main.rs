//! What holds on both machines, and what on the virtual one only.

mod both_machines;
mod charges;
mod hand_over;
#[cfg(debug_assertions)]
mod lock_order;
mod lock_profile;
mod persistent_memory;
mod virtual_machine;
