//! What a copy keeps besides contents: `--preserve` and related options.

use vfs::Attr;

/// The attributes of cp(1)'s `--preserve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    pub(crate) mode: bool,
    pub(crate) ownership: bool,
    pub(crate) timestamps: bool,
    pub(crate) links: bool,
    pub(crate) xattr: bool,
    /// An attribute that cannot be kept is an error.
    pub(crate) strict_xattr: bool,
    /// Permission bits a new file does not get, unless its mode is kept.
    pub(crate) umask: u16,
}

impl Default for Keep {
    fn default() -> Self {
        Self { umask: 0, ..Self::none() }.with("all", true).unwrap_or_else(|_| Self::none())
    }
}

impl Keep {
    /// Contents only.
    pub(crate) fn none() -> Self {
        Self {
            mode: false,
            ownership: false,
            timestamps: false,
            links: false,
            xattr: false,
            strict_xattr: false,
            umask: umask(),
        }
    }

    /// With one of `--preserve`'s words switched on or off; the error names those there are.
    pub(crate) fn with(mut self, word: &str, on: bool) -> Result<Self, String> {
        match word {
            "mode" => self.mode = on,
            "ownership" => self.ownership = on,
            "timestamps" => self.timestamps = on,
            "links" => self.links = on,
            "xattr" => {
                self.xattr = on;
                self.strict_xattr = on;
            }
            // SELinux contexts are `security.` attributes and go with those.
            "context" => {}
            "all" => {
                self = Self {
                    mode: on,
                    ownership: on,
                    timestamps: on,
                    links: on,
                    xattr: on,
                    strict_xattr: false,
                    umask: self.umask,
                }
            }
            _ => {
                let known = "mode, ownership, timestamps, links, context, xattr, all";
                return Err(format!("invalid attribute '{word}'; there are {known}"));
            }
        }
        Ok(self)
    }

    /// Permission bits for the copy of a file with `attr`.
    pub(crate) fn perm(&self, attr: &Attr) -> u16 {
        if self.mode { attr.perm } else { attr.perm & 0o777 & !self.umask }
    }
}

/// This process's umask, which can only be read by setting it.
fn umask() -> u16 {
    use rustix::process::umask;
    let old = umask(rustix::fs::Mode::empty());
    umask(old);
    (old.bits() & 0o777) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_cp() {
        assert_eq!(Keep::none().with("all", true), Ok(Keep { umask: umask(), ..Keep::default() }));
        let keep = Keep::default().with("ownership", false).unwrap();
        assert!(keep.mode && keep.xattr && !keep.ownership && !keep.strict_xattr);
        assert!(Keep::none().with("xattr", true).unwrap().strict_xattr);
        assert!(Keep::none().with("owner", true).is_err());
    }
}
