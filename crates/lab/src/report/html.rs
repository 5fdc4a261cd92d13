//! One page that needs nothing else: style and plots are inside, fonts are the reader's.

use std::fmt::Write;

use super::bars::{Bar, bars};
use super::svg::{Plot, STRAND_CELLS, STYLE, Scale, Sheet, Strand, both, escape, strands};
use super::table::{counted, paper_rows, promise, thousands, title};
use super::{Report, Timeline, ZoneMap, lanes, words};
use crate::campaign::{Fate, ModeResult};

/// Points a curve or a cloud is thinned to.
const fn points(sheet: Sheet) -> usize {
    sheet.of(500, 160)
}

/// Zones drawn.
const ZONES: usize = 12;

/// Cells drawn above the higher write pointer, if the zone goes on.
const CELLS_ABOVE: u64 = 8;

/// Damage to a file or block, as the table's columns have it.
const HARM: [Fate; 4] = [Fate::Lost, Fate::Garbage, Fate::Torn, Fate::Corrupt];

/// What the axes of latencies are called.
const LATENCY: &str = "latency, µs (log)";

/// Height of one mode's lane in the timeline.
const LANE: f64 = 170.0;

/// The page.
pub fn html(report: &Report) -> String {
    let body = sections(report);
    format!(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\
         <meta name='viewport' content='width=device-width, initial-scale=1'>\
         <title>{title}</title><style>{css}</style></head><body><main>\
         <header><h1>{title}</h1><p>{about}</p></header>{tiles}{nav}{body}\
         <footer><p>The same seed gives the same figures.<br>repeat: <code>{command}</code></p>\
         </footer></main></body></html>\n",
        title = escape(&report.title),
        css = STYLE,
        about = escape(&report.about),
        tiles = tiles(&report.campaigns),
        nav = navigation(&body),
        command = escape(&report.command),
    )
}

/// All sections, in order.
fn sections(report: &Report) -> String {
    let mut page = section(
        "What each mode kept, and what it cost",
        "Every cut is recovered, and every byte compared. Times and rates are those of the \
         simulated drive and machine. “No guarantee”: cuts failed, but in a way that the mode does \
         not exclude on this drive.",
        &modes_table(&report.campaigns),
    );
    if let Some(map) = &report.zone_map {
        page += &zone_section(map);
    }
    page += &paper_section(&report.campaigns);
    page += &section(
        "Kept and failed",
        "The share of power cuts after which everything was as it must be.",
        &outcome(&report.campaigns),
    );
    page += &timeline_sections(&report.timelines);
    page += &views(&report.campaigns);
    for workload in workloads(&report.campaigns) {
        let of: Vec<&ModeResult> =
            report.campaigns.iter().filter(|c| c.workload == workload).collect();
        page += &latency_sections(&workload, &of);
    }
    page += &failures(&report.campaigns);
    let words = words::glossary(&[&*report.about, &page].concat());
    page + &section("Words", "What the words on this page mean.", &words)
}

/// The end of a section's opening tag and the beginning of its heading.
const HEADING: &str = "'><h2>";

fn section(heading: &str, text: &str, body: &str) -> String {
    let anchor: String = heading.chars().filter(char::is_ascii_alphanumeric).collect();
    let (heading, text) = (escape(heading), escape(text));
    format!("<section id='{anchor}{HEADING}{heading}</h2><p>{text}</p>{body}</section>")
}

/// A link to each section of `body`.
fn navigation(body: &str) -> String {
    let mut out = String::from("<nav>");
    for part in body.split("<section id='").skip(1) {
        if let Some((anchor, rest)) = part.split_once(HEADING) {
            let heading = rest.split("</h2>").next().unwrap_or_default();
            let _ = write!(out, "<a href='#{anchor}'>{heading}</a>");
        }
    }
    out + "</nav>"
}

fn workloads(campaigns: &[ModeResult]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for campaign in campaigns {
        if !names.contains(&campaign.workload) {
            names.push(campaign.workload.clone());
        }
    }
    names
}

