use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cores::{Machine, Mutex, Profile, Rank};

use super::*;

/// Accounts in pages that have to be fetched, and money in a purse that plans reserve from.
struct Bank {
    shards: Shards<BTreeMap<Ino, i64>>,
    /// What is fetched once is in memory.
    pages: Mutex<BTreeSet<Ino>>,
    purse: Mutex<i64>,
    entered: Mutex<Vec<u32>>,
}

/// A reservation that returns to the purse unless it is spent.
struct Reserved<'a>(&'a Bank, i64);

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        *self.0.purse.lock() += self.1;
    }
}

impl Volume for Bank {
    type Shard = BTreeMap<Ino, i64>;
    type Permit<'a> = u32;
    type Want = Ino;
    type Error = Errno;

    fn shards(&self) -> &Shards<Self::Shard> {
        &self.shards
    }

    fn enter(&self, room: u32) -> Result<u32, Errno> {
        self.entered.lock().push(room);
        Ok(room)
    }

    fn fetch(&self, want: Ino) -> Result<(), Errno> {
        if cores::is_virtual() {
            cores::yield_now();
        }
        if want == 13 {
            return Err(Errno::UCLEAN);
        }
        if want != 99 {
            self.pages.lock().insert(want);
        }
        Ok(())
    }
}

fn bank() -> Bank {
    Bank {
        shards: Shards::new(Rank::Inode, "accounts", 256, BTreeMap::new),
        pages: Mutex::named("pages", BTreeSet::new()),
        purse: Mutex::named("purse", 100),
        entered: Mutex::named("entered", Vec::new()),
    }
}

/// The account's balance, if its page is in memory.
fn balance(bank: &Bank, shard: &BTreeMap<Ino, i64>, ino: Ino) -> Planned<i64, Bank> {
    let is_here = bank.pages.lock().contains(&ino);
    if is_here { Ok(*shard.get(&ino).unwrap_or(&10)) } else { Err(Stop::Want(ino)) }
}

/// Moves `amount`; the second account becomes known only while planning.
fn transfer(bank: &Bank, from: Ino, to: Ino, amount: i64) -> Result<i64, Errno> {
    run(
        bank,
        &[from],
        1,
        |work| {
            let reserved = {
                let mut purse = bank.purse.lock();
                *purse -= 1;
                Reserved(bank, 1)
            };
            let has = balance(bank, work.shard(from)?, from)?;
            let got = balance(bank, work.shard(to)?, to)?;
            if work.permit < 3 {
                return Err(Stop::Room(3));
            }
            if has < amount {
                return Err(Errno::NOSPC.into());
            }
            Ok((reserved, has, got))
        },
        |(mut reserved, has, got), work| {
            reserved.1 = 0;
            work.shards.get_mut(from).unwrap().insert(from, has - amount);
            work.shards.get_mut(to).unwrap().insert(to, got + amount);
            got + amount
        },
    )
}

#[test]
fn a_plan_gets_what_it_lacks_and_keeps_nothing_of_its_tries() {
    let bank = bank();
    assert_eq!(transfer(&bank, 1, 2, 4), Ok(14));
    // A page, the other page, and room: three tries that failed, and one that did. Nobody had the
    // other shard.
    assert_eq!(*bank.entered.lock(), [1, 1, 1, 3]);
    assert_eq!(*bank.purse.lock(), 99, "only the try that was applied has spent");
    let seen = |ino| look(&bank, ino, |shard| balance(&bank, shard, ino));
    assert_eq!((seen(1), seen(2), seen(3)), (Ok(6), Ok(14), Ok(10)));
}

#[test]
fn a_plan_that_fails_has_changed_nothing() {
    let bank = bank();
    assert_eq!(transfer(&bank, 1, 2, 11), Err(Errno::NOSPC));
    assert_eq!(transfer(&bank, 1, 13, 1), Err(Errno::UCLEAN), "what it needs cannot be fetched");
    assert_eq!(transfer(&bank, 1, 99, 1), Err(Errno::IO), "what it needs never comes");
    assert_eq!(*bank.purse.lock(), 100);
    assert!(bank.shards.look(1).is_empty() && bank.shards.look(2).is_empty());
}

#[test]
fn transfers_in_any_schedule_conserve_the_sum() {
    let profile = Profile::named("xeon-4116").unwrap();
    let test = || {
        let bank = Arc::new(bank());
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let bank = bank.clone();
                cores::spawn("transfers", Some(thread as usize), move || {
                    for step in 0..8 {
                        let (from, to) = ((thread + step) % 5, (thread + 3 * step + 1) % 5);
                        if from != to {
                            let _ = transfer(&bank, from, to, 3);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        let all = (0..5).map(|ino| look(&*bank, ino, |shard| Ok(*shard.get(&ino).unwrap_or(&10))));
        assert_eq!(all.sum::<Result<i64, _>>(), Ok(50));
    };
    for seed in 0..50 {
        Machine::simulated(&profile, seed).run(test).unwrap();
    }
}
