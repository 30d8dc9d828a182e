//! The wire alone: every message arrives exactly once and unchanged in spite of the network's
//! faults.
//!
//! The program is `echo.bpf.c`: the wire of the kernel engine with an interpreter that only records
//! messages.

mod delivery;
mod harness;
mod network;
mod recovery;
mod strangers;
