//! The shared memory of one job on one node, and the system's services around it. The unsafe code
//! of tradewind's communication lives in this room, behind types that cannot be misused by
//! accident.
//!
//! | to | go to |
//! |---|---|
//! | make or map memory that all ranks see | [`segment`] |
//! | divide it, each rank its own part | [`arena`] |
//! | say which types may lie in it | [`shared`] |
//! | keep checked references into it | [`mapped`] |
//! | copy and combine the bytes of its data areas | [`memory`] |
//! | copy bytes although the other side may not keep to the protocol | [`word_copy`] |
//! | count completions and sleep until they come | [`completion`], on top of [`futex`] |
//! | fence a frequent side against a rare one for nothing | [`fence`] |
//! | watch other processes, bind threads to cores | [`process`] |
//! | pass descriptors between processes | [`broker`] |
//! | write a protocol that loom can check | [`sync`] |
//!
//! # The rules of the room
//!
//! 1. **Offsets, never addresses.** Every process maps a segment elsewhere. What is written into
//!    shared memory names places by [`segment::Offset`]. A process may keep addresses in its
//!    private memory for as long as the segment is mapped.
//! 2. **Commit, then touch.** A page that a full file system cannot supply kills whoever touches it
//!    (SIGBUS). [`segment::Segment::commit`] reserves it first and reports an error;
//!    [`arena::Arena`] does so by itself.
//! 3. **Anything may stand there.** Another process can write any bits at any time. Types in shared
//!    memory ([`shared::Shared`]) take every bit pattern and are changed by atomics only; numbers
//!    read from it are checked before they are used as places or lengths.
//! 4. **Only memory of the segment is written by others.** No process ever hands out its private
//!    memory.
//! 5. **No locks across processes.** A rank can be killed between any two instructions. So shared
//!    state changes by single read-modify-writes, and what needs several steps (an arena's books)
//!    is private to one process.
//! 6. **Both ends of a release/acquire pair name each other** in a comment, and each protocol has a
//!    loom test that includes the very source file that runs (see [`sync`]).
//! 7. **Look again after every sleep.** A wake-up may come for no reason; a mark may be left by
//!    someone who did not sleep.
//! 8. **A number is not a process.** Numbers are used again; a [`process::ProcessHandle`] is not
//!    fooled. A stopped process is not dead: it may go on and write.
//!
//! Linux 5.3 or later (pidfd_open), on x86_64 and aarch64.

pub mod arena;
pub mod broker;
pub mod completion;
pub mod fence;
mod free_list;
pub mod futex;
pub mod inherited;
pub mod mapped;
pub mod memory;
pub mod owned;
pub mod prefetch;
pub mod process;
pub mod random;
pub mod segment;
pub mod shared;
pub mod sync;
pub mod word_copy;

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "tradewind needs 64-bit Linux: its shared memory is made of futexes, memfds and pidfds"
);
