//! The table of a narrow terminal, and the page of a small run.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use f2fs::technique;
use vfs::kind::{Promise, Technique};

use super::{Report, campaign_table, html};
use crate::campaign::{Fate, ModeResult, View};
use crate::paper::experiment::{self, Options};
use crate::workload::recorder::FsyncSample;

/// Limit of a page, in bytes: small enough for a mail and a telephone.
const SIZE_MAX: usize = 500_000;

fn result(mode: &Technique, workload: &str, failed: usize, broken: usize) -> ModeResult {
    ModeResult {
        mode: mode.name.into(),
        drive: "zn540-noplp".into(),
        workload: workload.into(),
        seed: 1,
        fs: "f2fs".into(),
        inject: None,
        cuts: 1_000,
        failed,
        broken,
        promise: Promise {
            durable: true,
            intact: true,
            atomic: true,
            whole: true,
            at_return: false,
        },
        files_lost: 0,
        files_garbage: failed,
        files_torn: 0,
        corrupt: 0,
        simulated: true,
        machine: None,
        fsyncs: 1_000,
        fsyncs_per_s: 1495.2,
        fsync_us_p50: 649.8,
        fsync_us_p99: 1003.0,
        recovery_ms_p50: 8.759,
        recovery_ms_max: 12.132,
        cleanings: 0,
        replayed: 0,
        skipped: 0,
        failures: Vec::new(),
        samples: Vec::new(),
        instants: Vec::new(),
        view: None,
        span_ns: 0,
    }
}

fn width(table: &str) -> usize {
    table.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn a_narrow_terminal_gets_two_tables() {
    let all =
        [result(technique::POSIX, "pattern", 30, 0), result(technique::OPRW, "pattern", 6, 6)];
    let expected = "\
workload: pattern

mode         cuts  failed  lost  garbage  torn  corrupt       promise
─────────────────────────────────────────────────────────────────────
F2FS-posix  1,000      30     0       30     0        0  no guarantee
OPRW-posix  1,000       6     0        6     0        0     BROKEN 6×

mode        fsyncs/s*  p50 µs*  p99 µs*  recovery ms*  max ms*
──────────────────────────────────────────────────────────────
F2FS-posix      1,495    649.8   1003.0         8.759   12.132
OPRW-posix      1,495    649.8   1003.0         8.759   12.132
* simulated drive and machine
";
    assert_eq!(campaign_table(&all, 80), expected);
}

#[test]
fn a_table_is_no_wider_than_the_terminal_and_has_every_cell() {
    let modes = subjects::named("f2fs").expect("it is known").techniques();
    let mut all: Vec<ModeResult> = Vec::new();
    for workload in ["pattern", "versions"] {
        all.extend(modes.iter().map(|mode| result(mode, workload, 1_000, 1_000)));
    }
    all[0].files_lost = 1_234_567;
    let cells = |table: &str| -> BTreeSet<String> {
        let words = table.split("  ").flat_map(|part| part.split('\n'));
        words.map(|word| word.trim_matches(['─', ' ']).to_owned()).collect()
    };
    let whole = campaign_table(&all, usize::MAX);
    assert_eq!(whole.lines().count(), all.len() + 3, "{whole}");
    assert_eq!(campaign_table(&all, width(&whole)), whole);
    for columns in [46, 60, 80, 100, width(&whole) - 1] {
        let table = campaign_table(&all, columns);
        assert!(width(&table) <= columns, "{columns}\n{table}");
        assert_eq!(cells(&table), cells(&whole), "{columns}\n{table}");
    }
    // A terminal of no width still gets all of it.
    assert_eq!(cells(&campaign_table(&all, 0)), cells(&whole));
}

/// A small demo, and the directory it copies.
fn demo() -> &'static (Report, String) {
    static DEMO: OnceLock<(Report, String)> = OnceLock::new();
    DEMO.get_or_init(|| {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report");
        let directory = tree.display().to_string();
        let options = Options { seed: 1, cuts: 50, tree, max_bytes: 1 << 20, threads: 2 };
        let demo = experiment::named("demo").expect("it is known");
        let report = demo.run(&options, &(Arc::new(|_| true) as _), &mut |_| ()).expect("it runs");
        assert!(
            report.campaigns.iter().any(|c| c.failed > 0),
            "no cut failed: the page lacks a part"
        );
        (report, directory)
    })
}

/// What stands between each `from` and the next `to`.
fn between<'a>(page: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    page.split(from).skip(1).filter_map(|part| part.split(to).next()).collect()
}

#[test]
fn each_link_leads_to_one_section() {
    let page = html(&demo().0);
    let links = between(&page, "href='#", "'");
    let sections = between(&page, "<section id='", "'");
    assert!(sections.len() > 8, "{sections:?}");
    assert_eq!(links, sections);
    assert_eq!(sections.iter().collect::<BTreeSet<_>>().len(), sections.len(), "{sections:?}");
}

