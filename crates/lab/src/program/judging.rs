//! Who judges a state, and what of it a judge may ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfs::kind::Volume;

use super::tree::Tree;
use super::volume::Origin;
use super::{Limits, Promised};
use crate::Result;

/// What the checker thinks of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// It accepts it.
    pub accepted: bool,
    /// What it said.
    pub said: String,
}

impl Judgement {
    /// It accepts it, and says nothing.
    pub fn accepted() -> Self {
        Self { accepted: true, said: String::new() }
    }
}

/// A state to be judged.
pub struct State<'a> {
    /// What is there.
    pub tree: &'a Tree,
    /// What the program had promised.
    pub promised: &'a Promised,
    /// The state's name, or a word if it has none.
    pub name: &'a str,
    /// The volume that it is of.
    pub(super) origin: Option<&'a Origin>,
}

impl State<'_> {
    /// A volume in this state, after recovery, and the path of the program's directory on it; if
    /// the state is of no volume, one in memory. What is there belongs to `uid` and `gid`.
    ///
    /// # Errors
    ///
    /// It cannot be mounted.
    pub fn mount(&self, uid: u32, gid: u32) -> Result<(Arc<dyn Volume>, &'static str)> {
        match self.origin {
            Some(origin) => origin.mount(uid, gid),
            None => Ok((Arc::new(self.tree.in_memory(uid, gid)?), "")),
        }
    }
}

/// Judges a state; `None` if it was told to stop first. It is called from several threads.
pub type Judge = Arc<dyn Fn(&State<'_>) -> Result<Option<Judgement>> + Send + Sync>;

/// A state with all that it takes to judge it in another thread.
#[derive(Clone)]
pub(super) struct Task<K> {
    pub(super) key: K,
    pub(super) tree: Arc<Tree>,
    pub(super) promised: Promised,
    pub(super) name: String,
    pub(super) origin: Option<Origin>,
}

/// Has all of these judged, on several threads, until the limits say stop: the judgements of those
/// that were. `looked`: how many states were looked at before.
pub(super) fn judge_all<K: Copy + Send + Sync + 'static>(
    judge: &Judge,
    tasks: Vec<Task<K>>,
    limits: &Limits,
    looked: usize,
) -> Result<Vec<(K, Arc<Judgement>)>> {
    let ahead = Arc::new(tasks);
    let next = Arc::new(AtomicUsize::new(0));
    let workers = (0..limits.threads.clamp(1, ahead.len().max(1))).map(|_| {
        let (ahead, next, judge) = (ahead.clone(), next.clone(), judge.clone());
        let go_on = limits.go_on.clone();
        cores::spawn("checker", None, move || {
            let mut judged = Vec::new();
            while let Some((n, task)) = take(&ahead, &next)
                && go_on(looked + n)
            {
                let Task { key, tree, promised, name, origin } = task;
                let state = State { tree, promised, name, origin: origin.as_ref() };
                let Some(judgement) = judge(&state)? else { break };
                judged.push((*key, Arc::new(judgement)));
            }
            Ok::<_, crate::Error>(judged)
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.join()?);
    }
    Ok(all)
}

fn take<'a, K>(ahead: &'a [Task<K>], next: &AtomicUsize) -> Option<(usize, &'a Task<K>)> {
    let n = next.fetch_add(1, Ordering::Relaxed);
    ahead.get(n).map(|task| (n, task))
}
