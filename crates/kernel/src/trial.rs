//! Whether the program can be had on an interface, found out by having it.

use crate::error::LoadError;
use crate::interface::Interface;
use crate::loader::{JobDescription, Loader};
use crate::wire::{Endpoint, Key};
use std::net::Ipv4Addr;

/// Loads the program for a job of one rank, attaches it to the interface and lets it go at once.
/// Gives how many instructions the kernel's verifier looked at, for each entry of the program.
/// Nothing is sent, and what arrives meanwhile passes.
///
/// # Errors
/// What is missing here, and what to do.
///
/// ```
/// assert!(kernel::try_out("no-such-one").is_err());
/// ```
pub fn try_out(interface: &str) -> Result<Vec<(&'static str, u32)>, LoadError> {
    let Interface { name, hardware_address, mtu } = Interface::named(interface)?;
    // Nobody has this address, so no packet is for this job.
    let nowhere = Endpoint { hardware_address, address: Ipv4Addr::UNSPECIFIED.into(), port: 0 };
    let loader = Loader::load(&JobDescription {
        node: 0,
        node_of_rank: vec![0],
        endpoints: vec![nowhere],
        number: 0,
        key: Key([0, 0]),
        interface: name,
        mtu,
    })?;
    Ok(loader.verified_instructions())
}
