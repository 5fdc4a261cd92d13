//! Persistence as types: what was stored but not written back, what is on its way, what is durable.
//!
//! An [`Obj`] is some bytes of the memory, known to be one of three things: [`Dirty`], [`Flying`]
//! or [`Durable`]. Storing makes it dirty, [`Obj::write_back`] sends it on its way, and [`fence`]
//! is the only way to something durable. A commit point takes durable objects as witnesses
//! ([`Obj::commit`]), so to forget a write-back or a fence is an error of the compiler. Such an
//! object can be neither copied nor sent to another thread, because a fence counts for its own core
//! only. The idea is SquirrelFS's (OSDI 2024); theirs has more states and is about one format.
//!
//! The types order persistence. That the *right* object is a witness, at the right address, they
//! cannot know: that is what exploring all crash states is for.
//!
//! ```
//! use drive::pm::{Domain, PmSim, PmState, typed::{Obj, fence, stream}};
//!
//! struct Data;
//! struct Tail;
//! struct Committed;
//! let pm = PmSim::power_on(PmState::new(1 << 16), Domain::Memory);
//! // Data and something else go together, then the word that makes them count.
//! let data = stream::<Data>(&*pm, 4096, b"what it points to");
//! let entry = Obj::<Tail>::settled(&*pm, 64, 64).store(0, b"entry").write_back();
//! let (data, entry) = fence(&*pm, (data, entry));
//! let committed = Obj::<Tail>::settled(&*pm, 0, 8).commit::<Committed>(0, 64, (&data, &entry));
//! let done = fence(&*pm, committed.write_back());
//! assert!(pm.pending().is_settled());
//! # let _ = (data, entry, done);
//! ```
//!
//! Each of these is wrong, and none compiles:
#![doc = include_str!("typed_wrong.md")]

use std::marker::PhantomData;

use super::{Pm, WORD};

/// Stored, not written back: may be lost, or evicted and durable, at any time.
pub enum Dirty {}
/// Streamed or written back, not fenced.
pub enum Flying {}
/// Survives a cut.
pub enum Durable {}

/// Some bytes of a memory: a `T`, in the state `P` of persistence.
#[must_use = "what was stored must be written back and fenced"]
pub struct Obj<'pm, T, P = Durable> {
    pm: &'pm dyn Pm,
    at: u64,
    len: u64,
    _state: PhantomData<fn() -> (T, P)>,
    /// A pointer, so that it is not `Send`.
    _local: PhantomData<*const ()>,
}

impl<'pm, T> Obj<'pm, T, Durable> {
    /// Bytes about which nothing is on its way. That is so between two calls of a file system whose
    /// calls end with a fence, as long as the caller has locked what the bytes belong to.
    pub fn settled(pm: &'pm dyn Pm, at: u64, len: u64) -> Self {
        Self::new(pm, at, len)
    }

    /// Stores a word that makes the `witnesses` count, which must be durable. `offset` is relative
    /// to the object, which becomes a `C`.
    pub fn commit<C>(self, offset: u64, word: u64, witnesses: impl Witness) -> Obj<'pm, C, Dirty> {
        let _ = witnesses;
        self.check(offset, WORD);
        self.pm.store_word(self.at + offset, word);
        Obj::new(self.pm, self.at, self.len)
    }
}

impl<'pm, T, P: Storable> Obj<'pm, T, P> {
    /// Stores `bytes` at `offset`, relative to the object.
    pub fn store(self, offset: u64, bytes: &[u8]) -> Obj<'pm, T, Dirty> {
        self.check(offset, bytes.len() as u64);
        self.pm.store(self.at + offset, bytes);
        Obj::new(self.pm, self.at, self.len)
    }
}

impl<'pm, T> Obj<'pm, T, Dirty> {
    /// Sends all of it on its way.
    pub fn write_back(self) -> Obj<'pm, T, Flying> {
        self.pm.write_back(self.at, self.len);
        Obj::new(self.pm, self.at, self.len)
    }
}

impl<'pm, T, P> Obj<'pm, T, P> {
    const fn new(pm: &'pm dyn Pm, at: u64, len: u64) -> Self {
        Self { pm, at, len, _state: PhantomData, _local: PhantomData }
    }

    fn check(&self, offset: u64, len: u64) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "{len} bytes at {offset} of {}", self.len);
    }
}

/// Objects in the same state, of which only that is kept: for a commit that relies on all of them.
#[must_use = "what was stored must be written back and fenced"]
pub struct Group<'pm, T, P> {
    _objects: PhantomData<Obj<'pm, T, P>>,
}

impl<'pm, T> Group<'pm, T, Flying> {
    /// Without any objects.
    pub const fn new() -> Self {
        Self { _objects: PhantomData }
    }