fn tiles(campaigns: &[ModeResult]) -> String {
    let mut modes: Vec<&str> = Vec::new();
    for campaign in campaigns {
        if !modes.contains(&campaign.mode.as_str()) {
            modes.push(&campaign.mode);
        }
    }
    let mut out = String::from("<div class='tiles'>");
    for mode in modes {
        let of = || campaigns.iter().filter(move |c| c.mode == mode);
        let (cuts, failed) = of().fold((0, 0), |(c, f), r| (c + r.cuts, f + r.failed));
        let (rate, workload) = of().next().map_or((0.0, ""), |c| (c.fsyncs_per_s, &c.workload));
        let _ = write!(
            out,
            "<div class='tile {mode}'><span>{}</span><b>{} failed</b>\
             <span>of {}<br>{} fsyncs/s ({}, simulated)</span></div>",
            escape(title(mode)),
            thousands(failed as u64),
            counted(cuts, "power cut"),
            thousands(rate.round() as u64),
            escape(workload),
        );
    }
    out + "</div>"
}

fn modes_table(campaigns: &[ModeResult]) -> String {
    let mut out = String::from(
        "<table class='wide'><tr class='groups'><th colspan='2'></th><th colspan='3'>fsync</th>\
         <th colspan='2'>power cuts</th><th colspan='3'>files</th><th>volume</th>\
         <th colspan='2'>recovery, ms</th><th></th></tr>\
         <tr><th class='name'>mode</th><th class='name'>workload</th><th>per second</th>\
         <th>p50 µs</th><th>p99 µs</th><th>made</th><th>failed</th><th>lost</th>\
         <th>garbage</th><th>torn</th><th>corrupt</th><th>median</th><th>longest</th>\
         <th class='name'>promise</th></tr>",
    );
    for c in campaigns {
        let class = match (c.broken, c.failed) {
            (0, 0) => "kept",
            (0, _) => "none",
            _ => "broken",
        };
        let _ = write!(
            out,
            "<tr><td class='name'>{}</td><td class='name'>{}</td><td>{}</td><td>{:.1}</td>\
             <td>{:.1}</td><td>{}</td>{}{}{}{}{}<td>{:.3}</td><td>{:.3}</td>\
             <td class='name'><span class='{class}'>{}</span></td></tr>",
            escape(title(&c.mode)),
            escape(&c.workload),
            thousands(c.fsyncs_per_s.round() as u64),
            c.fsync_us_p50,
            c.fsync_us_p99,
            thousands(c.cuts as u64),
            count(c.failed),
            count(c.files_lost),
            count(c.files_garbage),
            count(c.files_torn),
            count(c.corrupt),
            c.recovery_ms_p50,
            c.recovery_ms_max,
            promise(c),
        );
    }
    out + "</table>"
}

fn count(n: usize) -> String {
    let class = if n > 0 { " class='some'" } else { "" };
    format!("<td{class}>{}</td>", thousands(n as u64))
}

fn paper_section(campaigns: &[ModeResult]) -> String {
    let mut rows = String::new();
    for (mode, paper, ours) in paper_rows(campaigns) {
        let _ = write!(
            rows,
            "<tr><td class='name'>{}</td><td>1,000</td>{}<td>{}</td>{}</tr>",
            mode.title,
            count(paper),
            thousands(ours.cuts as u64),
            count(ours.failed),
        );
    }
    if rows.is_empty() {
        return String::new();
    }
    section(
        "Table 6.2, the paper's and ours",
        "A file holds a pattern; random blocks are overwritten with the same pattern and fsynced; \
         if any other byte is there after a power cut, the cut has failed. Drive without \
         power-loss protection.",
        &format!(
            "<table class='narrow'><tr class='groups'><th></th><th colspan='2'>the paper</th>\
             <th colspan='2'>ours, simulated</th></tr><tr><th class='name'>mode</th><th>cuts</th>\
             <th>failed</th><th>cuts</th><th>failed</th></tr>{rows}</table>"
        ),
    )
}

fn outcome(campaigns: &[ModeResult]) -> String {
    let rows: Vec<Bar> = campaigns
        .iter()
        .map(|c| {
            let good = c.cuts - c.failed;
            Bar {
                name: format!("{} · {}", title(&c.mode), c.workload),
                parts: vec![
                    (good as f64 / c.cuts.max(1) as f64, "kept", format!("{good} as it must be")),
                    (
                        c.failed as f64 / c.cuts.max(1) as f64,
                        "failed",
                        format!("{} failed", c.failed),
                    ),
                ],
                note: format!("{} failed", thousands(c.failed as u64)),
            }
        })
        .collect();
    bars(&rows, 1.0, "cuts kept and failed")
}

