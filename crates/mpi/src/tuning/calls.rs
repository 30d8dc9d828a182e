//! The calls that are measured, in both forms and on both sides.

use crate::abi::Abi;
use crate::collective_names;
use crate::completion;
use crate::host::{Handle, Offset, Pointer, Types, call};
use crate::kind::{Collective, Form, Kind, Lengths};
use crate::signatures::with_collectives;
use std::ffi::c_int;
use std::ptr;
use std::time::{Duration, Instant};

/// Bytes of a block, of which collectives send or receive one for each rank, or one in all.
const BLOCKS: [usize; 8] = [8, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The longest block of calls of which only some ranks have the lengths: it decides about calls of
/// any length.
pub(super) const LONG_BLOCK: usize = 16 << 20;

/// The blocks of such calls.
const BLOCKS_OF_UNKNOWN: [usize; 9] =
    [8, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, LONG_BLOCK];

/// A communicator for the measured collectives.
pub(super) struct Group {
    pub(super) communicator: Handle,
    /// The same ranks as a ring.
    pub(super) ring: Handle,
    pub(super) size: usize,
    /// The rank of this process in it.
    pub(super) rank: usize,
    /// This rank is in a group of that size.
    pub(super) takes_part: bool,
}

/// Side that runs a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Library,
    Here,
}

/// The computation and the lateness beside which a nonblocking call is timed.
#[derive(Clone, Copy, Default)]
pub(super) struct Load {
    /// Seconds of computation between start and completion.
    pub(super) computation: f64,
    /// Each rank in turn starts late, by half of the computation.
    pub(super) is_late: bool,
    pub(super) root: usize,
}

/// The blocks with which a kind is measured; `None` for persistent ones, which go by the nonblocking
/// ones, and for those with lists of types, which are read in each call.
pub(super) fn blocks_of(kind: Kind) -> Option<&'static [usize]> {
    match (kind.collective, kind.collective.lengths()) {
        _ if kind.form == Form::Persistent => None,
        (Collective::Alltoallw | Collective::Neighbor_alltoallw, _) => None,
        (_, Lengths::Nothing) => Some(&[0]),
        (_, Lengths::Unknown | Lengths::Neighbors) => Some(&BLOCKS_OF_UNKNOWN),
        _ => Some(&BLOCKS),
    }
}

/// Number of blocks in the longest buffer of a call.
pub(super) fn blocks_in_buffer(kind: Kind, ranks: usize) -> usize {
    match kind.collective.lengths() {
        Lengths::Nothing | Lengths::Block => 1,
        Lengths::Neighbors => 2,
        Lengths::Blocks | Lengths::List | Lengths::Unknown => ranks,
    }
}

/// The length of a call as the decision sees it.
pub(super) fn length(kind: Kind, block: usize, ranks: usize) -> usize {
    if kind.counts_all_blocks() { block * ranks } else { block }
}

