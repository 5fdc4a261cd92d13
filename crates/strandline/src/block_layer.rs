//! How the block layer below a volume is set up: on the command line by names of their own, for the
//! file system mount options.

use clap::Args;

/// The block layer, under the names of the kernel's attributes and fio's options.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Block layer")]
pub(crate) struct BlockLayer {
    /// In which order requests go to the drive: as they come, or sorted with a deadline
    #[arg(long, value_name = "SCHEDULER", value_parser = ["none", "mq-deadline"])]
    sched: Option<String>,
    /// Requests of a hardware queue; by default what the drive takes at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    nr_requests: Option<u16>,
    /// Hardware queues in use; by default all that the drive has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    nr_hw_queues: Option<u16>,
    /// Look for completions without sleeping
    #[arg(long)]
    poll: bool,
}

impl BlockLayer {
    /// The same as mount options.
    pub(crate) fn options(&self) -> impl Iterator<Item = String> {
        let sched = self.sched.as_ref().map(|name| format!("sched={name}"));
        let requests = self.nr_requests.map(|n| format!("nr_requests={n}"));
        let queues = self.nr_hw_queues.map(|n| format!("nr_hw_queues={n}"));
        let poll = self.poll.then(|| "poll".to_owned());
        [sched, requests, queues, poll].into_iter().flatten()
    }
}
