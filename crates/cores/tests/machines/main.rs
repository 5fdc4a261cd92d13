//! What holds on both machines, and what on the virtual one only.

mod both_machines;
mod lock_profile;
mod virtual_machine;
