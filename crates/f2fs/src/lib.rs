//! F2FS in user space.
