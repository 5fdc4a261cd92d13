//! Progress bars: on a terminal only, and only when it takes longer than a second.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Time before a bar is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar over `total` steps, or nothing if standard error is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar; `quiet` switches it off.
    pub(crate) fn new(total: u64, what: &str, quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let style = "{msg:12} {bar:40} {pos}/{len} {elapsed}{left}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("━╸ ").with_key("left", left));
        }
        bar.set_message(what.to_owned());
        if quiet || !std::io::stderr().is_terminal() {
            bar.finish_and_clear();
            return Self { bar: ProgressBar::hidden() };
        }
        Self { bar }
    }

    /// A bar whose total is counted only if it is shown.
    pub(crate) fn counting(what: &str, quiet: bool, count: impl FnOnce() -> u64) -> Self {
        let watched = !quiet && std::io::stderr().is_terminal();
        Self::new(if watched { count() } else { 0 }, what, quiet)
    }

    /// One step further.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
        if self.bar.is_hidden() && !self.bar.is_finished() && self.bar.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// So far.
    pub(crate) fn reach(&self, position: u64) {
        self.bar.set_position(position.saturating_sub(1));
        self.step();
    }

    /// One step further of `total`.
    pub(crate) fn step_of(&self, total: u64) {
        self.bar.set_length(total);
        self.step();
    }

    /// Names what is being done.
    pub(crate) fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Takes the bar off the screen while `print` runs.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// The end.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// How much time is left, once enough has been done to tell.
fn left(state: &ProgressState, to: &mut dyn Write) {
    let known = state.fraction() >= 0.02 && state.elapsed() > PATIENCE;
    if known {
        // A bar that cannot be written is not seen.
        let _ = write!(to, " (left {:#})", HumanDuration(state.eta()));
    }
}
