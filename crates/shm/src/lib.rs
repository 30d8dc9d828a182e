//! Shared memory of one job on one node, and the operating-system services around it.
//!
//! The unsafe code of tradewind's communication lives in this crate, behind types that cannot be
//! misused by accident.
//!
//! | Task | Module |
//! |---|---|
//! | create or map memory that all ranks see | [`segment`] |
//! | allocate from it, each rank in its own range | [`arena`] |
//! | declare types that may lie in it | [`shared`] |
//! | keep checked references into it | [`mapped`] |
//! | keep objects that other processes may still use | [`limbo`] |
//! | label objects that other processes find by their offset | [`object`] |
//! | become a user of such an object | [`connecting`] |
//! | copy and combine the bytes of its data areas | [`memory`] |
//! | copy bytes when the other process may break the protocol | [`word_copy`] |
//! | send and receive such bytes | [`socket`] |
//! | check that memory can be read | [`readable`] |
//! | count completions and sleep until a count is reached | [`completion`], built on [`futex`] |
//! | sleep until other processes change anything else | [`wakeup`] |
//! | poll, then sleep, with checks of the peers | [`wait`] |
//! | publish what a thread waits for | [`published_wait`] |
//! | read the clock that all processes of a node share | [`clock`] |
//! | be notified through epoll | [`event`] |
//! | keep descriptors beside a program that closes all | [`descriptor`] |
//! | lock what one thread uses, as a rule | [`biased_mutex`] |
//! | make the common side of a store-load protocol free of fences | [`fence`] |
//! | tell the way out of a refused system call | [`refusal`] |
//! | watch other processes, bind threads to cores | [`process`] |
//! | start a process that is no child of this one | [`detached`] |
//! | copy to and from the private memory of another process | [`process_memory`] |
//! | divide such a copy between both processes | [`part_claims`] |
//! | identify processes in shared memory and see that they live | [`liveness`] |
//! | record the processes that use an object | [`process_table`], [`process_words`] |
//! | pass descriptors between processes | [`broker`] |
//! | use private memory of a caller in place during a call | [`borrowed`] |
//! | write a protocol that loom can check | [`sync`] |
//!
//! # Rules of this crate
//!
//! 1. **Offsets, never addresses.** Every process maps a segment at another address. Shared memory
//!    refers to other shared memory by [`segment::Offset`]. Private memory may hold addresses for
//!    as long as the segment is mapped.
//! 2. **Commit, then touch.** A page that a full file system cannot supply raises SIGBUS on first
//!    access. [`segment::Segment::commit`] reserves pages first and reports an error;
//!    [`arena::Arena`] commits what it allocates.
//! 3. **Any bit pattern may appear.** Another process can write any bits at any time. Types in
//!    shared memory ([`shared::Shared`]) accept every bit pattern and change by atomics only;
//!    numbers read from shared memory are checked before they serve as offsets or lengths.
//! 4. **Only segment memory is written by other processes.** A process never exposes its private
//!    memory.
//! 5. **No locks across processes.** A rank can be killed between any two instructions. Shared
//!    state therefore changes by single read-modify-writes, and state that needs several steps
//!    (an arena's free list) is private to one process.
//! 6. **Both ends of a release/acquire pair refer to each other** in a comment, and each protocol
//!    has a loom test that includes the source file that runs in production (see [`sync`]).
//! 7. **Recheck the condition after every sleep.** Wake-ups may be spurious, and a sleep flag may
//!    be left over from a thread that did not sleep after all.
//! 8. **A process number does not identify a process.** The kernel reuses numbers; a
//!    [`process::ProcessHandle`] identifies one process for good. A stopped process is not dead: it
//!    may continue and write.
//!
//! Requires Linux 5.3 or later (pidfd_open), on x86_64 or aarch64.

mod announcements;
pub mod arena;
mod bias;
pub mod biased_mutex;
pub mod borrowed;
pub mod broker;
pub mod clock;
pub mod completion;
pub mod connecting;
pub mod descriptor;
pub mod detached;
pub mod event;
pub mod fence;
mod free_list;
pub mod futex;
pub mod inherited;
mod label;
pub mod limbo;
pub mod line_copy;
pub mod liveness;
pub mod mapped;
pub mod memory;
pub mod object;
pub mod owned;
pub mod part_claims;
pub mod prefetch;
pub mod process;
pub mod process_memory;
pub mod process_table;
pub mod process_words;
pub mod published_wait;
pub mod random;
pub mod readable;
pub mod refusal;
pub mod segment;
pub mod shared;
pub mod socket;
pub mod sync;
pub mod wait;
pub mod wakeup;
pub mod word_copy;

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "tradewind needs 64-bit Linux: its shared memory is built on futexes, memfds and pidfds"
);
