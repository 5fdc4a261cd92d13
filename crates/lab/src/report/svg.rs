//! Small SVG plots. Colours are CSS classes of the page, so that they follow its theme.

use std::fmt::Write;

/// Colours and lines of pages and drawings.
pub(super) const STYLE: &str = include_str!("style.css");

/// How wide a drawing is. Each is in the page twice, and the style shows the one that fits: scaled
/// to a telephone, letters of the wide one could not be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sheet {
    Wide,
    Narrow,
}

impl Sheet {
    /// In units of the drawing.
    pub(super) const fn width(self) -> f64 {
        match self {
            Self::Wide => 960.0,
            Self::Narrow => 400.0,
        }
    }

    /// `wide` or `narrow`.
    pub(super) const fn of<T: Copy>(self, wide: T, narrow: T) -> T {
        match self {
            Self::Wide => wide,
            Self::Narrow => narrow,
        }
    }
}

/// A drawing on both sheets.
pub(super) fn both(draw: impl Fn(Sheet) -> String) -> String {
    draw(Sheet::Wide) + &draw(Sheet::Narrow)
}

const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;

/// Room that a number takes on a horizontal and on a vertical axis.
const NUMBER: (f64, f64) = (42.0, 14.0);

/// For a logarithmic axis: the marks of a decade, and how much of one the closest of them leave
/// between them.
const MARKS: [(f64, &[f64]); 3] =
    [(0.079, &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]), (0.301, &[1.0, 2.0, 5.0]), (1.0, &[1.0])];

/// Cells of a [`Strand`].
pub(super) const STRAND_CELLS: u64 = 48;

/// How values map to a direction.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    Linear(f64, f64),
    /// Decades; both ends above 0.
    Log(f64, f64),
}

impl Scale {
    pub(super) fn part(self, value: f64) -> f64 {
        let part = match self {
            Self::Linear(low, high) => (value - low) / (high - low).max(1e-12),
            Self::Log(low, high) => (value.max(low) / low).ln() / (high / low).ln().max(1e-12),
        };
        part.clamp(0.0, 1.0)
    }

    /// Round numbers on an axis that has room for `room` of them, side by side.
    pub(super) fn ticks(self, room: f64) -> Vec<f64> {
        match self {
            Self::Linear(low, high) => {
                let step = nice((high - low) / room.min(8.0));
                let first = (low / step).ceil() as i64;
                (first..).map(|i| i as f64 * step).take_while(|&t| t <= high * 1.000_001).collect()
            }
            Self::Log(low, high) => {
                let decades = (high / low.max(1e-12)).log10();
                let fit = MARKS.iter().find(|(least, _)| least * room >= decades);
                let marks = fit.map_or(&[1.0][..], |(_, marks)| marks);
                (-9..12)
                    .flat_map(|e| marks.iter().map(move |m| m * 10_f64.powi(e)))
                    .filter(|t| (low..=high).contains(t))
                    .collect()
            }
        }
    }
}

/// The next of 1, 2, 5 × 10ⁿ.
fn nice(step: f64) -> f64 {
    let magnitude = 10_f64.powf(step.max(1e-9).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * magnitude >= step);
    factor.unwrap_or(10.0) * magnitude
}

/// A plot under construction.
pub(super) struct Plot {
    sheet: Sheet,
    x: Scale,
    y: Scale,
    height: f64,
    body: String,
}

impl Plot {
    /// Axes with grid and labels.
    pub(super) fn new(sheet: Sheet, x: Scale, y: Scale, x_label: &str, y_label: &str) -> Self {
        Self::with_height(HEIGHT, sheet, x, y, x_label, y_label)
    }

    /// As [`Plot::new`], so many units high.
    pub(super) fn with_height(
        height: f64,
        sheet: Sheet,
        x: Scale,
        y: Scale,
        x_label: &str,
        y_label: &str,
    ) -> Self {
        let mut plot = Self { sheet, x, y, height, body: String::new() };
        let right = sheet.width() - RIGHT;
        for tick in x.ticks((right - LEFT) / NUMBER.0) {
            let at = plot.px(tick);
            plot.line((at, TOP), (at, height - BOTTOM), "grid");
            plot.text((at, height - BOTTOM + 17.0), "middle", &label(tick));
        }
        for tick in y.ticks((height - TOP - BOTTOM) / NUMBER.1) {
            let at = plot.py(tick);
            plot.line((LEFT, at), (right, at), "grid");
            plot.text((LEFT - 8.0, at + 4.0), "end", &label(tick));
        }
        plot.text(((LEFT + right) / 2.0, height - 6.0), "middle", x_label);
        let middle = (TOP + height - BOTTOM) / 2.0;
        let _ = write!(
            plot.body,
            "<text transform='translate(14 {middle:.1}) rotate(-90)' \
             text-anchor='middle'>{}</text>",
            escape(y_label)
        );
        plot
    }

    fn px(&self, x: f64) -> f64 {
        LEFT + self.x.part(x) * (self.sheet.width() - LEFT - RIGHT)
    }

    fn py(&self, y: f64) -> f64 {
        self.height - BOTTOM - self.y.part(y) * (self.height - TOP - BOTTOM)
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = write!(
            self.body,
            "<line class='{class}' x1='{x1:.1}' y1='{y1:.1}' x2='{x2:.1}' y2='{y2:.1}'/>"
        );
    }

    fn text(&mut self, at: (f64, f64), anchor: &str, text: &str) {
        let ((x, y), text) = (at, escape(text));
        let _ =
            write!(self.body, "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{text}</text>");
    }

