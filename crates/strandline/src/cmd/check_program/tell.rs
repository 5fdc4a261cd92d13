//! What was found, for people and for machines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lab::program::{Outcome as Found, Rejected, Tree, Why, shown};
use lab::record::Run;
use lab::report::counted;
use lab::workload::script::ScriptStep;
use lab::workload::shell_word;
use serde::Serialize;
use vfs::ops::Op;

use crate::failure::Outcome;
use crate::out;

/// What was told so far.
pub(super) struct Told {
    json: bool,
    steps: Vec<Op>,
    markers: usize,
    /// The earliest cut that was rejected, and where.
    first: Option<First>,
    /// Places where states were rejected, and where none was.
    broken: Vec<String>,
    well: Vec<String>,
    is_partial: bool,
    /// A place that was not tried because states are rejected elsewhere.
    left_out: Option<&'static str>,
    /// There is a checker.
    is_judged: bool,
    /// Without one: the different trees of each place, by their digests.
    trees: Vec<(String, BTreeMap<u64, Arc<Tree>>)>,
}

/// A rejected state.
struct First {
    place: String,
    state: Rejected,
    /// The steps of the run that it is of.
    steps: Vec<Op>,
}

/// A place, for machines.
#[derive(Serialize)]
struct OfPlace<'a> {
    on: &'a str,
    states: usize,
    judged: usize,
    rejected: usize,
    left_out: usize,
    sampled: usize,
    complete: bool,
    unreadable: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<OfState<'a>>,
}

/// A rejected state, for machines.
#[derive(Serialize)]
struct OfState<'a> {
    state: &'a str,
    steps: usize,
    acknowledged: Option<&'a str>,
    exited: bool,
    files: Vec<String>,
    said: &'a str,
}

/// The verdict, for machines.
#[derive(Serialize)]
struct Verdict<'a> {
    broken: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pattern: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<String>,
}

/// How places differ, for machines.
#[derive(Serialize)]
struct Differences {
    differences: Vec<Difference>,
}

/// What only one place may leave.
#[derive(Serialize)]
struct Difference {
    on: String,
    only_there: usize,
    such_as: Vec<String>,
}

/// Warnings, for machines.
#[derive(Serialize)]
struct Recorded<'a> {
    steps: usize,
    fsyncs: usize,
    markers: usize,
    warnings: &'a [String],
}

impl Told {
    pub(super) fn new(run: &Run, json: bool, is_judged: bool) -> Self {
        let (steps, markers) = (operations(run), run.markers.len());
        let (broken, well, trees) = (Vec::new(), Vec::new(), Vec::new());
        let (first, is_partial, left_out) = (None, false, None);
        Self { json, steps, markers, first, broken, well, is_partial, left_out, is_judged, trees }
    }

    /// Whether there is a checker.
    pub(super) fn is_judged(&self) -> bool {
        self.is_judged
    }

    /// From now on places are of another run of the program.
    pub(super) fn of_run(&mut self, run: &Run) {
        self.steps = operations(run);
    }

    /// fsyncs of the program.
    pub(super) fn syncs(&self) -> usize {
        let is_sync = |op: &&Op| matches!(op, Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Sync);
        self.steps.iter().filter(is_sync).count()
    }

    pub(super) fn begin(&self, warnings: &[String]) -> Outcome<()> {
        let (steps, fsyncs, markers) = (self.steps.len(), self.syncs(), self.markers);
        if self.json {
            return out::heard(out::json(&Recorded { steps, fsyncs, markers, warnings }));
        }
        let (steps, fsyncs) = (counted(steps, "step"), counted(fsyncs, "fsync"));
        let mut text = format!("recorded: {steps}, {fsyncs}, {}\n", counted(markers, "marker"));
        for warning in warnings {
            text += &format!("warning: {warning}\n");
        }
        out::heard(out::line(text))
    }

