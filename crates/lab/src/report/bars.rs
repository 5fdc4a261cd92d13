//! Horizontal bars. They are elements of the page, not a drawing: on a narrow screen a bar goes
//! below its name, where a drawing would be cut off or too small to read.

use std::fmt::Write;

use super::svg::escape;

/// One bar.
pub(super) struct Bar {
    /// At the left, or above.
    pub(super) name: String,
    /// `(value, class, tooltip)`, left to right.
    pub(super) parts: Vec<(f64, &'static str, String)>,
    /// At the right.
    pub(super) note: String,
}

/// Bars as long as the whole if their values add up to `full`. The style gives each part a least
/// width: one failure in a thousand must still be visible.
pub(super) fn bars(rows: &[Bar], full: f64, title: &str) -> String {
    let mut out = format!("<div class='bars' role='img' aria-label='{}'>", escape(title));
    for row in rows {
        let name = escape(&row.name);
        let _ = write!(out, "<span class='of'>{name}</span><span class='bar'>");
        let mut rest = full;
        for (value, class, tip) in row.parts.iter().filter(|(value, ..)| *value > 0.0) {
            rest -= value;
            let tip = escape(tip);
            let _ =
                write!(out, "<i class='{class}' style='flex-grow:{value:.4}' title='{tip}'></i>");
        }
        if rest > 0.0 {
            let _ = write!(out, "<i style='flex-grow:{rest:.4}'></i>");
        }
        let _ = write!(out, "</span><span class='note'>{}</span>", escape(&row.note));
    }
    out + "</div>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_as_wide_as_its_share_and_nothing_is_no_part() {
        let parts = vec![(0.25, "kept", "1 <i>".into()), (0.0, "failed", "none".into())];
        let bar = Bar { name: "a & b".into(), parts, note: "0 failed".into() };
        let expected = "<div class='bars' role='img' aria-label='cuts'>\
            <span class='of'>a &amp; b</span><span class='bar'>\
            <i class='kept' style='flex-grow:0.2500' title='1 &lt;i&gt;'></i>\
            <i style='flex-grow:0.7500'></i></span><span class='note'>0 failed</span></div>";
        assert_eq!(bars(&[bar], 1.0, "cuts"), expected);
    }
}
