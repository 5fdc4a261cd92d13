//! One curve as a drawing of its own.

use super::svg::{Plot, STYLE, Scale, Sheet};

/// An SVG file with one curve through the points, from left to right. Both axes begin at 0.
pub fn curve(points: &[(f64, f64)], x_label: &str, y_label: &str) -> String {
    let mut points = points.to_vec();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let most = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(0.0, f64::max);
    let scale = |most: f64| Scale::Linear(0.0, most * 1.05);
    let mut plot =
        Plot::new(Sheet::Wide, scale(most(|p| p.0)), scale(most(|p| p.1)), x_label, y_label);
    plot.path(points.iter().copied(), "oprw");
    plot.dots(points.iter().copied(), "oprw");
    alone(&plot.finish(x_label))
}

/// A drawing as a file of its own, with its style.
pub(super) fn alone(drawing: &str) -> String {
    let head = "<svg xmlns='http://www.w3.org/2000/svg' style='background: var(--card)' ";
    let drawing = drawing.replacen("<svg ", head, 1);
    drawing.replacen("'>", &format!("'><style>{STYLE}</style>"), 1) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_stands_alone() {
        let drawing = curve(&[(1.0, 10.0), (2.0, 20.0)], "cores: <b>", "operations/s");
        assert!(drawing.starts_with("<svg xmlns='http://www.w3.org/2000/svg'"), "{drawing}");
        let [style, path] = ["<style>", "<path"].map(|part| drawing.find(part));
        assert!(style.is_some() && style < path, "{drawing}");
        let other_way_round = curve(&[(2.0, 20.0), (1.0, 10.0)], "cores: <b>", "operations/s");
        assert_eq!(other_way_round, drawing);
        assert!(!drawing.contains("<b>") && drawing.contains("cores: &lt;b&gt;"), "{drawing}");
    }
}