/// Computes for this time.
fn compute(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Arguments of a collective, by the names that all collectives have for them.
#[derive(Clone, Copy)]
struct Arguments {
    send: Pointer,
    sent: c_int,
    send_type: Handle,
    send_counts: *const c_int,
    send_at: *const c_int,
    receive: Pointer,
    received: c_int,
    receive_type: Handle,
    counts: *const c_int,
    displacements: *const c_int,
    root: c_int,
    count: c_int,
    datatype: Handle,
    number_list: *const c_int,
    operation: Handle,
    // Of collectives that are not measured.
    send_types: Types,
    receive_types: Types,
    send_offsets: *const Offset,
    offsets: *const Offset,
}

/// Calls of one collective, with blocks of one size.
pub(super) struct Calls {
    kind: Kind,
    abi: &'static Abi,
    /// That of the calls, which for neighbours is the ring, and that of the ranks.
    communicator: Handle,
    all: Handle,
    size: usize,
    rank: usize,
    takes_part: bool,
    arguments: Arguments,
    /// Memory of the lists among the arguments.
    _lists: [Vec<c_int>; 3],
}

impl Calls {
    /// `buffers` are long enough for a block to and from each rank, as long as the calls are used.
    pub(super) fn new(
        abi: &'static Abi,
        group: &Group,
        (kind, block): (Kind, usize),
        (double, sum): (Handle, Handle),
        (send, receive): (Pointer, Pointer),
    ) -> Self {
        let bytes = block as c_int;
        let places = (0..group.size as c_int).map(|rank| rank * bytes).collect();
        let lists = [vec![bytes; group.size], places, vec![bytes / 8; group.size]];
        let [counts, displacements, number_list] = lists.each_ref().map(|list| list.as_ptr());
        let is_of_neighbors = kind.collective.lengths() == Lengths::Neighbors;
        Calls {
            kind,
            abi,
            communicator: if is_of_neighbors { group.ring } else { group.communicator },
            all: group.communicator,
            size: group.size,
            rank: group.rank,
            takes_part: group.takes_part,
            arguments: Arguments {
                send,
                sent: bytes,
                send_type: abi.byte,
                send_counts: counts,
                send_at: displacements,
                receive,
                received: bytes,
                receive_type: abi.byte,
                counts,
                displacements,
                root: 0,
                count: bytes / 8,
                datatype: double,
                number_list,
                operation: sum,
                send_types: ptr::null(),
                receive_types: ptr::null(),
                send_offsets: ptr::null(),
                offsets: ptr::null(),
            },
            _lists: lists,
        }
    }

    /// Calls the collective `count` times, and returns the time of a call in seconds. A blocking one
    /// has each rank as root in turn. Of a nonblocking one it is the time inside the start and the
    /// completion.
    pub(super) fn repeat(&self, side: Side, count: usize, load: Load) -> f64 {
        if !self.takes_part {
            return 0.0;
        }
        if self.kind.is_blocking() {
            call!(Barrier(self.all));
            let begun = Instant::now();
            for number in 0..count {
                self.call(side, (number % self.size) as c_int, std::ptr::null_mut());
            }
            return begun.elapsed().as_secs_f64() / count as f64;
        }
        let computation = Duration::from_secs_f64(load.computation);
        let exposed = (0..count).map(|number| {
            let is_late = load.is_late && number % self.size == self.rank;
            let delay = if is_late { computation / 2 } else { Duration::ZERO };
            self.expose(side, load.root as c_int, (delay, computation))
        });
        exposed.sum::<f64>() / count as f64
    }

    /// Calls a nonblocking collective after a delay, and returns the time inside its start and its
    /// completion.
    fn expose(&self, side: Side, root: c_int, (delay, load): (Duration, Duration)) -> f64 {
        let mut in_memory: isize = 0;
        let request: Pointer = (&raw mut in_memory).cast();
        call!(Barrier(self.all));
        compute(delay);
        let begun = Instant::now();
        self.call(side, root, request);
        let started = Instant::now();
        compute(load);
        let computed = Instant::now();
        let status = self.abi.ignored_status();
        match side {
            Side::Library => call!(Wait(request, status)),
            Side::Here => completion::wait(request, status),
        };
        ((started - begun) + computed.elapsed()).as_secs_f64()
    }

    /// Calls the collective. `request` receives the request of a nonblocking one.
    fn call(&self, side: Side, root: c_int, request: Pointer) -> c_int {
        let all = Arguments { root, ..self.arguments };
        let communicator = self.communicator;
        /// Both forms of each collective, with the same arguments on both sides.
        macro_rules! collectives {
            ($($Name:ident $name:ident $lengths:ident $decisive:tt
                ($($argument:ident: $type:ty),*) $(lists $lists:expr,)?
                |$call:ident| $start:expr;)*) => {
                match self.kind.collective {$(
                    Collective::$Name => match (side, self.kind.is_blocking()) {
                        (Side::Library, true) => {
                            call!($name::int::blocking($(all.$argument,)* communicator))
                        }
                        (Side::Library, false) => {
                            call!($name::int::nonblocking($(all.$argument,)* communicator, request))
                        }
                        // SAFETY: the buffers are long enough for a block of each rank, the lists
                        // have a number for each, and the request has space for a handle.
                        (Side::Here, true) => unsafe {
                            collective_names::$name::int::blocking::exported(
                                $(all.$argument,)* communicator
                            )
                        },
                        // SAFETY: as above.
                        (Side::Here, false) => unsafe {
                            collective_names::$name::int::nonblocking::exported(
                                $(all.$argument,)* communicator, request
                            )
                        },
                    },
                )*}
            };
        }
        with_collectives!(collectives)
    }
}
