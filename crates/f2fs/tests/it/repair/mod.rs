//! Repair: whatever was wrong, afterwards the check finds nothing, `fsck.f2fs` finds nothing, a
//! second repair does nothing, and files the damage did not touch are what they were.

mod kit;

mod bits;
mod cuts;
mod fields;
mod garbage;
mod quota;
mod rescue;
mod undo;
mod whole;
