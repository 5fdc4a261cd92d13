//! What mounts of all file systems take for the block layer below them.

use queue::{Scheduler, ZoneOrder};

use super::{Given, MountOption, OptionError, put, show_some};

/// `sched=none|mq-deadline`, `zone_order=lock|plug`, `nr_requests=N`, `nr_hw_queues=N`, `poll` and
/// `nopoll`.
pub struct BlockLayer;

type Row<V> = super::Row<queue::Options, V>;
type Rows = [&'static dyn MountOption<queue::Options>; 5];

const ROWS: Rows = [
    &Row::one_of(
        "sched",
        &[("none", Scheduler::None), ("mq-deadline", Scheduler::MqDeadline)],
        |o| &mut o.scheduler,
    ),
    &Row::one_of(
        "zone_order",
        &[("lock", ZoneOrder::WriteLock), ("plug", ZoneOrder::WritePlug)],
        |o| &mut o.zone_order,
    ),
    &Row::text("nr_requests", "N", set_count, show_some, |o| &mut o.nr_requests),
    &Row::text("nr_hw_queues", "N", set_count, show_some, |o| &mut o.nr_hw_queues),
    &Row::words(&[("poll", true), ("nopoll", false)], |o| &mut o.polled),
];

fn set_count(to: &mut Option<u16>, text: &str) -> Result<(), String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    put(to, count.map(Some), format_args!("a number from 1 to {}", u16::MAX))
}

impl<T: AsMut<queue::Options>> MountOption<T> for BlockLayer {
    fn forms(&self) -> Vec<(&'static str, Option<&'static str>)> {
        ROWS.iter().flat_map(|row| row.forms()).collect()
    }

    fn set(&self, options: &mut T, given: Given<'_>) -> Option<Result<(), OptionError>> {
        ROWS.iter().find_map(|row| row.set(options.as_mut(), given))
    }

    fn show(&self, options: &mut T, said: &mut T) -> Option<String> {
        let (options, said) = (options.as_mut(), said.as_mut());
        let shown: Vec<_> = ROWS.iter().filter_map(|row| row.show(options, said)).collect();
        (!shown.is_empty()).then(|| shown.join(","))
    }
}
