//! Making a failing sequence short.

/// The shortest sequence that removing items from `ops` leads to while `fails` stays true: halves
/// first, then ever smaller pieces, until no single operation can go (Zeller and
/// Hildebrandt's delta debugging, 2002, with complements only).
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
        // One by one until a whole round removes nothing.
        piece = if piece == 1 && removed { 1 } else { piece / 2 };
    }
    short
}

/// A proptest strategy for sequences of up to `max` operations. It shrinks by leaving operations
/// out, as each of them has its own seed.
#[cfg(feature = "proptest")]
pub fn sequences(max: usize) -> impl proptest::strategy::Strategy<Value = Vec<super::Op>> {
    use proptest::strategy::Strategy;
    let op = proptest::num::u64::ANY
        .prop_map(|seed| super::Generator::new(seed).random_op())
        .no_shrink();
    proptest::collection::vec(op, 0..max.max(1))
}
