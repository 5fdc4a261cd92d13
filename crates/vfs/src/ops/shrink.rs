//! Makes a failing sequence short.

/// Removes items from `ops` while `fails` stays true, and returns the shortest sequence it reaches.
/// It tries halves first, then smaller and smaller pieces, until no single operation can go (delta
/// debugging by Zeller and Hildebrandt, 2002, with complements only).
pub fn shrink<T: Clone>(ops: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut short = ops.to_vec();
    let mut piece = short.len().div_ceil(2);
    while piece > 0 {
        let mut start = 0;
        let mut removed = false;
        while start < short.len() {
            let end = (start + piece).min(short.len());
            let rest = [&short[..start], &short[end..]].concat();
            if fails(&rest) {
                short = rest;
                removed = true;
            } else {
                start = end;
            }
        }
        // Single operations, until a whole round removes none.
        piece = if piece == 1 && removed { 1 } else { piece / 2 };
    }
    short
}

/// A proptest strategy for sequences of up to `max` operations. It shrinks by leaving operations
/// out; the others stay as they are, since each has its own seed.
#[cfg(feature = "proptest")]
pub fn sequences(max: usize) -> impl proptest::strategy::Strategy<Value = Vec<super::Op>> {
    use proptest::strategy::Strategy;
    let op = proptest::num::u64::ANY
        .prop_map(|seed| super::Generator::new(seed).random_op())
        .no_shrink();
    proptest::collection::vec(op, 0..max.max(1))
}
