//! How a mount ended, from the process that served it to `umount`, which waits for it. The kernel
//! passes nothing on: its umount(2) has succeeded when the server writes its last checkpoint.
//!
//! `umount` listens on a socket without a name in any directory (unix(7), abstract), and tells the
//! server where. The server sends one message before it lets the image go; so the message
//! is there once the image is free, or else the server has died.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The request by which a server learns of a listener.
pub(crate) const REQUEST: &str = "ending=";
/// The longest reason.
const MESSAGE_MAX: usize = 4096;

/// The end of `umount`.
pub(crate) struct Listener {
    socket: UnixDatagram,
    name: String,
}

impl Listener {
    /// A new one, with a name that no other process uses.
    pub(crate) fn new() -> io::Result<Self> {
        let (id, now) = (std::process::id(), cores::wall_clock().as_nanos());
        let name = format!("strandline-umount-{id}-{now:x}");
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, name })
    }

    /// What to ask the server for.
    pub(crate) fn request(&self) -> String {
        format!("{REQUEST}{}", self.name)
    }

    /// As [`Listener::heard`], waiting for it. The server may have died: not longer than a minute.
    pub(crate) fn wait(&self) -> Option<Result<(), String>> {
        self.socket.set_nonblocking(false).ok()?;
        self.socket.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
        self.heard()
    }

    /// What the server has said: nothing, that all went well, or what was lost.
    pub(crate) fn heard(&self) -> Option<Result<(), String>> {
        let mut message = [0; MESSAGE_MAX];
        let len = self.socket.recv(&mut message).ok()?;
        Some(match String::from_utf8_lossy(&message[..len]).into_owned() {
            all_well if all_well.is_empty() => Ok(()),
            lost => Err(lost),
        })
    }
}

/// The end of the server.
pub(crate) struct Speaker(UnixDatagram);

impl Speaker {
    /// To the listener of this name; fails if there is none.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A listener that does not read must not keep a volume mounted.
        socket.set_nonblocking(true)?;
        socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        Ok(Self(socket))
    }

    /// Says what was lost, if anything was.
    pub(crate) fn say(&self, lost: Option<&str>) {
        let message = lost.unwrap_or_default().as_bytes();
        // A listener that has gone does not wait any more.
        let _ = self.0.send(&message[..message.len().min(MESSAGE_MAX)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let (silent, listener) =
            (Listener::new().expect("a socket"), Listener::new().expect("one"));
        let name = listener.request();
        let speaker =
            Speaker::new(name.strip_prefix(REQUEST).expect("a name")).expect("it listens");
        assert_eq!(listener.heard(), None);
        speaker.say(None);
        assert_eq!(listener.heard(), Some(Ok(())));
        speaker.say(Some("12 MiB"));
        assert_eq!(listener.heard(), Some(Err("12 MiB".into())));
        assert_eq!((silent.heard(), listener.heard()), (None, None));
        speaker.say(None);
        assert_eq!(listener.wait(), Some(Ok(())));
        assert!(Speaker::new("strandline-umount-nobody").is_err());
    }
}
