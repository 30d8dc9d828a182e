//! Test of an interface for the kernel engine, by loading the program on it.

use crate::error::LoadError;
use crate::interface::Interface;
use crate::loader::{JobDescription, Loader};
use crate::wire::{Endpoint, Key};
use std::net::Ipv4Addr;

/// Loads the program for a job of one rank, attaches it to the interface and detaches it at once.
///
/// Returns the number of instructions that the kernel's verifier examined; `None` if the kernel does
/// not report it. Nothing is sent, and arriving packets pass.
///
/// # Errors
/// Returns the missing requirement and the way to meet it.
///
/// ```
/// assert!(kernel::probe("no-such-one").is_err());
/// ```
pub fn probe(interface: &str) -> Result<Option<u32>, LoadError> {
    let Interface { name, hardware_address, mtu } = Interface::named(interface)?;
    // No node has this address, so no packet belongs to this job.
    let unused = Endpoint { hardware_address, address: Ipv4Addr::UNSPECIFIED.into(), port: 0 };
    let loader = Loader::load(&JobDescription {
        node: 0,
        node_of_rank: vec![0],
        endpoints: vec![unused],
        number: 0,
        key: Key([0, 0]),
        interface: name,
        mtu,
    })?;
    Ok(loader.verified_instructions())
}