    pub(super) fn place(&mut self, name: &str, found: &Found) -> Outcome<()> {
        self.is_partial |= found.left_out + found.sampled > 0 || found.stopped;
        // A volume that does not mount has lost everything.
        let is_broken = found.rejected > 0 || found.unreadable.is_some();
        let list = if is_broken { &mut self.broken } else { &mut self.well };
        list.push(name.to_owned());
        if let Some(first) = &found.first
            && self.first.as_ref().is_none_or(|earlier| first.steps < earlier.state.steps)
        {
            let (state, steps) = (first.clone(), self.steps.clone());
            self.first = Some(First { place: name.to_owned(), state, steps });
        }
        if !self.is_judged {
            self.trees.push((name.to_owned(), found.trees.clone()));
        }
        match self.json {
            true => out::heard(json(name, found)),
            false => out::heard(out::line(line(name, found, self.is_judged))),
        }
    }

    /// This place is not tried.
    pub(super) fn leave_out(&mut self, name: &'static str) {
        self.left_out = Some(name);
    }

    /// Whether a state was rejected.
    pub(super) fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    /// The earliest state that the checker rejects.
    pub(super) fn first(&self) -> Option<&Rejected> {
        self.first.as_ref().map(|first| &first.state)
    }

    /// The end of a run without a checker.
    fn end_unjudged(&self) -> Outcome<()> {
        let differences = self.differences();
        if self.json {
            return out::heard(out::json(&Differences { differences }));
        }
        let mut text = "\nno checker, so nothing was judged\n".to_owned();
        for Difference { on, only_there, such_as } in differences {
            let states = counted(only_there, "different state");
            text += &format!("only {on} may leave {states}, such as\n");
            such_as.iter().take(SHOWN).for_each(|line| text += &format!("  {line}\n"));
            if such_as.is_empty() {
                text += "  nothing\n";
            }
        }
        out::heard(out::line(text.trim_end()))
    }

    /// What only one place may leave, place by place.
    fn differences(&self) -> Vec<Difference> {
        let of = |(n, (on, trees)): (usize, &(String, BTreeMap<u64, Arc<Tree>>))| {
            let others = self.trees.iter().enumerate().filter(|(other, _)| *other != n);
            let elsewhere: BTreeSet<u64> =
                others.flat_map(|(_, (_, trees))| trees.keys().copied()).collect();
            let only: Vec<&Arc<Tree>> = (trees.iter())
                .filter(|(digest, _)| !elsewhere.contains(digest))
                .map(|(_, tree)| tree)
                .collect();
            let (on, only_there) = (on.clone(), only.len());
            // The one that is told with the fewest words.
            let such_as = only.iter().map(|tree| tree.words()).min_by_key(|words| {
                let order = words.clone();
                (words.len(), order)
            })?;
            Some(Difference { on, only_there, such_as })
        };
        match self.trees.len() {
            0 | 1 => Vec::new(),
            _ => self.trees.iter().enumerate().filter_map(of).collect(),
        }
    }

    /// The verdict; `command` repeats the run.
    pub(super) fn end(&self, why: Option<&Why>, command: &str) -> Outcome<()> {
        if !self.is_judged {
            return self.end_unjudged();
        }
        let again = self.first.as_ref().map(|First { place, state, .. }| {
            format!("{command} --on {} --only {}", shell_word(place), state.state)
        });
        if self.json {
            return out::heard(out::json(&Verdict {
                broken: &self.broken,
                pattern: why.map(|why| why.pattern.name()),
                words: why.map(|why| &why.words[..]),
                picture: why.map(|why| &why.picture[..]),
                again,
            }));
        }
        let mut text = String::new();
        match &self.first {
            Some(first) => first.tell(&mut text),
            None if self.is_broken() => text += "\na volume did not mount: see above",
            None => text += "\nno state was rejected",
        }
        if let Some(why) = why {
            text += &format!("\nmistake: {}\n", why.pattern.name());
            why.words.iter().for_each(|words| text += &format!("  {words}\n"));
            text += "the order:\n";
            why.picture.iter().for_each(|line| text += &format!("{}\n", line.trim_end()));
        }
        if self.first.is_some() && why.is_none() {
            text += "\nno mistake of the program was found: on POSIX's promises it survives, and a \
                     place where it is broken does not keep them\n";
        }
        if self.is_broken() && !self.well.is_empty() {
            let (broken, well) = (self.broken.join(", "), self.well.join(", "));
            text += &format!("\nbroken on {broken}; not on {well}\n");
        }
        if let Some(name) = self.left_out {
            text += &format!("\n{name} was not tried, since states are rejected without it\n");
        }
        if self.is_partial {
            text += "\nnot every state was looked at: see what was left out, and --every-state\n";
        }
        if let Some(again) = again {
            text += &format!("\nagain: {again}");
        }
        out::heard(out::line(text.trim_end()))
    }
}

