//! Block and node-number allocation. The six logs (`curseg`) take blocks from free segments
//! (`segments`, on the drive `sit_table`) as far as there is room (`space`) and zones allow it;
//! `credit` is blocks reserved for operations under the shared lock. Cleaning (`gc`) frees
//! segments, which `discard` discards or resets. `nat` says where each node is.

mod aged;
pub(crate) mod credit;
pub(crate) mod curseg;
pub(crate) mod discard;
pub(crate) mod gc;
pub(crate) mod nat;
pub(crate) mod segments;
pub(crate) mod sit_table;
pub(crate) mod space;
pub(crate) mod zones;
