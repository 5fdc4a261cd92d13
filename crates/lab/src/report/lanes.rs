//! Drawings of one fsync in lanes, and of files as cells.

use std::fmt::Write;

use super::svg::{Scale, WIDTH, escape, label, svg};
use super::table::title;
use super::timeline::{Bar, Timeline, What};
use crate::campaign::{Fate, View};

const NAMES: f64 = 130.0;
const RIGHT: f64 = 24.0;
const LANE: f64 = 18.0;
const BAR: f64 = 13.0;

const fn class(what: What) -> &'static str {
    match what {
        What::Data => "lane-data",
        What::Node => "lane-node",
        What::Flush => "lane-flush",
        What::Other => "lane-other",
        What::Program => "lane-nand",
    }
}

const fn name(what: What) -> &'static str {
    match what {
        What::Data => "data",
        What::Node => "node",
        What::Flush => "flush",
        What::Other => "other work",
        What::Program => "program",
    }
}

/// Timelines above one another, to one scale.
pub(super) fn timelines(all: &[&Timeline]) -> String {
    let end = all.iter().map(|t| t.took).max().unwrap_or(0).max(1) as f64 / 1e3 * 1.02;
    let scale = Scale::Linear(0.0, end);
    let x = |us: f64| NAMES + scale.part(us) * (WIDTH - NAMES - RIGHT);
    let group = 4.0 * LANE + 30.0;
    let height = all.len() as f64 * group + 44.0;
    let mut body = String::new();
    for tick in scale.ticks(8.0) {
        let at = x(tick);
        let _ = write!(
            body,
            "<line class='grid' x1='{at:.1}' y1='6' x2='{at:.1}' y2='{:.1}'/>\
             <text x='{at:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            height - 40.0,
            height - 24.0,
            label(tick)
        );
    }
    let _ = write!(
        body,
        "<text x='{:.1}' y='{:.1}' text-anchor='middle'>time since fsync was called, µs</text>",
        (NAMES + WIDTH - RIGHT) / 2.0,
        height - 6.0
    );
    for (n, timeline) in all.iter().enumerate() {
        let top = 8.0 + n as f64 * group;
        let took = timeline.took as f64 / 1e3;
        let _ = write!(
            body,
            "<text class='strong' x='{:.1}' y='{:.1}'>{}: {took:.1} µs</text>",
            NAMES,
            top + 13.0,
            escape(title(&timeline.mode)),
        );
        let lanes: [(&str, &[Bar]); 4] = [
            ("CPU works", &timeline.cpu),
            ("CPU waits for", &timeline.wait),
            ("host and drive", &timeline.dma),
            ("NAND", &timeline.nand),
        ];
        for (lane, (what, bars)) in lanes.into_iter().enumerate() {
            let y = top + 20.0 + lane as f64 * LANE;
            let _ = write!(
                body,
                "<text x='{:.1}' y='{:.1}' text-anchor='end'>{what}</text>\
                 <rect class='track' x='{NAMES}' y='{y:.1}' width='{:.1}' height='{BAR}'/>",
                NAMES - 10.0,
                y + 10.5,
                WIDTH - NAMES - RIGHT,
            );
            let drawn = bars.iter().filter(|bar| (bar.from as f64) < end * 1e3);
            drawn.for_each(|bar| draw(&mut body, bar, y, &x));
        }
        let at = x(took);
        let _ = write!(
            body,
            "<line class='returned' x1='{at:.1}' y1='{:.1}' x2='{at:.1}' y2='{:.1}'/>",
            top + 17.0,
            top + 20.0 + 4.0 * LANE
        );
    }
    svg(height, "one fsync of each mode", &body)
}

fn draw(body: &mut String, bar: &Bar, y: f64, x: &dyn Fn(f64) -> f64) {
    let (from, to) = (bar.from as f64 / 1e3, bar.to as f64 / 1e3);
    let (left, right) = (x(from), x(to));
    let _ = write!(
        body,
        "<rect class='{}' x='{left:.1}' y='{y:.1}' width='{:.1}' height='{BAR}'>\
         <title>{}: {from:.1} to {to:.1} µs</title></rect>",
        class(bar.what),
        (right - left).max(1.2),
        name(bar.what)
    );
}

/// Cells of files or blocks. Those that are alike are one element; what is damaged has its name.
pub(super) fn cells(view: &View) -> String {
    const COLUMNS: usize = 96;
    const CELL: f64 = 10.0;
    /// Cells with a name.
    const NAMED: usize = 100;
    let mut alike: [(&str, String); 4] =
        ["ok", "open", "lost", "garbage"].map(|class| (class, String::new()));
    let (mut body, mut named) = (String::new(), 0);
    for (n, (fate, what)) in view.cells.iter().enumerate() {
        let (x, y) = ((n % COLUMNS) as f64 * CELL, (n / COLUMNS) as f64 * CELL + 2.0);
        let (class, path) = &mut alike[*fate as usize];
        if *fate >= Fate::Lost && named < NAMED {
            named += 1;
            let _ = write!(
                body,
                "<rect class='{class}' x='{x}' y='{y}' width='8.5' height='8.5'>\
                 <title>{}: {class}</title></rect>",
                escape(what)
            );
        } else {
            let _ = write!(path, "M{x} {y}h8.5v8.5h-8.5z");
        }
    }
    for (class, path) in alike.iter().filter(|(_, path)| !path.is_empty()) {
        let _ = write!(body, "<path class='{class}' d='{path}'/>");
    }
    let rows = view.cells.len().div_ceil(COLUMNS);
    svg(rows as f64 * CELL + 4.0, "files after the cut", &body)
}
