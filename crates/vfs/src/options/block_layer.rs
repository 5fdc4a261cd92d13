//! What mounts of all file systems take for the block layer below them.

use std::fmt;
use std::marker::PhantomData;

use queue::{Scheduler, ZoneOrder};

use super::{Choice, MountOption, Value};

/// `sched=none|mq-deadline`, `zone_order=lock|plug`, `nr_requests=N`, `nr_hw_queues=N`, `poll` and
/// `nopoll`.
pub const fn block_layer<T: AsMut<queue::Options> + 'static>() -> &'static [MountOption<T>] {
    Table::<T>::ALL
}

struct Table<T>(PhantomData<T>);

impl<T: AsMut<queue::Options> + 'static> Table<T> {
    const SCHEDULERS: &'static [Choice<T>] = &[
        Choice { name: "none", set: |o| o.as_mut().scheduler = Scheduler::None },
        Choice { name: "mq-deadline", set: |o| o.as_mut().scheduler = Scheduler::MqDeadline },
    ];
    const ZONE_ORDERS: &'static [Choice<T>] = &[
        Choice { name: "lock", set: |o| o.as_mut().zone_order = ZoneOrder::WriteLock },
        Choice { name: "plug", set: |o| o.as_mut().zone_order = ZoneOrder::WritePlug },
    ];
    const ALL: &'static [MountOption<T>] = &[
        MountOption { name: "sched", value: Value::OneOf(Self::SCHEDULERS) },
        MountOption { name: "zone_order", value: Value::OneOf(Self::ZONE_ORDERS) },
        MountOption {
            name: "nr_requests",
            value: Value::Text {
                form: "N",
                set: |o, n| count(n).map(|n| o.as_mut().nr_requests = Some(n)),
            },
        },
        MountOption {
            name: "nr_hw_queues",
            value: Value::Text {
                form: "N",
                set: |o, n| count(n).map(|n| o.as_mut().nr_hw_queues = Some(n)),
            },
        },
        MountOption { name: "poll", value: Value::None { set: |o| o.as_mut().polled = true } },
        MountOption { name: "nopoll", value: Value::None { set: |o| o.as_mut().polled = false } },
    ];
}

fn count(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("a number from 1 to {}", u16::MAX))
}

/// What differs from the defaults, each with a comma before it, as in `/proc/mounts`.
pub fn show_block_layer(options: &queue::Options) -> impl fmt::Display {
    Shown(*options)
}

struct Shown(queue::Options);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue::Options { nr_requests, nr_hw_queues, .. } = self.0;
        if self.0.scheduler == Scheduler::MqDeadline {
            f.write_str(",sched=mq-deadline")?;
        }
        if self.0.zone_order == ZoneOrder::WriteLock {
            f.write_str(",zone_order=lock")?;
        }
        for (name, count) in [("nr_requests", nr_requests), ("nr_hw_queues", nr_hw_queues)] {
            count.map_or(Ok(()), |count| write!(f, ",{name}={count}"))?;
        }
        f.write_str(if self.0.polled { ",poll" } else { "" })
    }
}
