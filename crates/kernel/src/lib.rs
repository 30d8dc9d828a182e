//! Runs schedules in the operating system's kernel: the BPF interpreter and its loader.

pub mod wire;
