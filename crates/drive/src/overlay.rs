//! A drive for experiments: the contents and zones of another one, with every change in memory
//! only.

use std::sync::Arc;

use crate::image::{ImageError, from_report};
use crate::{
    Command, Drive, DriveState, Media, Output, OverMedia, Spec, Ssd, Status, Timing, Zone,
};

/// An emulated drive over `below`, which does not change and may not be used by anybody else
/// meanwhile.
pub fn overlay(below: Arc<dyn Drive>) -> Result<Arc<Ssd>, ImageError> {
    let identify = below.identify().clone();
    let (spec, zones) = if identify.zones.is_some() {
        let mut zones = report(&below)
            .map_err(|_| ImageError::Geometry("the drive below does not tell its zones"))?;
        let size = zones.first().map_or(0, |zone| zone.size);
        // A file system has no use for a shorter last zone.
        zones.pop_if(|last| last.size < size);
        from_report(&zones)?
    } else {
        (Spec::named("ram")?.blocks(identify.blocks), Vec::new())
    };
    let mut state = DriveState::new(spec)?;
    state.media = Media::Over(OverMedia::new(below));
    state.zones = zones;
    // Mount asks what the drive joins, to check that no part of a volume is missing.
    state.identify.joined = identify.joined;
    Ok(Ssd::power_on(state, Timing::Instant, 0))
}

fn report(drive: &Arc<dyn Drive>) -> Result<Vec<Zone>, Status> {
    let report = Command::ReportZones { lba: 0, max: u32::MAX };
    let completion = drive.issue(0, 0, report).or_else(|| drive.wait_for(0, 0));
    match completion.ok_or(Status::NotReady)?.result? {
        Output::Zones(zones) => Ok(zones),
        _ => Err(Status::InvalidOpcode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Completion, ZoneAction, ZoneState};

    fn run(drive: &Arc<Ssd>, command: Command) -> Output {
        let answer: Option<Completion> = drive.issue(0, 1, command);
        answer.or_else(|| drive.wait_for(0, 1)).expect("answered").result.expect("fine")
    }

    fn write(lba: u64, text: &[u8]) -> Command {
        let data = std::iter::once(Block::from_prefix(text)).collect();
        Command::Write { lba, data, fua: false }
    }

    fn read(drive: &Arc<Ssd>, lba: u64) -> Vec<u8> {
        match run(drive, Command::Read { lba, blocks: 1 }) {
            Output::Data(data) => data[0][..3].to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn changes_stay_above() {
        let spec = Spec::named("zn540").expect("built in").zone_size(16, 12).zones(8, 2);
        let below = Ssd::new(spec, Timing::Instant, 0).expect("sound");
        run(&below, write(1, b"old"));
        run(&below, write(32, b"seq"));
        let above = overlay(below.clone()).expect("an overlay");
        assert_eq!(above.identify().zones.map(|z| (z.count, z.conventional)), Some((8, 2)));
        assert_eq!((read(&above, 1), read(&above, 32)), (b"old".to_vec(), b"seq".to_vec()));
        run(&above, write(1, b"new"));
        run(&above, write(33, b"two"));
        run(&above, Command::Discard { lba: 0, blocks: 4 });
        run(&above, write(3, b"3rd"));
        run(&above, Command::ManageZone { action: ZoneAction::Reset, zone: Some(32) });
        assert_eq!((read(&above, 1), read(&above, 3)), (vec![0; 3], b"3rd".to_vec()));
        assert_eq!(read(&above, 32), vec![0; 3]);
        assert_eq!((read(&below, 1), read(&below, 32)), (b"old".to_vec(), b"seq".to_vec()));
        let below: Arc<dyn Drive> = below;
        let zones = report(&below).expect("zones");
        assert_eq!((zones[2].wp, zones[2].state), (33, ZoneState::ImplicitlyOpen));
    }

    #[test]
    fn holes_are_merged_and_shadowed() {
        let below = crate::ram(64);
        for lba in 0..64 {
            run(&below, write(lba, b"old"));
        }
        let above = overlay(below).expect("an overlay");
        for (lba, blocks) in [(10, 5), (20, 5), (14, 8), (40, 1), (5, 5)] {
            run(&above, Command::Discard { lba, blocks });
        }
        run(&above, write(12, b"new"));
        for lba in 0..64 {
            let expected: &[u8] = match lba {
                12 => b"new",
                5..25 | 40 => &[0; 3],
                _ => b"old",
            };
            assert_eq!(read(&above, lba), expected, "block {lba}");
        }
    }
}
