//! When operations end: the parts of a drive that serve one operation at a time.
//!
//! Every part is a first-come-first-served resource, of which only the time is known when it is
//! next free. Programs go over a channel to a die. A seeded generator varies their time, so that
//! zones written alike do not run in lock step.

use std::sync::Arc;

use cores::Nanos;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{BLOCK_SIZE, Profile};

/// A resource that serves in order of arrival.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    free: Nanos,
}

impl Server {
    /// Books `time` from `ready` on, or from when it is free. Returns the end.
    fn book(&mut self, ready: Nanos, time: Nanos) -> Nanos {
        self.free = self.free.max(ready).saturating_add(time);
        self.free
    }
}

/// DMA engines, channels and dies.
pub(super) struct Nand {
    profile: Arc<Profile>,
    dma_in: Server,
    dma_out: Server,
    channels: Box<[Server]>,
    /// Programs and reads of a die do not wait for each other: reads suspend a program.
    programs: Box<[Server]>,
    reads: Box<[Server]>,
    rng: Xoshiro256PlusPlus,
    /// Decides which commands are late, if any may be. It is a generator of its own, so that
    /// programs take the same time either way.
    lateness: Option<Xoshiro256PlusPlus>,
}

impl Nand {
    pub(super) fn new(profile: Arc<Profile>, seed: u64, unkind: bool) -> Self {
        let dies = vec![Server::default(); profile.dies()];
        Self {
            dma_in: Server::default(),
            dma_out: Server::default(),
            channels: vec![Server::default(); profile.channels.value as usize].into(),
            programs: dies.clone().into(),
            reads: dies.into(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            lateness: unkind.then(|| Xoshiro256PlusPlus::seed_from_u64(!seed)),
            profile,
        }
    }

    /// When the drive has all `blocks` blocks of a write that came at `now`.
    pub(super) fn transfer_in(&mut self, now: Nanos, blocks: u64) -> Nanos {
        let per_block = self.profile.firmware_write_block_ns.value;
        let firmware = self.profile.firmware_write_ns.value + per_block.saturating_mul(blocks);
        let time = transfer_ns(blocks, self.profile.dma_bytes_per_s.value);
        self.dma_in.book(now.saturating_add(firmware), time)
    }

    /// When the host has the data of a read of `total` blocks that came at `now`. `pieces` are the
    /// parts that come from NAND: a stripe number, which selects the die, and a number of blocks.
    pub(super) fn transfer_out(
        &mut self,
        now: Nanos,
        total: u64,
        pieces: impl Iterator<Item = (u64, u64)>,
    ) -> Nanos {
        let start = now.saturating_add(self.profile.firmware_read_ns.value);
        let mut ready = start;
        for (stripe, blocks) in pieces {
            let (die, channel) = self.place(stripe);
            let sensed = self.reads[die].book(start, self.profile.read_ns.value);
            let time = transfer_ns(blocks, self.profile.channel_bytes_per_s.value);
            ready = ready.max(self.channels[channel].book(sensed, time));
        }
        self.dma_out.book(ready, transfer_ns(total, self.profile.dma_bytes_per_s.value))
    }

    /// When a command is done that came at `now` and could be done at `at`. A late command delays
    /// no other: no part of the drive is booked for its delay.
    pub(super) fn late(&mut self, now: Nanos, at: Nanos) -> Nanos {
        let Some(rng) = &mut self.lateness else { return at };
        let most = (at - now).saturating_mul(self.profile.lateness_percent.value.into()) / 100;
        let slow = rng.random_range(0..1000) < self.profile.slow_commands_per_1000.value;
        let more = if slow { self.profile.slow_command_ns.value } else { 0 };
        at + rng.random_range(0..=most) + rng.random_range(0..=more)
    }

    /// When a program of `blocks` blocks ends that goes to the die of `stripe` at `now`.
    pub(super) fn program(&mut self, now: Nanos, stripe: u64, blocks: u64) -> Nanos {
        let (die, channel) = self.place(stripe);
        let time = transfer_ns(blocks, self.profile.channel_bytes_per_s.value);
        let loaded = self.channels[channel].book(now, time);
        let program = self.program_ns();
        self.programs[die].book(loaded, program)
    }

    fn program_ns(&mut self) -> Nanos {
        let base = self.profile.program_ns.value;
        let spread = base * u64::from(self.profile.program_jitter_percent.value) / 100;
        if spread == 0 { base } else { base - spread + self.rng.random_range(0..=2 * spread) }
    }

    fn place(&self, stripe: u64) -> (usize, usize) {
        let die = (stripe % self.programs.len() as u64) as usize;
        (die, die % self.channels.len())
    }
}

fn transfer_ns(blocks: u64, bytes_per_s: u64) -> Nanos {
    let bytes = blocks.saturating_mul(BLOCK_SIZE as u64);
    bytes.saturating_mul(1_000_000_000).checked_div(bytes_per_s).unwrap_or(0)
}