impl First {
    fn tell(&self, text: &mut String) {
        let Rejected { state, steps, meanwhile, tree, promised, said, .. } = &self.state;
        let place = &self.place;
        let mut add = |line: &str| {
            text.push_str(line);
            text.push('\n');
        };
        add(&format!("\nBROKEN: {place}, state {state}"));
        meanwhile.iter().for_each(|meanwhile| add(&format!("  ({meanwhile})")));
        let from = steps.saturating_sub(BEFORE);
        for (n, op) in self.steps.iter().enumerate().skip(from).take(steps - from + AFTER) {
            if n == *steps {
                add(CUT);
            }
            if !matches!(op, Op::Open { .. } | Op::Close { .. }) {
                add(&format!("  {:3}  {}", n + 1, shown(op)));
            }
        }
        if *steps >= self.steps.len() {
            add(CUT);
        }
        add("what is there then:");
        let files = tree.words();
        files.iter().take(SHOWN).for_each(|line| add(&format!("  {line}")));
        if files.is_empty() {
            add("  nothing");
        }
        if let Some(marker) = &promised.acknowledged {
            add(&format!("the program had acknowledged: {marker}"));
        }
        if promised.exited {
            add("the program had exited");
        }
        if !said.is_empty() {
            add("the checker says:");
            said.lines().take(SHOWN).for_each(|line| add(&format!("  {line}")));
        }
    }
}

/// What was done after `begin`.
fn operations(run: &Run) -> Vec<Op> {
    let done = run.steps.iter().skip_while(|step| **step != ScriptStep::Begin);
    let done = done.filter_map(|step| match step {
        ScriptStep::Do(op) => Some(op.clone()),
        _ => None,
    });
    done.collect()
}

const CUT: &str = "       --- the power fails ---";
/// Steps before and after the cut that are shown.
const BEFORE: usize = 8;
const AFTER: usize = 2;
/// Lines of files and of the checker's output.
const SHOWN: usize = 12;

fn line(name: &str, found: &Found, is_judged: bool) -> String {
    let Found { states, judged, rejected, left_out, sampled, .. } = found;
    let is_broken = *rejected > 0 || found.unreadable.is_some();
    let verdict = if is_broken { "BROKEN" } else { "ok" };
    let (states, judged) = (counted(*states, "state"), counted(*judged, "different one"));
    let mut text = match is_judged {
        true => format!("{name:18} {verdict:6} {states}, {judged}, {rejected} rejected"),
        false => format!("{name:18} {states}, {judged}"),
    };
    if *left_out > 0 {
        text += &format!(", {left_out} left out");
    }
    if *sampled > 0 {
        text += &format!(", {} sampled", counted(*sampled, "instant"));
    }
    if found.stopped {
        text += ", stopped early";
    }
    if let Some((states, why)) = &found.unreadable {
        text += &format!("; {} did not mount: {why}", counted(*states, "state"));
    }
    text
}

fn json(name: &str, found: &Found) -> Outcome<()> {
    let first = found.first.as_ref().map(|first| OfState {
        state: &first.state,
        steps: first.steps,
        acknowledged: first.promised.acknowledged.as_deref(),
        exited: first.promised.exited,
        files: first.tree.words(),
        said: &first.said,
    });
    out::json(&OfPlace {
        on: name,
        states: found.states,
        judged: found.judged,
        rejected: found.rejected,
        left_out: found.left_out,
        sampled: found.sampled,
        complete: !found.stopped,
        unreadable: found.unreadable.as_ref().map_or(0, |(states, _)| *states),
        first,
    })
}
