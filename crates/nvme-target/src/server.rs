//! A listening server: its limits, and what the rest of the process can do with it.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cores::{JoinHandle, Mutex, Nanos};
use drive::{Lba, ZoneState};

#[cfg(feature = "auth")]
use crate::auth::Keys;
use crate::connection;
use crate::namespace::Unit;
use crate::power::{After, When};
use crate::subsystem::Subsystem;

/// How many connections beyond the limit are told that there are too many. Others are just closed.
const LOBBY: usize = 32;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the subsystem.
    pub nqn: String,
    /// How many connections there may be. Each is a thread, and has room for one transfer of its
    /// own.
    pub connections: usize,
    /// How many more bytes of transfers all connections together may have under way.
    pub transfer_bytes: u64,
    /// Says that several controllers may share the namespaces. A Linux host then puts its multipath
    /// driver before them, which in 6.1 hides the limits of open and active zones.
    pub shared: bool,
    /// How long a host may take to send Connect, and then to authenticate.
    pub handshake: Nanos,
    /// How long a host may leave answers unread, or data unsent.
    pub patience: Nanos,
    /// Keys of the hosts to serve; all hosts if not given. Discovery requires authentication too.
    #[cfg(feature = "auth")]
    pub keys: Option<Arc<Keys>>,
}

impl Options {
    /// A subsystem `nqn`, with limits that suit a machine with a gigabyte or more.
    pub fn new(nqn: impl Into<String>) -> Self {
        Self {
            nqn: nqn.into(),
            connections: 1024,
            transfer_bytes: 256 << 20,
            shared: false,
            handshake: 10_000_000_000,
            patience: 30_000_000_000,
            #[cfg(feature = "auth")]
            keys: None,
        }
    }
}

/// A running server. Dropping it ends it; the drives stay on.
pub struct Server {
    subsystem: Arc<Subsystem>,
    guests: Arc<Guests>,
    listening: Option<JoinHandle<()>>,
}

/// The present connections.
struct Guests {
    closing: AtomicBool,
    count: AtomicUsize,
    links: Mutex<Vec<(usize, Arc<TcpStream>)>>,
}

/// Counts a connection as long as it exists.
struct Guest {
    guests: Arc<Guests>,
    number: usize,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.links.lock().retain(|(number, _)| *number != self.number);
        self.guests.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Server {
    /// Serves `units` on `listener`.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn start(listener: TcpListener, units: Vec<Unit>, options: Options) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let subsystem = Arc::new(Subsystem::new(units, address, options));
        let guests = Arc::new(Guests {
            closing: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            links: Mutex::new(Vec::new()),
        });
        let (of_thread, known) = (subsystem.clone(), guests.clone());
        let listening =
            cores::spawn("nvme listen", None, move || listen(&listener, &of_thread, &known));
        Ok(Self { subsystem, guests, listening: Some(listening) })
    }

    /// The address where it listens.
    pub fn address(&self) -> SocketAddr {
        self.subsystem.address
    }

    /// The subsystem's name.
    pub fn nqn(&self) -> &str {
        &self.subsystem.options.nqn
    }

    /// The drives.
    pub fn units(&self) -> &[Unit] {
        &self.subsystem.units
    }

    /// Which of the drives has namespace `nsid`.
    pub fn unit_of(&self, nsid: u32) -> Option<usize> {
        self.subsystem.namespace(nsid).map(|namespace| namespace.unit)
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.guests.count.load(Ordering::Acquire)
    }

    /// How many controllers hosts have.
    pub fn controllers(&self) -> usize {
        self.subsystem.controllers().len()
    }

    /// Cuts the power of all drives, now or later, with the choices of `seed`.
    ///
    /// # Errors
    ///
    /// Errors of a drive's file when the power comes back; the power is then off.
    pub fn cut(&self, when: When, seed: u64, after: After) -> io::Result<()> {
        self.subsystem.cut(when, seed, after)
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.subsystem.is_off()
    }