    /// A line through `points`.
    pub(super) fn path(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        let mut d = String::new();
        for (i, (x, y)) in points.enumerate() {
            let letter = if i == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{letter}{:.1} {:.1}", self.px(x), self.py(y));
        }
        let _ = write!(self.body, "<path class='curve {class}' d='{d}'/>");
    }

    /// A dot at each of `points`: all are one element, since thousands would be a large page.
    pub(super) fn dots(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        let mut d = String::new();
        for (x, y) in points {
            let _ = write!(d, "M{:.1} {:.1}h0", self.px(x), self.py(y));
        }
        let _ = write!(self.body, "<path class='dot {class}' d='{d}'/>");
    }

    /// A mark on the x axis at each of `places`, one where several would cover each other.
    pub(super) fn marks(&mut self, places: impl Iterator<Item = f64>, class: &str) {
        let mut places: Vec<i64> = places.map(|x| self.px(x).round() as i64).collect();
        places.sort_unstable();
        places.dedup();
        let mut d = String::new();
        for at in places {
            let _ = write!(d, "M{at} {}v9", self.height - BOTTOM - 9.0);
        }
        let _ = write!(self.body, "<path class='{class}' d='{d}'/>");
    }

    /// The finished element.
    pub(super) fn finish(self, title: &str) -> String {
        svg(self.sheet, self.height, title, &self.body)
    }
}

/// One zone near its write pointers, in cells of one or more blocks.
pub(super) struct Strand {
    /// At the left.
    pub(super) name: String,
    /// First block drawn.
    pub(super) from: u64,
    /// Blocks below it are on NAND.
    pub(super) wp_nand: u64,
    /// Blocks below it were written by the host.
    pub(super) wp_zns: u64,
    /// Blocks that can be written.
    pub(super) capacity: u64,
}

/// Rows of cells, `unit` blocks each, with a pointer above and below.
pub(super) fn strands(sheet: Sheet, rows: &[Strand], unit: u64, title: &str) -> String {
    const ROW: f64 = 54.0;
    let (names, notes) = (sheet.of(130.0, 104.0), sheet.of(120.0, 106.0));
    let cell = (sheet.width() - names - notes) / STRAND_CELLS as f64;
    let mut body = String::new();
    for (i, row) in rows.iter().enumerate() {
        let y = 18.0 + i as f64 * ROW;
        let place = |block: u64| names + block.saturating_sub(row.from) as f64 / unit as f64 * cell;
        let _ = write!(
            body,
            "<text x='{x:.1}' y='{:.1}' text-anchor='end'>{}</text>\
             <text class='faint' x='{x:.1}' y='{:.1}' text-anchor='end'>from block {}</text>",
            y + 8.0,
            escape(&row.name),
            y + 23.0,
            row.from,
            x = names - 12.0,
        );
        for n in 0..STRAND_CELLS {
            let block = row.from + n * unit;
            let class = match block {
                b if b >= row.capacity => break,
                b if b + unit <= row.wp_nand => "flash",
                b if b < row.wp_zns => "buffer",
                _ => "track",
            };
            let (x, wide) = (place(block) + 0.5, cell - sheet.of(1.0, 0.5));
            let _ = write!(
                body,
                "<rect class='{class}' x='{x:.1}' y='{y:.1}' width='{wide:.1}' height='16' \
                 rx='1.5'><title>block {block}</title></rect>"
            );
        }
        let (nand, zns, foot) = (place(row.wp_nand), place(row.wp_zns), y + 17.5);
        let _ = write!(
            body,
            "<path class='zns' d='M{zns:.1} {:.1}l-5 -9h10z'/>\
             <path class='nand' d='M{nand:.1} {foot:.1}l-5 9h10z'/>\
             <text x='{note:.1}' y='{:.1}'>wp_zns {}</text>\
             <text x='{note:.1}' y='{:.1}'>wp_nand {}</text>",
            y - 1.5,
            y + 4.0,
            row.wp_zns,
            y + 20.0,
            row.wp_nand,
            note = sheet.width() - notes + 14.0,
        );
    }
    svg(sheet, 8.0 + rows.len() as f64 * ROW, title, &body)
}

/// The element around `body`.
pub(super) fn svg(sheet: Sheet, height: f64, title: &str, body: &str) -> String {
    let (title, width) = (escape(title), sheet.width());
    let class = sheet.of("on-wide", "on-narrow");
    format!(
        "<svg class='{class}' viewBox='0 0 {width} {height}' role='img' aria-label='{title}'>\
         {body}</svg>"
    )
}

/// A number at an axis.
pub(super) fn label(value: f64) -> String {
    if value >= 1e6 {
        format!("{}M", value / 1e6)
    } else if value >= 1e4 {
        format!("{}k", value / 1e3)
    } else {
        format!("{}", (value * 1e3).round() / 1e3)
    }
}

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_within_the_scale() {
        assert_eq!(Scale::Linear(0.0, 10.0).ticks(20.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::Log(10.0, 200.0).ticks(8.0), [10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(Scale::Log(450.0, 1100.0).ticks(8.0), [500.0, 600.0, 800.0, 1000.0]);
        assert_eq!(Scale::Log(0.5, 2e4).ticks(8.0), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(escape("<a b='c'>&"), "&lt;a b=&#39;c&#39;&gt;&amp;");
    }

    #[test]
    fn values_off_the_scale_stay_in_the_picture() {
        assert_eq!(Scale::Linear(0.0, 1.0).part(7.0), 1.0);
        assert_eq!(Scale::Log(1.0, 10.0).part(0.0), 0.0);
    }
}
