//! Grids of numbers, coloured by which side is ahead, as a drawing.

use std::fmt::Write;

use super::curve::alone;
use super::svg::{Sheet, escape, svg};

/// Grids side by side, and how large a cell is.
const ACROSS: usize = 2;
const CELL: (f64, f64) = (33.0, 17.0);
/// Room for the names of rows, and above the cells for the title and the names of columns.
const NAMES: f64 = 44.0;
const HEAD: f64 = 40.0;

/// One grid.
pub struct Cells {
    /// Above it.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// The name of a row, and its cells that are there.
pub(crate) type Row = (String, Vec<Option<Cell>>);

/// What a cell says, and whether that is ahead.
pub(crate) type Cell = (String, bool);

/// An SVG file with the grids, two in a row, and a note below.
pub fn cells(all: &[Cells], note: &str) -> String {
    let (mut body, mut top) = (String::new(), 0.0);
    for pair in all.chunks(ACROSS) {
        let mut below: f64 = top;
        for (grid, column) in pair.iter().zip(0..) {
            let left = f64::from(column) * Sheet::Wide.width() / ACROSS as f64;
            below = below.max(top + one(&mut body, grid, (left, top)));
        }
        top = below + 10.0;
    }
    let _ = write!(body, "<text class='faint' x='8' y='{:.1}'>{}</text>", top + 10.0, escape(note));
    alone(&svg(Sheet::Wide, top + 20.0, note, &body))
}

/// Draws a grid; returns how high it is.
fn one(body: &mut String, grid: &Cells, (left, top): (f64, f64)) -> f64 {
    let x = |column: usize| left + NAMES + column as f64 * CELL.0;
    let title = escape(&grid.title);
    let _ = write!(body, "<text x='{:.1}' y='{:.1}'>{title}</text>", left + 8.0, top + 16.0);
    for (column, name) in grid.columns.iter().enumerate() {
        let at = (x(column) + CELL.0 / 2.0, top + HEAD - 6.0);
        text(body, at, "middle", name);
    }
    for (row, (name, cells)) in grid.rows.iter().enumerate() {
        let y = top + HEAD + row as f64 * CELL.1;
        text(body, (left + NAMES - 5.0, y + 12.0), "end", name);
        for (column, cell) in cells.iter().enumerate() {
            let Some((said, ahead)) = cell else { continue };
            let class = if *ahead { "ahead" } else { "behind" };
            let (wide, high) = (CELL.0 - 1.0, CELL.1 - 1.0);
            let _ = write!(
                body,
                "<rect class='{class}' x='{:.1}' y='{y:.1}' width='{wide}' height='{high}'/>",
                x(column)
            );
            text(body, (x(column) + CELL.0 / 2.0, y + 12.0), "middle", said);
        }
    }
    HEAD + grid.rows.len() as f64 * CELL.1
}

fn text(body: &mut String, (x, y): (f64, f64), anchor: &str, said: &str) {
    let said = escape(said);
    let _ = write!(
        body,
        "<text class='faint' x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{said}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_says_who_is_ahead_and_one_that_is_not_there_is_left_out() {
        let row = vec![Some(("+50%".to_owned(), true)), Some(("-3%".to_owned(), false)), None];
        let columns = ["4k", "8k", "16k"].map(str::to_owned).to_vec();
        let rows = vec![("64k".to_owned(), row)];
        let drawing = cells(&[Cells { title: "a < b".into(), columns, rows }], "a note");
        assert!(drawing.contains("a &lt; b") && drawing.contains("a note"), "{drawing}");
        let counts = ["class='ahead'", "class='behind'", "<rect"];
        assert_eq!(counts.map(|part| drawing.matches(part).count()), [1, 1, 2], "{drawing}");
    }
}
