//! What holds on both machines, and what on the virtual one only.

mod both_machines;
mod virtual_machine;
