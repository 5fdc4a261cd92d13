//! One page that needs nothing else: style and plots are inside, fonts are the reader's own.

use std::fmt::Write;

use super::svg::{Bar, Plot, Scale, bars, escape};
use super::table::{paper_rows, thousands, title};
use super::{Report, ZoneMap};
use crate::campaign::ModeResult;

/// Points a curve or a cloud is thinned to.
const POINTS: usize = 1200;

/// Zones drawn.
const ZONES: usize = 24;

/// The page.
pub fn html(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\
         <meta name='viewport' content='width=device-width, initial-scale=1'>\
         <title>{title}</title><style>{css}</style></head><body><main>\
         <header><h1>{title}</h1><p>{about}</p></header>",
        title = escape(&report.title),
        css = include_str!("style.css"),
        about = escape(&report.about),
    );
    page += &tiles(&report.campaigns);
    page += &section(
        "What each mode kept, and what it cost",
        "Every cut is recovered, every byte compared. Times and rates are of the simulated drive \
         and machine.",
        &modes_table(&report.campaigns),
    );
    page += &paper_section(&report.campaigns);
    page += &section(
        "Recovered and lost",
        "Share of power cuts after which everything was as it must be.",
        &outcome(&report.campaigns),
    );
    for workload in workloads(&report.campaigns) {
        let of: Vec<&ModeResult> =
            report.campaigns.iter().filter(|c| c.workload == workload).collect();
        page += &latency_sections(&workload, &of);
    }
    if let Some(map) = &report.zone_map {
        page += &zone_section(map);
    }
    page += &failures(&report.campaigns);
    let command = escape(&report.command);
    let _ = writeln!(
        page,
        "<footer><p>Repeat with <code>{command}</code>. The same seed gives the same figures.</p>\
         </footer></main></body></html>"
    );
    page
}

fn section(heading: &str, text: &str, body: &str) -> String {
    let (heading, text) = (escape(heading), escape(text));
    format!("<section><h2>{heading}</h2><p>{text}</p>{body}</section>")
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
        let rate = of().next().map_or(0.0, |c| c.fsyncs_per_s);
        let _ = write!(
            out,
            "<div class='tile {mode}'><span>{}</span><b>{} failed</b>\
             <span>of {} power cuts · {} fsyncs/s</span></div>",
            escape(title(mode)),
            thousands(failed as u64),
            thousands(cuts as u64),
            thousands(rate.round() as u64),
        );
    }
    out + "</div>"
}

