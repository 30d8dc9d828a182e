//! The kernel engine: execution of schedules in the operating system's kernel, on arriving packets.
//!
//! A BPF program at the tcx ingress hook of a network interface interprets the bytes of a
//! [`goal::schedule::Schedule`] unchanged. A collective between nodes therefore advances while no
//! process of the job runs (Schneider, Eckelmann, Hoefler, Rehm, "Kernel-Based Offload of
//! Collective Operations", 2011), without a kernel module. `interpreter` specifies the effect of a
//! schedule. [`Rank`] rejects schedules with joins, computations without a result, arithmetic on other
//! than the [basic types](goal::arithmetic::DataType::is_basic), and large schedules.
//!
//! # Components
//! * [`Loader`] has rights (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON). It loads the program of one job
//!   on one node, attaches it and creates the maps. The attachment is a descriptor, so it ends with
//!   the process, also when that is killed.
//! * [`Rank`] has no rights. It receives [`Handles`], three descriptors: its memory, a ring that
//!   wakes it, and the program, to run it (`BPF_PROG_TEST_RUN`). Usually it starts runs by its
//!   doorbell, a datagram that would leave by the loopback interface, where the program is attached
//!   as well. Where the program does not receive the doorbell, the rank runs the program.
//! * The program, in C, in `bpf/`: `tradewind.bpf.c` contains its entry points; `interpreter.h`
//!   executes, `sending.h` sends, `matching.h` matches messages and receives, `arithmetic.h` and
//!   `float.h` compute, `progress.h` keeps the lists, `ranks.h` finds the ranks' memory and their
//!   owners, `memory.h` accesses memory, `budget.h` bounds the time of an
//!   activation, `datagram.h` classifies packets, `wire.h` sends and receives ([`wire`]).
//!   `bpf/build.sh` compiles it. The object file is part of the repository; a test compares it with
//!   the source.
//!
//! # Maps
//! | map | contents | writer |
//! |---|---|---|
//! | a rank's memory | words, slots for unexpected messages, the arena: schedules, runs, buffers | program, that rank |
//! | `rank_maps`, `wakeups` | maps of all ranks of the node | loader |
//! | `jobs`, `wires`, `peers` | location of each rank; addresses; states derived from the key | loader |
//! | `streams`, `kept_packets` | packets sent and received | program |
//! | `activations`, `scratch_packets` | data of an activation beside its stack, one per core | program |
//!
//! A rank may write anything into its memory, so the program trusts nothing in it: every offset is
//! masked into the arena, every loop is bounded, and data that concerns other ranks comes from maps
//! that no rank can write. The program itself fills in the source of a message. A rank with corrupt
//! memory loses its own results; it cannot monopolise a core, because the kernel ends a loop of the
//! program after a quarter of a second.
//!
//! # Life of a run
//! The rank writes schedule, table of receives and members once, when it registers the schedule.
//! For each run it writes a frame (`struct run`, states of the operations, buffers), pushes it on a
//! stack in its memory and rings. The program `start` takes the whole stack, matches each run with
//! the messages that arrived before it, and executes the ready operations. When the last operation
//! is complete, the program changes the run's first word, the only one that `is_complete` reads,
//! and writes to the ring that a sleeping thread polls. After that it does not access the frame.
//!
//! # Life of a message
//! 1. `send` gathers a piece of the message. It delivers the piece to a rank of this node, or
//!    writes it where the wire keeps packets until they are acknowledged (`wire_claim`,
//!    `wire_post`). If the window is full, the send is suspended and retried.
//! 2. On the other node, `ingress` checks the packet (`wire_receive`) and calls `deliver`.
//! 3. The activation that owns the rank (a word changed by compare-exchange, without waiting)
//!    matches the message with its receive (`accept`). If the receive is posted, the bytes go to
//!    its buffer, otherwise to a slot. An activation that cannot become the owner puts the message
//!    into a slot and marks the rank; the owner checks the mark before it releases the rank.
//! 4. Without a free slot, a message is refused and not acknowledged, which holds its sender back.
//! 5. At the end of the activation, the program executes the ready operations of every rank that
//!    received something.
//! 6. Packets for other nodes are claimed during the activation and sent at its end: no packet is
//!    allocated. Outgoing packets reuse the received skb: all but the last are clones of it, the
//!    last one is the skb itself. Where the interface is one end of a veth pair, they continue at
//!    the other end (`wire_flush`, `wire_verdict`).
//!
//! # Minimum kernel version
//! Linux 6.9 (`may_goto`; tcx is in 6.6), with BTF.

mod error;
mod interface;
mod loader;
mod memory;
mod probe;
mod rank;
mod retransmitter;
mod unacknowledged;
pub mod wire;

pub use error::LoadError;
pub use interface::{Interface, ethernet_interfaces};
pub use loader::{Handles, JobDescription, Loader};
pub use probe::probe;
pub use rank::Rank;
pub use rank::fault::Fault;