    /// Adds one.
    pub fn add(&mut self, flying: Obj<'pm, T, Flying>) {
        let _ = flying;
    }
}

impl<T> Default for Group<'_, T, Flying> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'pm, T> FromIterator<Obj<'pm, T, Flying>> for Group<'pm, T, Flying> {
    fn from_iter<I: IntoIterator<Item = Obj<'pm, T, Flying>>>(objects: I) -> Self {
        let mut group = Self::new();
        objects.into_iter().for_each(|flying| group.add(flying));
        group
    }
}

/// Stores `bytes` past the cache.
pub fn stream<'pm, T>(pm: &'pm dyn Pm, at: u64, bytes: &[u8]) -> Obj<'pm, T, Flying> {
    pm.stream(at, bytes);
    Obj::new(pm, at, bytes.len() as u64)
}

/// As [`stream`], of bytes that the cache has or should have.
pub fn stream_cached<'pm, T>(pm: &'pm dyn Pm, at: u64, bytes: &[u8]) -> Obj<'pm, T, Flying> {
    pm.stream_cached(at, bytes);
    Obj::new(pm, at, bytes.len() as u64)
}

/// Waits until what is `flying` is durable: the only source of [`Durable`] objects that were
/// stored. The argument is on its way before the fence is issued, since it is evaluated first.
pub fn fence<F: InFlight>(pm: &dyn Pm, flying: F) -> F::Landed {
    pm.fence();
    flying.landed(&Fence(()))
}

/// Shows that a fence was issued.
pub struct Fence(());

/// What can be stored to: nothing of it is on its way.
pub trait Storable: sealed::Sealed {}
impl Storable for Dirty {}
impl Storable for Durable {}

/// Something on its way.
#[diagnostic::on_unimplemented(
    message = "this is not on its way, so a fence does nothing for it",
    note = "write it back first"
)]
pub trait InFlight {
    /// The same, durable.
    type Landed;

    /// For [`fence`].
    fn landed(self, fence: &Fence) -> Self::Landed;
}

impl<'pm, T> InFlight for Obj<'pm, T, Flying> {
    type Landed = Obj<'pm, T, Durable>;

    fn landed(self, _: &Fence) -> Self::Landed {
        Obj::new(self.pm, self.at, self.len)
    }
}

impl<'pm, T> InFlight for Group<'pm, T, Flying> {
    type Landed = Group<'pm, T, Durable>;

    fn landed(self, _: &Fence) -> Self::Landed {
        Group { _objects: PhantomData }
    }
}

impl<F: InFlight> InFlight for Vec<F> {
    type Landed = Vec<F::Landed>;

    fn landed(self, fence: &Fence) -> Self::Landed {
        self.into_iter().map(|flying| flying.landed(fence)).collect()
    }
}

impl<F: InFlight> InFlight for Option<F> {
    type Landed = Option<F::Landed>;

    fn landed(self, fence: &Fence) -> Self::Landed {
        self.map(|flying| flying.landed(fence))
    }
}

/// Something durable, on which a commit may rely.
#[diagnostic::on_unimplemented(
    message = "a commit cannot rely on this: it is not durable",
    note = "write it back and fence it first"
)]
pub trait Witness: sealed::Sealed {}

impl<T> Witness for &Obj<'_, T, Durable> {}
impl<T> Witness for &Group<'_, T, Durable> {}
impl<W> Witness for &Vec<W> where for<'a> &'a W: Witness {}
impl<W> Witness for &Option<W> where for<'a> &'a W: Witness {}
/// Nothing needs to be durable before.
impl Witness for () {}

macro_rules! tuples {
    ($(($($name:ident $index:tt),+))+) => {$(
        impl<$($name: InFlight),+> InFlight for ($($name,)+) {
            type Landed = ($($name::Landed,)+);

            fn landed(self, fence: &Fence) -> Self::Landed {
                ($(self.$index.landed(fence),)+)
            }
        }

        impl<$($name: Witness),+> Witness for ($($name,)+) {}
        impl<$($name: sealed::Sealed),+> sealed::Sealed for ($($name,)+) {}
    )+};
}

tuples! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }

mod sealed {
    use super::{Dirty, Durable, Group, Obj};

    pub trait Sealed {}
    impl Sealed for Dirty {}
    impl Sealed for Durable {}
    impl Sealed for () {}
    impl<T> Sealed for &Obj<'_, T, Durable> {}
    impl<T> Sealed for &Group<'_, T, Durable> {}
    impl<W> Sealed for &Vec<W> where for<'a> &'a W: Sealed {}
    impl<W> Sealed for &Option<W> where for<'a> &'a W: Sealed {}
}