    /// How often the power has failed.
    pub fn cuts(&self) -> u64 {
        self.subsystem.cuts()
    }

    /// Restores the power, with the drives as they are or as they were when saved under `name`.
    /// Also ends a freeze. Hosts lose their controllers. False if no name is given and the power is
    /// on: then hosts keep them.
    ///
    /// # Errors
    ///
    /// No such name, or an error of a drive's file; the power is then off.
    pub fn restore(&self, name: Option<&str>) -> io::Result<bool> {
        self.subsystem.restore(name)
    }

    /// Restores the power with `states` on the drives, in their order; a drive without one stays as
    /// it is. Hosts lose their controllers.
    ///
    /// # Errors
    ///
    /// A state of a drive of another size, or an error of a drive's file; the power is then off.
    pub fn replace(&self, states: &[drive::DriveState]) -> io::Result<()> {
        self.subsystem.replace(states)
    }

    /// Saves what all drives hold under `name`.
    pub fn save(&self, name: &str) {
        self.subsystem.save(name);
    }

    /// Forgets what was saved under `name`; false if nothing was.
    pub fn forget(&self, name: &str) -> bool {
        self.subsystem.forget(name)
    }

    /// Names of what was saved.
    pub fn saved(&self) -> Vec<String> {
        self.subsystem.saved()
    }

    /// Stops answering without a word, or resumes.
    pub fn freeze(&self, frozen: bool) {
        self.subsystem.freeze(frozen);
    }

    /// Makes a zone of drive number `unit` read only or offline, and tells the hosts.
    ///
    /// # Errors
    ///
    /// The drive's status.
    pub fn fail_zone(&self, unit: usize, lba: Lba, state: ZoneState) -> Result<(), drive::Status> {
        self.subsystem.fail_zone(unit, lba, state)
    }

    /// Ends all connections. Returns when the drives are no longer in use.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(listening) = self.listening.take() else { return };
        self.guests.closing.store(true, Ordering::Release);
        // The listener sleeps until a connection comes.
        drop(TcpStream::connect(wake_address(self.address())));
        // It fails only if the listener has ended.
        let _ = listening.result();
        self.subsystem.freeze(false);
        self.subsystem.remove_all();
        for (_, link) in self.guests.links.lock().iter() {
            let _ = link.shutdown(Shutdown::Both);
        }
        while self.connections() > 0 {
            cores::sleep(1_000_000);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where to connect in order to wake the listener at `address`.
fn wake_address(address: SocketAddr) -> SocketAddr {
    match (address.ip().is_unspecified(), address.is_ipv4()) {
        (false, _) => address,
        (true, true) => SocketAddr::from(([127, 0, 0, 1], address.port())),
        (true, false) => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port())),
    }
}

fn listen(listener: &TcpListener, subsystem: &Arc<Subsystem>, guests: &Arc<Guests>) {
    let mut number = 0_usize;
    loop {
        let accepted = listener.accept();
        if guests.closing.load(Ordering::Acquire) {
            return;
        }
        let Ok((link, _)) = accepted else {
            // There are no descriptors left, or the client is gone. Trying again at once would not
            // help.
            cores::sleep(10_000_000);
            continue;
        };
        let count = guests.count.load(Ordering::Acquire);
        let most = subsystem.options.connections;
        if count >= most.saturating_add(LOBBY) || !subsystem.is_there() {
            continue;
        }
        let link = Arc::new(link);
        number = number.wrapping_add(1);
        guests.links.lock().push((number, link.clone()));
        guests.count.fetch_add(1, Ordering::AcqRel);
        let guest = Guest { guests: guests.clone(), number };
        let subsystem = subsystem.clone();
        let serve = move || {
            let _guest = guest;
            connection::serve(subsystem, link, count >= most);
        };
        // If there is no thread for it, only this connection ends.
        drop(cores::try_spawn(&format!("nvme {number}"), None, serve));
    }
}
