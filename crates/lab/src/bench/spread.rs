//! The middle of several measurements and how far they lie apart.

use serde::Serialize;

/// A figure over several turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// In the middle.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        let (half, last) = (values.len() / 2, values.len().saturating_sub(1));
        let median = if last % 2 == 0 { at(half) } else { f64::midpoint(at(half - 1), at(half)) };
        Self { median, least: at(0), most: at(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_sorted_values() {
        let spread = |values: &[f64]| Spread::of(values.to_vec());
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(spread(&[4.0, 1.0]), Spread { median: 2.5, least: 1.0, most: 4.0 });
    }
}