#[test]
fn the_glossary_has_each_abbreviation() {
    let (report, directory) = demo();
    let page = html(report).replace(directory, "");
    let glossary: BTreeSet<&str> =
        between(&page, "<dt>", "</dt>").into_iter().flat_map(|word| word.split(", ")).collect();
    // Neither style nor commands are for reading; what is in a tag is not seen.
    let seen = between(&page, "<body>", "</body>").concat().replace("<code>", "<code ");
    let seen: Vec<&str> =
        seen.split('<').filter_map(|part| part.split_once('>')).map(|p| p.1).collect();
    let words = seen.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let small = ["ms", "µs", "p50", "p99", "wp_zns", "wp_nand", "fsync"];
    let short: BTreeSet<&str> = words
        .filter(|w| small.contains(w) || w.chars().filter(char::is_ascii_uppercase).count() > 1)
        .collect();
    assert!(small.iter().all(|word| short.contains(word)), "{short:?}");
    let missing: Vec<&&str> = short.iter().filter(|word| !glossary.contains(*word)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(!glossary.contains("versions"), "the demo does not run it");
}

#[test]
fn no_grid_is_there_twice() {
    let page = html(&demo().0);
    let wide: String =
        page.split("</svg>").filter(|drawing| !drawing.contains("class='on-narrow'")).collect();
    let grids: Vec<&str> = wide.split("aria-label='files after the cut'>").skip(1).collect();
    let green = grids
        .iter()
        .filter(|g| !["lost", "torn", "garbage"].iter().any(|c| g.contains(&format!("{c}'"))));
    assert_eq!(green.count(), 1);
    assert!(grids.len() > 1, "the cut that failed is not drawn");
    assert_eq!(grids.iter().collect::<BTreeSet<_>>().len(), grids.len());
}

#[test]
fn the_page_can_be_read_on_a_telephone() {
    let page = html(&demo().0);
    assert!(page.contains("<meta name='viewport' content='width=device-width"));
    // What is wide scrolls within its section; nothing else is wide.
    assert!(page.contains("section {\n") && page.contains("overflow-x: auto"));
    let outside: String =
        page.split("</section>").filter_map(|p| p.split("<section").next()).collect();
    assert!(!outside.contains("<table") && !outside.contains("<svg"), "{outside}");
}

#[test]
fn damage_has_one_word_in_table_picture_and_legend() {
    let mut report = demo().0.clone();
    let harm = ["lost", "garbage", "torn", "corrupt"];
    for (n, fate) in [Fate::Lost, Fate::Torn, Fate::Garbage, Fate::Corrupt].into_iter().enumerate()
    {
        let mut counts = [0; Fate::ALL.len()];
        counts[fate as usize] = n + 1;
        let cells = vec![(fate, "file".to_owned()); n + 1];
        let (cut, at_ns) = (1, 1);
        report.campaigns.truncate(1);
        report.campaigns[0].view = Some(View { cut, at_ns, blocks: false, unit: 1, cells, counts });
        let page = html(&report);
        let word = fate.word();
        let told = harm.map(|of| format!("{} {of}", if of == word { n + 1 } else { 0 })).join(", ");
        assert!(page.contains(&format!("<span class='some'>{told}</span>")), "{told}");
        let drawn = format!("<title>file: {word}</title>");
        assert_eq!(page.matches(&drawn).count(), n + 1, "{word}");
        for of in harm {
            assert!(page.contains(&format!("<th>{of}</th>")), "{of} has no column");
            assert!(page.contains(&format!("<i class='{of}'></i>{of}</span>")), "{of}: no legend");
        }
    }
}

#[test]
fn bars_go_below_their_names_on_a_telephone() {
    let page = html(&demo().0);
    let section = between(&page, "<section id='Keptandfailed'>", "</section>").concat();
    assert!(section.contains("class='bars'") && !section.contains("<svg"), "{section}");
}

#[test]
fn a_page_is_small_even_if_all_fails() {
    let report = &demo().0;
    let size = html(report).len();
    assert!(size < SIZE_MAX / 2, "{size} bytes");
    let mut worst = report.clone();
    let name = "a/rather/long/path/of/a/file/in/a/tree".to_owned();
    for c in &mut worst.campaigns {
        let at = |n: u64| n * 1_000_003;
        c.samples =
            (0..20_000).map(|n| FsyncSample { start_ns: at(n), took_ns: 400 + n }).collect();
        c.instants = (0..10_000).map(|n| (at(2 * n), true)).collect();
        c.span_ns = at(20_000);
        let cells = vec![(Fate::Garbage, name.clone()); 1056];
        let counts = [0, 0, 0, 0, cells.len(), 0];
        c.view = Some(View { cut: 1, at_ns: 1, blocks: false, unit: 1, cells, counts });
    }
    let size = html(&worst).len();
    assert!(size < SIZE_MAX, "{size} bytes");
}
