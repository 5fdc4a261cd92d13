//! Blanks out everything that is not code, so that the rules need no parser.

/// The text, with comments and the contents of string and character literals replaced by blanks.
/// Lines stay where they are.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_end(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment_end(&chars, at),
            '"' => string_end(&chars, at),
            'r' if !continues_a_word(&chars, at) => raw_string_end(&chars, at),
            '\'' => char_end(&chars, at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { c } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Whether `word` occurs in `code` and is not part of a longer identifier.
pub(super) fn has_word(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(start, _)| {
        !code[..start].ends_with(part) && !code[start + word.len()..].starts_with(part)
    })
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|&c| c == '\n').map_or(chars.len(), |n| at + n)
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of the raw string that begins at `start`, or `start` itself if none does. A `b` before
/// it stays code.
fn raw_string_end(chars: &[char], start: usize) -> usize {
    let hashes = chars[start + 1..].iter().take_while(|&&c| c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return start;
    }
    let closes = |at: usize| {
        chars[at] == '"'
            && chars[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
    };
    (open + 1..chars.len()).find(|&at| closes(at)).map_or(chars.len(), |at| at + 1 + hashes)
}

/// The end of the character literal that begins at `start`, or `start` itself: a lifetime is not a
/// literal.
fn char_end(chars: &[char], start: usize) -> usize {
    match (chars.get(start + 1), chars.get(start + 2)) {
        (Some('\\'), _) => {
            let close =
                chars.get(start + 3..).and_then(|rest| rest.iter().position(|&c| c == '\''));
            close.map_or(chars.len(), |n| start + 3 + n + 1)
        }
        (Some(_), Some('\'')) => start + 3,
        _ => start,
    }
}

fn continues_a_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') && chars[at - 1] != 'b'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let cases = [
            ("a // b", "a     "),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x \" y") g"#, "f(        ) g"),
            (r##"r#"a " b"# c"##, "           c"),
            ("br\"x\" y", "b     y"),
            ("'x' '\\n' '\\'' '\\u{1F}' z", "                       z"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("for r in 0..1", "for r in 0..1"),
            ("/* a\nb */ c", "    \n     c"),
        ];
        for (text, code) in cases {
            assert_eq!(code_only(text), code, "{text}");
        }
    }

    #[test]
    fn an_open_literal_ends_with_the_file() {
        for text in ["\"abc", "/* abc", "r#\"abc\"", "'\\", "\"\\"] {
            assert_eq!(code_only(text).trim(), "", "{text}");
        }
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("let m: HashMap<u8, u8>;", "HashMap"));
        assert!(!has_word("let m: FxHashMap<u8, u8>;", "HashMap"));
        assert!(!has_word("HashMapped", "HashMap"));
    }
}
