//! `fsck.ext4`: e2fsck's letters, as `strandline fsck` knows them. What only e2fsck does is refused
//! with its name.
//!
//! What calls it by this name (fsck(8), systemd, the initramfs) goes by e2fsck's rules: a volume
//! that is marked clean is not looked into without `-f`, and a recovery corrects no error, so the
//! exit status is 0.

use std::ffi::OsString;

/// The command line behind `fsck.ext4`. Letters that are unknown here are left to be refused.
pub(crate) fn translate(words: &[OsString]) -> Vec<OsString> {
    let mut out: Vec<OsString> = vec!["--as-e2fsck".into()];
    let (mut is_forced, mut preens) = (false, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let letters = word.to_str().and_then(|word| word.strip_prefix('-'));
        let Some(letters) = letters.filter(|rest| !rest.is_empty() && !rest.starts_with('-'))
        else {
            out.push(word.clone());
            continue;
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            match letter {
                'f' => is_forced = true,
                'a' | 'p' => preens = true,
                'v' => out.push("-d1".into()),
                'd' => out.push("-d1".into()),
                // Timing, buffers of a device, and what concerns bad blocks only.
                't' | 'F' | 'k' | 'r' => {}
                'b' | 'B' | 'c' | 'D' | 'E' | 'j' | 'l' | 'L' => {
                    out.push(format!("--e2fsck-letter=-{letter}").into());
                    if !"cD".contains(letter) {
                        let _ = value(&mut letters, &mut words);
                    }
                }
                // Where to draw a progress bar.
                'C' => {
                    let _ = value(&mut letters, &mut words);
                }
                'z' => {
                    out.push("-z".into());
                    out.extend(value(&mut letters, &mut words));
                }
                letter => out.push(format!("-{letter}").into()),
            }
        }
    }
    if preens {
        out.push("-p0".into());
    }
    if !is_forced {
        out.push("--unless-clean".into());
    }
    out
}

/// The value of a letter: what is left of its word, or else the next word.
fn value<'a>(
    letters: &mut std::str::Chars<'_>,
    words: &mut impl Iterator<Item = &'a OsString>,
) -> Option<OsString> {
    let rest: String = letters.collect();
    if rest.is_empty() { words.next().cloned() } else { Some(rest.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let said = translate(&words);
        said.iter().filter_map(|word| word.to_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn as_other_programs_call_it() {
        assert_eq!(translated("-a -C0 disk"), "--as-e2fsck disk -p0 --unless-clean");
        assert_eq!(translated("-fn disk"), "--as-e2fsck -n disk");
        assert_eq!(translated("-C 0 -fy disk"), "--as-e2fsck -y disk");
        assert_eq!(translated("-pvf -z log disk"), "--as-e2fsck -d1 -z log disk -p0");
        assert_eq!(translated("-Fkd -fn disk"), "--as-e2fsck -d1 -n disk");
        let letters = "--as-e2fsck --e2fsck-letter=-b --e2fsck-letter=-B -n disk --unless-clean";
        assert_eq!(translated("-b 32768 -B4096 -n disk"), letters);
        assert_eq!(translated("-Q --json disk"), "--as-e2fsck -Q --json disk --unless-clean");
    }
}
