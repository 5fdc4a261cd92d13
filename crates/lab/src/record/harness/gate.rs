//! A drive whose power cannot be cut from here, such as a real one. From a loss on, until what is
//! left is mounted, every command to it fails. What it was sent before stays.

use std::sync::Arc;

use drive::{Drive, Fault, FaultOn, Lba, Status};

/// See the module's header.
#[derive(Clone)]
pub struct Gate(Arc<Fault<Arc<dyn Drive>>>);

impl Gate {
    /// In front of `below`.
    pub fn new(below: Arc<dyn Drive>) -> Self {
        Self(Arc::new(Fault::new(below)))
    }

    /// The drive behind it, for the volume.
    pub fn drive(&self) -> Arc<dyn Drive> {
        self.0.clone()
    }

    pub(super) fn close(&self) {
        for on in [FaultOn::Read, FaultOn::WriteOrFlush, FaultOn::Other] {
            self.0.fail_range(on, 0..Lba::MAX, Status::NotReady);
        }
    }

    /// Lets commands through again. The volume before the loss is not used any more.
    pub(super) fn open(&self) {
        // Answers that it did not wait for would be taken for answers to the next one.
        for queue in 0..self.0.identify().queues {
            while self.0.wait(queue).is_some() {}
        }
        self.0.clear();
    }
}