fn modes_table(campaigns: &[ModeResult]) -> String {
    let mut out = String::from(
        "<table><tr><th class='name'>mode</th><th class='name'>workload</th><th>fsyncs/s</th>\
         <th>p50 µs</th><th>p99 µs</th><th>cuts</th><th>failed</th><th>files lost</th>\
         <th>files garbage</th><th>corrupt</th><th>recovery ms</th><th>max ms</th>\
         <th>promise</th></tr>",
    );
    for c in campaigns {
        let promise = if c.broken > 0 {
            format!("<span class='broken'>broken {}×</span>", c.broken)
        } else {
            "<span class='kept'>kept</span>".into()
        };
        let _ = write!(
            out,
            "<tr><td class='name'>{}</td><td class='name'>{}</td><td>{}</td><td>{:.1}</td>\
             <td>{:.1}</td><td>{}</td>{}{}{}{}<td>{:.3}</td><td>{:.3}</td><td>{promise}</td></tr>",
            escape(title(&c.mode)),
            escape(&c.workload),
            thousands(c.fsyncs_per_s.round() as u64),
            c.fsync_us_p50,
            c.fsync_us_p99,
            thousands(c.cuts as u64),
            count(c.failed),
            count(c.files_lost),
            count(c.files_garbage),
            count(c.corrupt),
            c.recovery_ms_p50,
            c.recovery_ms_max,
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
            "<tr><td class='name'>{}</td><td>1,000</td><td>{paper}</td><td>{}</td>{}</tr>",
            mode.title(),
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
         whenever the power goes, any other byte is a failure. Drive without power-loss \
         protection.",
        &format!(
            "<table><tr><th class='name'>mode</th><th>paper: cuts</th><th>failed</th>\
             <th>ours: cuts</th><th>failed</th></tr>{rows}</table>"
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
                    (good as f64 / c.cuts.max(1) as f64, "ok", format!("{good} as it must be")),
                    (
                        c.failed as f64 / c.cuts.max(1) as f64,
                        "garbage",
                        format!("{} not", c.failed),
                    ),
                ],
                note: format!("{} failed", thousands(c.failed as u64)),
            }
        })
        .collect();
    bars(&rows, 1.0, "recovered and lost")
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
    let mut cdf =
        Plot::new(Scale::Log(low, high), Scale::Linear(0.0, 100.0), "latency, µs", "fsyncs, %");
    for c in campaigns {
        let mut values: Vec<f64> = c.samples.iter().map(|s| s.took_ns as f64 / 1e3).collect();
        values.sort_by(f64::total_cmp);
        let n = values.len().max(1) as f64;
        let step = (values.len() / POINTS).max(1);
        let last = values.len().saturating_sub(1);
        let points = values.iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last);
        cdf.path(points.map(|(i, &v)| (v, 100.0 * (i + 1) as f64 / n)), &c.mode);
    }
    let end = campaigns.iter().map(|c| c.span_ns).max().unwrap_or(0) as f64 / 1e6;
    let mut line = Plot::new(
        Scale::Linear(0.0, end.max(1e-6)),
        Scale::Log(low, high),
        "time since the start of the run, ms",
        "latency, µs",
    );
    for c in campaigns {
        let step = c.samples.len().div_ceil(POINTS).max(1);
        for s in c.samples.iter().step_by(step) {
            line.dot(s.start_ns as f64 / 1e6, s.took_ns as f64 / 1e3, 1.6, &c.mode);
        }
    }
    let legend = legend(campaigns);
    let first = section(
        &format!("fsync latency, {workload}"),
        "Share of fsyncs that returned within a time. Simulated.",
        &format!("{legend}{}", cdf.finish("cumulative distribution of fsync latency")),
    );
    let second = section(
        &format!("fsync timeline, {workload}"),
        "Each fsync of the run. Simulated.",
        &format!("{legend}{}", line.finish("fsync latency over the run")),
    );
    first + &second
}

fn zone_section(map: &ZoneMap) -> String {
    let full = map.zones.iter().map(|z| z.wp_zns).max().unwrap_or(1) as f64;
    let rows: Vec<Bar> = map
        .zones
        .iter()
        .take(ZONES)
        .map(|z| Bar {
            name: format!("zone {}", z.zone),
            parts: vec![
                (z.wp_nand as f64, "flash", format!("on NAND: blocks 0..{}", z.wp_nand)),
                (
                    z.wp_zns.saturating_sub(z.wp_nand) as f64,
                    "buffer",
                    format!("only buffered: blocks {}..{}", z.wp_nand, z.wp_zns),
                ),
            ],
            note: format!("{} / {}", z.wp_nand, z.wp_zns),
        })
        .collect();
    let legend = "<div class='legend'><span><i style='background:var(--flash)'></i>below wp_nand: \
                  on flash</span><span><i style='background:var(--buffer)'></i>between wp_nand \
                  and wp_zns: gone with the power</span></div>";
    section(
        "The strand line: zones at one cut",
        &format!(
            "The drive {:.3} ms into the run, with the most blocks in its buffer of all cuts. \
             Figures are blocks of 4 KiB from the zone's start: wp_nand / wp_zns. Full and empty \
             zones are left out.",
            map.at_ns as f64 / 1e6
        ),
        &format!("{legend}{}", bars(&rows, full, "zones with both write pointers")),
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
                "<li>{} · {} · cut {} ({kind}): {}<br><code>{}</code></li>",
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
        "The first of each campaign; the JSON has more.",
        &format!("<ul>{items}</ul>"),
    )
}
