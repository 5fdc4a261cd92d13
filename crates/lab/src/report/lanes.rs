//! Drawings of one fsync in lanes, and of files as cells.

use std::fmt::Write;

use super::svg::{Scale, Sheet, escape, label, svg};
use super::table::title;
use super::timeline::{Bar, Timeline, What};
use crate::campaign::{Fate, View};

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
pub(super) fn timelines(sheet: Sheet, all: &[&Timeline]) -> String {
    let (names, width) = (sheet.of(130.0, 100.0), sheet.width());
    let end = all.iter().map(|t| t.took).max().unwrap_or(0).max(1) as f64 / 1e3 * 1.02;
    let scale = Scale::Linear(0.0, end);
    let x = |us: f64| names + scale.part(us) * (width - names - RIGHT);
    let group = 4.0 * LANE + 30.0;
    let height = all.len() as f64 * group + 44.0;
    let mut body = String::new();
    for tick in scale.ticks(sheet.of(8.0, 4.0)) {
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
        (names + width - RIGHT) / 2.0,
        height - 6.0
    );
    for (n, timeline) in all.iter().enumerate() {
        let top = 8.0 + n as f64 * group;
        let took = timeline.took as f64 / 1e3;
        let _ = write!(
            body,
            "<text class='strong' x='{:.1}' y='{:.1}'>{}: {took:.1} µs</text>",
            names,
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
                 <rect class='track' x='{names}' y='{y:.1}' width='{:.1}' height='{BAR}'/>",
                names - 10.0,
                y + 10.5,
                width - names - RIGHT,
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
    svg(sheet, height, "one fsync of each mode", &body)
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

/// Cells of files or blocks. Those side by side that are alike are one dashed line; what is damaged
/// has its name, where there is a pointer that can ask for it.
pub(super) fn cells(sheet: Sheet, view: &View) -> String {
    const CELL: f64 = 10.0;
    const SQUARE: f64 = 8.5;
    let columns = sheet.of(96, 40);
    // How many more cells get a name.
    let mut names: usize = sheet.of(100, 0);
    let mut lines = Fate::ALL.map(|fate| (fate.word(), String::new()));
    let mut body = String::new();
    for (row, cells) in view.cells.chunks(columns).enumerate() {
        let (mut x, y) = (0.0, row as f64 * CELL + 2.0);
        for alike in cells.chunk_by(|one, next| one.0 == next.0) {
            let Some((fate, _)) = alike.first() else { continue };
            let (class, line) = &mut lines[*fate as usize];
            let named = if *fate >= Fate::Lost { names.min(alike.len()) } else { 0 };
            names -= named;
            for (_, what) in &alike[..named] {
                let _ = write!(
                    body,
                    "<rect class='{class}' x='{x}' y='{y}' width='{SQUARE}' height='{SQUARE}'>\
                     <title>{}: {class}</title></rect>",
                    escape(what)
                );
                x += CELL;
            }
            let rest = (alike.len() - named) as f64 * CELL;
            if rest > 0.0 {
                let _ = write!(line, "M{x} {}h{}", y + SQUARE / 2.0, rest - CELL + SQUARE);
                x += rest;
            }
        }
    }
    for (class, line) in lines.iter().filter(|(_, line)| !line.is_empty()) {
        let _ = write!(body, "<path class='cells {class}' d='{line}'/>");
    }
    let rows = view.cells.len().div_ceil(columns);
    svg(sheet, rows as f64 * CELL + 4.0, "files after the cut", &body)
}