/// The files at one cut of each campaign that did damage, and of one that did none: the others look
/// the same.
fn views(campaigns: &[ModeResult]) -> String {
    let mut out = String::new();
    let mut clean = false;
    for (c, view) in campaigns.iter().filter_map(|c| Some((c, c.view.as_ref()?))) {
        let of = |fate: Fate| thousands(view.counts[fate as usize] as u64);
        let harm = HARM.map(|fate| format!("{} {}", of(fate), fate.word())).join(", ");
        let harmed = HARM.iter().any(|&fate| view.counts[fate as usize] > 0);
        let [kept, open] = [Fate::Kept, Fate::Open].map(of);
        let drawn = harmed || !std::mem::replace(&mut clean, true);
        let what = if view.blocks { "blocks" } else { "files" };
        let cell = match (view.unit, view.blocks) {
            (1, true) => "a cell is a block of 4 KiB".into(),
            (1, false) => "a cell is a file".into(),
            (n, _) => format!("a cell is {n} {what}"),
        };
        let _ = write!(
            out,
            "<div class='view'><b>{} · {}</b>, cut {} at {:.3} ms: {kept} {what} there, {open} old \
             or new, <span class='{}'>{harm}</span>{}</div>",
            escape(title(&c.mode)),
            escape(&c.workload),
            view.cut,
            view.at_ns as f64 / 1e6,
            if harmed { "some" } else { "kept" },
            if drawn {
                format!("; {cell}{}", both(|sheet| lanes::cells(sheet, view)))
            } else {
                String::new()
            },
        );
    }
    if out.is_empty() {
        return out;
    }
    let mut legend = String::from(
        "<div class='legend'><span><i class='kept'></i>durable, and there</span>\
         <span><i class='open'></i>written since its last fsync: old or new, both are right</span>",
    );
    for word in HARM.map(Fate::word) {
        let _ = write!(legend, "<span><i class='{word}'></i>{word}</span>");
    }
    section(
        "Kept and damaged, file by file",
        "Each campaign at its worst cut, or at the middle one if none did damage. Of those \
         without damage only the first is drawn.",
        &format!("{legend}</div>{out}"),
    )
}

fn timeline_sections(all: &[Timeline]) -> String {
    let legend = "<div class='legend'><span><i style='background:var(--flash)'></i>data</span>\
                  <span><i style='background:var(--nobarrier)'></i>node</span>\
                  <span><i style='background:var(--buffer)'></i>flush</span>\
                  <span><i style='background:var(--soft)'></i>other work</span>\
                  <span><i style='background:var(--oprw-strict)'></i>NAND program</span>\
                  <span><i class='returned'></i>fsync returns</span></div>";
    all.chunk_by(|one, next| one.drive == next.drive)
        .map(|of| {
            let drive = of.first().map_or("", |t| &t.drive);
            let of: Vec<&Timeline> = of.iter().collect();
            section(
                &format!("Anatomy of one fsync, {drive}"),
                "After a 4 KiB overwrite: what the CPU does and waits for, commands from their \
                 submission until the host takes the completion, and NAND programs. All modes to \
                 one scale. Simulated.",
                &format!("{legend}{}", both(|sheet| lanes::timelines(sheet, &of))),
            )
        })
        .collect()
}

fn legend(campaigns: &[&ModeResult]) -> String {
    let mut out = String::from("<div class='legend'>");
    for c in campaigns {
        let (mode, title) = (&c.mode, escape(title(&c.mode)));
        let _ = write!(out, "<span><i style='background:var(--{mode})'></i>{title}</span>");
    }
    out + "</div>"
}

fn latency_sections(workload: &str, campaigns: &[&ModeResult]) -> String {
    let all = || campaigns.iter().flat_map(|c| &c.samples).map(|s| s.took_ns as f64 / 1e3);
    let (low, high) = all().fold((f64::MAX, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return String::new();
    }
    let (low, high) = (low.max(0.1) * 0.8, (high * 1.25).max(1.0));
    let scale = Scale::Log(low, high);
    let first = section(
        &format!("fsync latency, {workload}"),
        "Share of fsyncs that returned within a time. Simulated.",
        &format!("{}{}", legend(campaigns), both(|sheet| distribution(sheet, campaigns, scale))),
    );
    let second = section(
        &format!("fsync timeline, {workload}"),
        "Each fsync of the run, and the moments at which a power cut did damage. Simulated.",
        &lanes(campaigns, scale),
    );
    first + &second
}

fn distribution(sheet: Sheet, campaigns: &[&ModeResult], latency: Scale) -> String {
    let mut cdf = Plot::new(sheet, latency, Scale::Linear(0.0, 100.0), LATENCY, "fsyncs, %");
    for c in campaigns {
        let mut values: Vec<f64> = c.samples.iter().map(|s| s.took_ns as f64 / 1e3).collect();
        values.sort_by(f64::total_cmp);
        let n = values.len().max(1) as f64;
        let step = (values.len() / points(sheet)).max(1);
        let last = values.len().saturating_sub(1);
        let some = values.iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last);
        cdf.path(some.map(|(i, &v)| (v, 100.0 * (i + 1) as f64 / n)), &c.mode);
    }
    cdf.finish("cumulative distribution of fsync latency")
}

