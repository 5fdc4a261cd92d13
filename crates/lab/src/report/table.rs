//! Tables for the terminal.

use crate::campaign::ModeResult;
use f2fs::technique;
use vfs::kind::Technique;
use vfs::words::plural;

/// Table 6.2 of the thesis: failures of 1,000 cuts each on a drive without PLP.
pub(crate) const TABLE_6_2_FAILED: [(&Technique, usize); 3] =
    [(technique::POSIX, 30), (technique::STRICT, 0), (technique::OPRW, 0)];

/// Columns of [`campaign_table`].
const HEAD: [&str; 14] = [
    "mode",
    "workload",
    "fsyncs/s*",
    "p50 µs*",
    "p99 µs*",
    "cuts",
    "failed",
    "lost",
    "garbage",
    "torn",
    "corrupt",
    "recovery ms*",
    "max ms*",
    "promise",
];

/// Those of them that say what the cuts found, and those that say what it cost.
const FOUND: &[usize] = &[5, 6, 7, 8, 9, 10, 13];
const COST: &[usize] = &[2, 3, 4, 11, 12];

/// One line per campaign. If that is wider than `width`, a table of what the cuts found, and below
/// it one of what it cost.
pub fn campaign_table(campaigns: &[ModeResult], width: usize) -> String {
    let rows: Vec<Vec<String>> = campaigns.iter().map(cells).collect();
    let machine = campaigns.iter().find_map(|c| c.machine.as_deref());
    let note = format!("* {}\n", machine.unwrap_or("simulated drive and machine"));
    let whole = columns(&HEAD, rows.clone(), 2);
    if fits(&whole, width) {
        return whole + &note;
    }
    // Room is short: a workload that all have in common is named once.
    let (names, common) = match campaigns {
        [first, rest @ ..] if rest.iter().all(|c| c.workload == first.workload) => {
            (&[0][..], format!("workload: {}\n\n", first.workload))
        }
        _ => (&[0, 1][..], String::new()),
    };
    let parts = [FOUND, COST].map(|part| folded(&rows, names, part, width));
    common + &parts.join("\n") + &note
}

/// A campaign's cells, under [`HEAD`].
fn cells(c: &ModeResult) -> Vec<String> {
    vec![
        title(&c.mode).to_owned(),
        c.workload.clone(),
        thousands(c.fsyncs_per_s.round() as u64),
        format!("{:.1}", c.fsync_us_p50),
        format!("{:.1}", c.fsync_us_p99),
        thousands(c.cuts as u64),
        thousands(c.failed as u64),
        thousands(c.files_lost as u64),
        thousands(c.files_garbage as u64),
        thousands(c.files_torn as u64),
        thousands(c.corrupt as u64),
        format!("{:.3}", c.recovery_ms_p50),
        format!("{:.3}", c.recovery_ms_max),
        promise(c),
    ]
}

/// What became of a mode's promise. What failed but was never promised is no merit of the mode's.
pub(super) fn promise(c: &ModeResult) -> String {
    match (c.broken, c.failed) {
        (0, 0) => "kept".into(),
        (0, _) => "no guarantee".into(),
        (broken, _) => format!("BROKEN {broken}×"),
    }
}

/// The columns `names` and `part` of `rows`; of `part` as many in one table as fit, and the rest in
/// others below it.
fn folded(rows: &[Vec<String>], names: &[usize], part: &[usize], width: usize) -> String {
    let table = |of: &[usize]| {
        let of: Vec<usize> = [names, of].concat();
        let head: Vec<&str> = of.iter().map(|&i| HEAD[i]).collect();
        let rows = rows.iter().map(|row| of.iter().map(|&i| row[i].clone()).collect());
        columns(&head, rows.collect(), names.len())
    };
    let mut tables = Vec::new();
    let mut from = 0;
    for next in 1..part.len() {
        if !fits(&table(&part[from..=next]), width) {
            tables.push(table(&part[from..next]));
            from = next;
        }
    }
    tables.push(table(&part[from..]));
    tables.join("\n")
}

fn fits(table: &str, width: usize) -> bool {
    table.lines().all(|line| line.chars().count() <= width)
}

/// The thesis's Table 6.2 beside ours. Empty unless all three modes ran the pattern test.
pub fn paper_table(campaigns: &[ModeResult]) -> String {
    let rows: Vec<Vec<String>> = paper_rows(campaigns)
        .map(|(mode, paper, ours)| {
            let row = [mode.title, "1,000", &paper.to_string()].map(str::to_owned);
            row.into_iter()
                .chain([thousands(ours.cuts as u64), thousands(ours.failed as u64)])
                .collect()
        })
        .collect();
    if rows.len() < TABLE_6_2_FAILED.len() {
        return String::new();
    }
    let head = ["Table 6.2", "paper: cuts", "failed", "ours: cuts", "failed"];
    columns(&head, rows, 1)
}

/// Modes of Table 6.2 with the paper's failures and our campaign.
pub(super) fn paper_rows(
    campaigns: &[ModeResult],
) -> impl Iterator<Item = (&'static Technique, usize, &ModeResult)> {
    TABLE_6_2_FAILED.into_iter().filter_map(|(mode, paper)| {
        let ours = campaigns.iter().find(|c| c.workload == "pattern" && c.mode == mode.name)?;
        Some((mode, paper, ours))
    })
}

pub(super) fn title(mode: &str) -> &str {
    let all = subjects::ALL.iter().flat_map(|format| format.techniques());
    all.into_iter().find(|known| known.name == mode).map_or(mode, |known| known.title)
}

/// Columns as wide as their widest cell; the first `left` are set flush left.
pub(crate) fn columns(head: &[&str], rows: Vec<Vec<String>>, left: usize) -> String {
    let width = |i: usize| {
        let cells = rows.iter().map(|r| r[i].chars().count());
        cells.chain([head[i].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).enumerate().map(|(i, (cell, &w))| {
            if i < left { format!("{cell:<w$}") } else { format!("{cell:>w$}") }
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut out = line(&mut head.iter().copied());
    out += &format!("{}\n", "─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
    for row in &rows {
        out += &line(&mut row.iter().map(String::as_str));
    }
    out
}

/// A number of things: "1 cut", "2 cuts", "3 switches".
pub fn counted(number: impl TryInto<u64>, what: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{} {}", thousands(number), plural(number, what))
}

/// A figure's unit, alone or behind its number, for people. In the JSON `us` stands for `µs`.
pub fn micro(text: &str) -> String {
    match text.strip_suffix("us") {
        Some(number) if number.is_empty() || number.ends_with(' ') => format!("{number}µs"),
        _ => text.to_owned(),
    }
}

/// `1234567` as `1,234,567`.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(12_345_678), "12,345,678");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(0, "cut"), "0 cuts");
        assert_eq!(counted(1, "cut"), "1 cut");
        assert_eq!(counted(1_500, "cut"), "1,500 cuts");
    }

    #[test]
    fn microseconds_have_their_letter() {
        assert_eq!(
            ["us", "2.12 us", "bonus", "", "ms"].map(micro),
            ["µs", "2.12 µs", "bonus", "", "ms"]
        );
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["x".into(), "1".into()], vec!["longer".into(), "1,000".into()]];
        let table = columns(&["name", "n"], rows, 1);
        assert_eq!(table, "name        n\n─────────────\nx           1\nlonger  1,000\n");
    }
}
