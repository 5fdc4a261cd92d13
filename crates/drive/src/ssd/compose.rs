//! Puts together, block by block, what a cut could have left, which is more than the one order in
//! which the model programs.

use super::power::{DriveState, SavedZone};
use crate::media::write_failure;
use crate::{Block, Lba, Status, ZoneGeometry, ZoneState};

impl DriveState {
    /// Makes `block` durable at `lba`. In a sequential zone that must be the write pointer.
    pub fn put(&mut self, lba: Lba, block: Block) -> Result<(), Status> {
        if lba >= self.identify.blocks {
            return Err(Status::LbaOutOfRange);
        }
        if let Some((geometry, zone)) = self.sequential_zone(lba) {
            let saved = self.zones.get_mut(zone).ok_or(Status::ZoneOffline)?;
            if saved.wp != lba % geometry.size {
                return Err(Status::ZoneInvalidWrite);
            }
            saved.wp += 1;
            let full = saved.wp == geometry.capacity;
            saved.state = if full { ZoneState::Full } else { ZoneState::Closed };
        }
        self.media.write(lba, block).map_err(write_failure)
    }

    /// Empties the sequential zone that starts at `start`.
    pub fn reset_zone(&mut self, start: Lba) -> Result<(), Status> {
        let (geometry, zone) = self.sequential_zone(start).ok_or(Status::InvalidField)?;
        let saved = self.zones.get_mut(zone).ok_or(Status::ZoneOffline)?;
        *saved = SavedZone { state: ZoneState::Empty, wp: 0, sealed: false };
        self.media.discard(start, geometry.size).map_err(write_failure)
    }

    /// Makes the sequential zone that starts at `start` take no more writes.
    pub fn finish_zone(&mut self, start: Lba) -> Result<(), Status> {
        let (_, zone) = self.sequential_zone(start).ok_or(Status::InvalidField)?;
        let saved = self.zones.get_mut(zone).ok_or(Status::ZoneOffline)?;
        (saved.state, saved.sealed) = (ZoneState::Full, true);
        Ok(())
    }

    /// Drops the contents of these blocks outside sequential zones.
    pub fn discard(&mut self, lba: Lba, blocks: u64) -> Result<(), Status> {
        self.media.discard(lba, blocks).map_err(write_failure)
    }

    /// Whether the drive has the resources for all zones that are active.
    pub fn fits(&self) -> bool {
        let active = self.zones.iter().filter(|zone| zone.state == ZoneState::Closed).count();
        let most = self.identify.zones.and_then(|zones| zones.max_active);
        most.is_none_or(|most| active as u64 <= u64::from(most))
    }

    /// The zone of `lba`, if it takes only sequential writes.
    fn sequential_zone(&self, lba: Lba) -> Option<(ZoneGeometry, usize)> {
        let geometry = self.identify.zones?;
        let zone = lba / geometry.size;
        (zone >= u64::from(geometry.conventional)).then_some((geometry, zone as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Drive, Spec, Ssd, Timing};

    /// What is put together equals what a drive holds that was written in the same way.
    #[test]
    fn composed_as_written() {
        let spec = Spec::named("zn540").unwrap().zone_size(64, 32).zones(4, 1);
        let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
        let mut composed = drive.survivors(0);
        let block = |n: u8| Block::from_prefix(&[n]);
        for (n, lba) in [3, 64, 65, 128].into_iter().enumerate() {
            let data = [block(n as u8)].into_iter().collect();
            drive.submit(0, 0, Command::Write { lba, data, fua: true });
            assert!(drive.wait(0).is_some_and(|done| done.result.is_ok()));
            composed.put(lba, block(n as u8)).unwrap();
        }
        let written = drive.survivors(0);
        assert!(written.write_pointers().eq(composed.write_pointers()));
        for lba in 0..256 {
            assert_eq!(written.media().read(lba).unwrap(), composed.media().read(lba).unwrap());
        }
        assert_eq!(composed.put(70, block(9)), Err(Status::ZoneInvalidWrite));
        composed.reset_zone(64).unwrap();
        assert_eq!(composed.write_pointers().nth(1), Some(0));
        assert_eq!(composed.media().read(65).unwrap(), Block::zeroed());
    }
}