/// One lane per mode, all to the same scales.
fn lanes(campaigns: &[&ModeResult], latency: Scale) -> String {
    let end = campaigns.iter().map(|c| c.span_ns).max().unwrap_or(0) as f64 / 1e6;
    let mut out = String::new();
    for (i, c) in campaigns.iter().enumerate() {
        let axis =
            if i + 1 == campaigns.len() { "time since the start of the run, ms" } else { "" };
        let time = Scale::Linear(0.0, end.max(1e-6));
        let lane = both(|sheet| {
            let step = c.samples.len().div_ceil(points(sheet)).max(1);
            let mut lane = Plot::with_height(LANE, sheet, time, latency, axis, LATENCY);
            let samples = c.samples.iter().step_by(step);
            lane.dots(samples.map(|s| (s.start_ns as f64 / 1e6, s.took_ns as f64 / 1e3)), &c.mode);
            let failed = c.instants.iter().filter(|(_, failed)| *failed);
            lane.marks(failed.map(|(at, _)| *at as f64 / 1e6), "harm");
            lane.finish("fsync latency over the run")
        });
        let (mode, name) = (&c.mode, escape(title(&c.mode)));
        let _ = write!(
            out,
            "<div class='legend'><span><i style='background:var(--{mode})'></i>{name}</span>\
             <span><i class='harm'></i>failed cuts: {}</span></div>{lane}",
            thousands(c.failed as u64),
        );
    }
    out
}

fn zone_section(map: &ZoneMap) -> String {
    let mut zones = map.zones.clone();
    zones.sort_by_key(|z| std::cmp::Reverse(z.wp_zns.saturating_sub(z.wp_nand)));
    zones.truncate(ZONES);
    zones.sort_by_key(|z| z.zone);
    let room = STRAND_CELLS - CELLS_ABOVE;
    let most = zones.iter().map(|z| z.wp_zns.saturating_sub(z.wp_nand)).max().unwrap_or(0);
    let unit = most.div_ceil(room).max(1);
    let rows: Vec<Strand> = zones
        .iter()
        .map(|z| Strand {
            name: format!("zone {}", z.zone),
            from: z.wp_zns.saturating_sub(room * unit),
            wp_nand: z.wp_nand,
            wp_zns: z.wp_zns,
            capacity: z.capacity,
        })
        .collect();
    let cell = if unit == 1 { "one block".into() } else { format!("{unit} blocks") };
    let legend = "<div class='legend'><span><i style='background:var(--flash)'></i>on NAND: stays\
                  </span><span><i style='background:var(--buffer)'></i>written, not \
                  yet on NAND: gone with the power</span><span><i style='background:var(--track)'>\
                  </i>never written</span><span>▼ wp_zns: where the host writes next</span>\
                  <span>▲ wp_nand: where the zone's write pointer is after the cut</span></div>";
    section(
        "The strand line: zones at one cut",
        &format!(
            "The drive {:.3} ms into the run, at the cut that found most not yet on NAND. A \
             cell is {cell} of 4 KiB; a zone continues beyond what is drawn. Full and empty zones \
             are left out.",
            map.at_ns as f64 / 1e6
        ),
        &format!(
            "{legend}{}",
            both(|sheet| strands(sheet, &rows, unit, "zones with both write pointers"))
        ),
    )
}

fn failures(campaigns: &[ModeResult]) -> String {
    let mut items = String::new();
    for c in campaigns {
        for f in c.failures.iter().take(3) {
            let what = f.verdicts.first().map(ToString::to_string).unwrap_or_default();
            let kind = if f.broken { "broke its promise" } else { "no promise broken" };
            let _ = write!(
                items,
                "<li><b>{} · {} · cut {}</b> ({kind})<br>{}<br><code>{}</code></li>",
                escape(title(&c.mode)),
                escape(&c.workload),
                f.cut,
                escape(&what),
                escape(&f.replay),
            );
        }
    }
    if items.is_empty() {
        return String::new();
    }
    section(
        "Failures, and how to see one again",
        "The first ones of each campaign; the JSON has more.",
        &format!("<ul>{items}</ul>"),
    )
}
