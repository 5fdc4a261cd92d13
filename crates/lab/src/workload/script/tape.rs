//! Records what a workload does, as steps of a script.
//!
//! Bytes are not kept: a write is given a seed of its own, and the same as before if the same bytes
//! go to the same place, so that equal bytes stay equal and different ones different.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use cores::Mutex;
use drive::Timing;
use vfs::ops::Op;

use super::{STEPS_MAX, ScriptStep};
use crate::campaign::Job;
use crate::oracle::{Model, ObjId, Oracle, Place, ROOT};
use crate::workload::recorder::Recorder;
use crate::{Error, Result, machine, rig};

/// What was written where: file, offset, length, bytes by their hash.
type Written = (ObjId, u64, usize, u64);

/// The steps so far.
pub(crate) struct Tape(Mutex<Taken>);

impl Default for Tape {
    fn default() -> Self {
        Self(Mutex::instrument("tape", Taken::default()))
    }
}

#[derive(Default)]
struct Taken {
    steps: Vec<ScriptStep>,
    seeds: BTreeMap<Written, u32>,
    /// Why this cannot be a script.
    unfit: Option<String>,
}

/// What the workload of `job` does, on a drive that takes no time.
pub(super) fn record(job: &Job) -> Result<Vec<ScriptStep>> {
    machine(job.seed)?.run(|| {
        let kit = rig::kit(&job.drive, job.workload.footprint())?;
        let drive = kit.make(Timing::Instant, job.seed)?.drive();
        job.make(&drive)?;
        let mounted = rig::mount(job.format, drive, &job.sound_options())?;
        let tape = Arc::new(Tape::default());
        let recorder = Recorder::taped(mounted, Arc::new(Oracle::new()), tape.clone());
        job.workload.run(&recorder, job.seed, &mut || tape.note(ScriptStep::Begin))?;
        tape.steps()
    })?
}

impl Tape {
    /// The steps. Making the preparation durable is part of `begin`.
    fn steps(&self) -> Result<Vec<ScriptStep>> {
        let taken = std::mem::take(&mut *self.0.lock());
        if let Some(why) = taken.unfit {
            return Err(Error::Usage(format!("the workload cannot be written as text: {why}")));
        }
        let mut steps = taken.steps;
        let begin = steps.iter().position(|step| *step == ScriptStep::Begin);
        if let Some(before) = begin.and_then(|at| at.checked_sub(1))
            && steps[before] == ScriptStep::Do(Op::Sync)
        {
            steps.remove(before);
        }
        Ok(steps)
    }

    /// One step.
    pub(crate) fn note(&self, step: ScriptStep) {
        let mut taken = self.0.lock();
        if taken.steps.len() < STEPS_MAX {
            taken.steps.push(step);
        } else {
            taken.unfit = Some(format!("it has more than {STEPS_MAX} operations"));
        }
    }

    /// The path of a new or old name.
    pub(crate) fn place(&self, model: &Model, (dir, name): &Place) -> String {
        let name = match std::str::from_utf8(name) {
            Ok(name) => name,
            Err(_) => {
                self.0.lock().unfit = Some("a name is not UTF-8".into());
                "?"
            }
        };
        let dir = self.path(model, *dir);
        if dir == "/" { name.into() } else { format!("{dir}/{name}") }
    }

    /// One path of `obj`, or the handle by which it is open.
    pub(crate) fn path(&self, model: &Model, obj: ObjId) -> String {
        if obj != ROOT && model.objects[obj].places.is_empty() {
            return format!("#{}", handle(obj));
        }
        let path = model.path(obj);
        if path == "/" { path } else { path.trim_start_matches('/').to_owned() }
    }

    /// The seed that stands for these bytes of this file at `offset`.
    pub(crate) fn seed(&self, obj: ObjId, offset: u64, bytes: &[u8]) -> u32 {
        if bytes.iter().all(|&byte| byte == 0) {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        let mut taken = self.0.lock();
        let next = taken.seeds.len() as u32 + 1;
        *taken.seeds.entry((obj, offset, bytes.len(), hasher.finish())).or_insert(next)
    }
}

/// The handle under which `obj` is opened.
pub(crate) fn handle(obj: ObjId) -> String {
    format!("o{obj}")
}
