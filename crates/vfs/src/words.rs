//! Numbers of things, for messages.

/// `what`, as many as `number` of them: "cut", "switches", "directories".
pub fn plural(number: u64, what: &str) -> String {
    match (number, what.strip_suffix('y')) {
        (1, _) => what.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        _ if what.ends_with("ch") || what.ends_with("sh") => format!("{what}es"),
        _ => format!("{what}s"),
    }
}

/// A number of things: "1 cut", "2 cuts".
pub fn counted(number: impl TryInto<u64>, what: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {}", plural(number, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let of =
            |number: usize| ["cut", "switch", "flush", "directory"].map(|w| counted(number, w));
        assert_eq!(of(0), ["0 cuts", "0 switches", "0 flushes", "0 directories"]);
        assert_eq!(of(1), ["1 cut", "1 switch", "1 flush", "1 directory"]);
        assert_eq!(of(1500), ["1500 cuts", "1500 switches", "1500 flushes", "1500 directories"]);
    }
}
