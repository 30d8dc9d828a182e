//! Runs schedules in the operating system's kernel, on the packets that arrive.
//!
//! A BPF program at the tcx ingress hook of a network interface interprets the bytes of a
//! [`goal::schedule::Schedule`], unchanged. So a collective between nodes advances while no process
//! of the job runs: after Schneider, Eckelmann, Hoefler, Rehm, "Kernel-Based Offload of Collective
//! Operations" (2011), without a kernel module. What a schedule does is what `interpreter` says;
//! which schedules are taken, [`Rank`] says (`admits`): no joins, nothing that computes for its own
//! sake, nothing large.
//!
//! # Who is who
//! * [`Loader`] has rights (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON): it loads the program of one job
//!   on one node, attaches it and makes the maps. The attachment is a descriptor, so it ends with
//!   the process, however that ends.
//! * [`Rank`] has none. It gets [`Handles`], three descriptors: its memory, what wakes it, and the
//!   program, to run it (`BPF_PROG_TEST_RUN`). To start runs it rings: it sends a datagram that
//!   would leave by the loopback interface, where the program is attached, too (`doorbell.rs`).
//!   That is the faster way in; where it is closed, the rank takes the other one.
//! * The program, in C, in `bpf/`: `tradewind.bpf.c` is where it is entered; `interpreter.h`
//!   executes, `matching.h` brings messages and receives together, `arithmetic.h` and `float.h`
//!   compute, `progress.h` keeps the lists, `memory.h` touches memory, `effort.h` bounds an
//!   activation's time, `datagram.h` finds the packets that are for it, `wire.h` sends and receives
//!   ([`wire`]). `bpf/build.sh` compiles it; the object file is part of the repository and a test
//!   compares it with what the source gives.
//!
//! # Maps, and who writes them
//! | map | what | written by |
//! |---|---|---|
//! | a rank's memory | words, slots for messages that nobody wants yet, and the arena: schedules, runs, buffers | program and that rank |
//! | `rank_maps`, `bells` | the maps of all ranks of the node | loader |
//! | `jobs`, `wires`, `peers` | who is where; addresses and what is made of the key | loader |
//! | `streams`, `kept_packets` | what has been sent and has arrived | program |
//! | `activations`, `scratch_packets` | what an activation needs beside its stack, for each processor | program |
//!
//! A rank may write anything into its memory, so the program believes nothing in it: every offset
//! is masked into the arena, every loop is bounded, and what decides about others comes from maps
//! that no rank can write: the source of a message is filled in by the program. A rank that writes
//! garbage harms itself. What it can take from others is time: the kernel ends a loop of the
//! program after a quarter of a second.
//!
//! # The life of a run
//! The rank writes schedule, table of receives and members once
//! ([`network::backend::Backend::register`]). For each run it writes a frame (`struct run`, states
//! of the operations, buffers), pushes it on a stack in its memory and rings. The program `start`
//! takes the whole stack, gives each run what has arrived for it early, and executes what may be
//! executed. When the last operation is complete, the program changes the run's first word, which
//! is all that `is_complete` looks at, and writes to the ring that a sleeper polls. After that it
//! does not touch the frame.
//!
//! # The life of a message
//! 1. `send` gathers a piece of it and brings it to a rank of this node, or writes it where the
//!    wire keeps packets until they have arrived (`wire_claim`, `wire_post`). With no room there,
//!    the send is put by, and tried again when there is some.
//! 2. On the other node `ingress` has the packet checked (`wire_receive`) and calls `deliver`.
//! 3. Who becomes the rank's owner (a word changed by compare-exchange; nobody waits for it)
//!    matches the message with its receive (`accept`): if that is posted, the bytes go to where it
//!    wants them; otherwise to a slot. Who does not become the owner puts the message into a slot
//!    and leaves word; the owner looks again before it goes.
//! 4. With no slot left, a message is refused and so not acknowledged, which holds its sender back.
//! 5. At the end of the activation, every rank that got something is worked for, until nothing may
//!    be executed.
//! 6. Packets leave in the one that has arrived: all but the last as copies of it, the last one as
//!    itself, and where the interface is one end of a pair (veth) at its other end (`wire_flush`,
//!    `wire_verdict`).
//!
//! # Minimum kernel version
//! Linux 6.9 (`may_goto`; tcx is in 6.6), with BTF.

mod arena;
mod bell;
mod books;
mod doorbell;
mod error;
mod fault;
mod interface;
mod layout;
mod loader;
mod pair;
mod prepared;
mod rank;
mod system;
mod tender;
mod trial;
mod unacknowledged;
pub mod wire;

pub use error::LoadError;
pub use fault::Fault;
pub use interface::{Interface, ethernet_interfaces};
pub use loader::{Handles, JobDescription, Loader};
pub use rank::Rank;
pub use trial::try_out;
