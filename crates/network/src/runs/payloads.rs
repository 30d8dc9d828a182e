//! The memory of runs, as the transport accesses it.

use super::run::Run;
use super::run_context::{MessageOrigin, RunKey};
use crate::transport::frame::Route;
use crate::transport::payloads::{PayloadLocation, Payloads, SegmentRange};
use interpreter::{Handle, Packet};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// The runs of a node, and what a call of the transport changes about them.
pub(super) struct RunPayloads<'a> {
    pub(super) runs: &'a mut HashMap<RunKey, Run>,
    pub(super) sent: &'a mut Vec<PayloadLocation>,
    pub(super) faulted: &'a mut Vec<(RunKey, MemoryFault)>,
    /// Number of runs that receive long payloads.
    pub(super) long_runs: usize,
}

/// A transfer to or from a run's memory that the system could not carry out.
#[derive(Clone, Copy, Debug)]
pub(super) enum MemoryFault {
    /// The memory of a message that is sent cannot be read.
    Read,
    /// The system has no memory for a message that arrives.
    Write,
}

impl RunPayloads<'_> {
    fn run(&mut self, location: PayloadLocation) -> Option<&mut Run> {
        self.runs.get_mut(&RunKey::of(location))
    }
}

impl Payloads for RunPayloads<'_> {
    fn send(
        &self,
        location: PayloadLocation,
        range: Range<usize>,
        around: [&[IoSlice<'_>]; 2],
        socket: BorrowedFd<'_>,
    ) -> Result<usize, Errno> {
        let run = self.runs.get(&RunKey::of(location)).ok_or(Errno::FAULT)?;
        run.send_payload(Handle(location.operation), range, around, socket)
    }

    fn load(
        &self,
        location: PayloadLocation,
        range: Range<usize>,
        into: &mut [u8],
    ) -> Result<(), Errno> {
        let run = self.runs.get(&RunKey::of(location)).ok_or(Errno::FAULT)?;
        run.load_payload(Handle(location.operation), range, into)
    }

    fn has_runs(&self) -> bool {
        !self.runs.is_empty()
    }

    fn expects_long(&self) -> bool {
        self.long_runs > 0
    }

    fn copy(&mut self, location: PayloadLocation) -> Result<Vec<u8>, Errno> {
        let run = self.runs.get(&RunKey::of(location)).ok_or(Errno::FAULT)?;
        run.copy_payload(Handle(location.operation))
    }

    fn sent(&mut self, location: PayloadLocation) {
        self.sent.push(location);
    }

    fn unreadable(&mut self, location: PayloadLocation) {
        self.faulted.push((RunKey::of(location), MemoryFault::Read));
    }

    fn admit(
        &mut self,
        node: u32,
        route: Route,
        packet: &Packet,
        bytes: u64,
    ) -> Option<PayloadLocation> {
        let Route { destination: rank, communicator, source, sequence, signature } = route;
        let run = self.runs.get_mut(&RunKey { rank, communicator, sequence })?;
        run.admit(MessageOrigin { node, source, signature }, packet, bytes)
    }

    fn withdraw(&mut self, location: PayloadLocation, packet: &Packet) {
        if let Some(run) = self.run(location) {
            run.interpreter.withdraw(Handle(location.operation), packet);
        }
    }

    fn range(&mut self, location: PayloadLocation) -> Option<SegmentRange> {
        self.run(location)?.payload_range(Handle(location.operation))
    }

    fn store(&mut self, location: PayloadLocation, at: usize, bytes: &[u8]) -> bool {
        let receive = Handle(location.operation);
        self.run(location).is_some_and(|run| run.store_payload(receive, at, bytes))
    }

    fn receive(
        &mut self,
        location: PayloadLocation,
        at: usize,
        most: usize,
        socket: BorrowedFd<'_>,
    ) -> Option<Result<usize, Errno>> {
        match self.run(location)?.receive_payload(Handle(location.operation), at, most, socket) {
            // The transport drops the rest of the payload, because the run fails.
            Some(Err(Errno::FAULT)) => {
                self.faulted.push((RunKey::of(location), MemoryFault::Write));
                None
            }
            read => read,
        }
    }
}
