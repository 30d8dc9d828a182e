//! The wire alone: what one node sends arrives at another once and as it was, whatever the network
//! does.
//!
//! The program is `echo.bpf.c`: the wire as the kernel engine has it, and an interpreter that
//! only takes notes.

mod delivery;
mod harness;
mod network;
mod recovery;
mod strangers;
