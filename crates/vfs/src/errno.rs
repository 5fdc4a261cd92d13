//! Linux's error numbers, for hosts that are not Linux and have other ones. File systems of Linux
//! speak Linux's.

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        #[allow(missing_docs, reason = "their names say what they are")]
        impl Errno {
            $(pub const $name: Self = Self($number);)*
        }

        impl std::fmt::Display for Errno {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.0 {
                    $($number => f.write_str($text),)*
                    other => write!(f, "error {other}"),
                }
            }
        }
    };
}

errnos! {
    PERM = 1, "operation not permitted";
    NOENT = 2, "no such file or directory";
    INTR = 4, "interrupted";
    IO = 5, "input/output error";
    NXIO = 6, "no such device or address";
    TOOBIG = 7, "argument too long";
    BADF = 9, "bad file descriptor";
    AGAIN = 11, "try again";
    ACCESS = 13, "permission denied";
    BUSY = 16, "device or resource busy";
    EXIST = 17, "file exists";
    XDEV = 18, "invalid cross-device link";
    NODEV = 19, "no such device";
    NOTDIR = 20, "not a directory";
    ISDIR = 21, "is a directory";
    INVAL = 22, "invalid argument";
    NOTTY = 25, "not for this kind of file";
    FBIG = 27, "file too large";
    NOSPC = 28, "no space left on device";
    SPIPE = 29, "illegal seek";
    ROFS = 30, "read-only file system";
    MLINK = 31, "too many links";
    RANGE = 34, "result too large";
    NAMETOOLONG = 36, "file name too long";
    NOTEMPTY = 39, "directory not empty";
    LOOP = 40, "too many symbolic links";
    NODATA = 61, "no data available";
    BADMSG = 74, "bad message";
    OVERFLOW = 75, "value too large";
    OPNOTSUPP = 95, "operation not supported";
    UCLEAN = 117, "structure needs cleaning";
    DQUOT = 122, "disk quota exceeded";
    NOKEY = 126, "required key not available";
}

impl Errno {
    /// Linux's number.
    pub fn raw_os_error(self) -> i32 {
        self.0
    }
}

impl std::error::Error for Errno {}
