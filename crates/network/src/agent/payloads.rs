//! The memory of runs, as the transport accesses it.

use super::run::{MessageOrigin, Run, RunKey};
use crate::transport::frame::Route;
use crate::transport::payloads::{Payloads, Place};
use interpreter::{Handle, Packet};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// The runs of a node, and what a call of the transport changes about them.
pub(super) struct RunPayloads<'a> {
    pub(super) runs: &'a mut HashMap<RunKey, Run>,
    pub(super) sent: &'a mut Vec<Place>,
    pub(super) faulted: &'a mut Vec<RunKey>,
}

impl RunPayloads<'_> {
    fn run(&mut self, place: Place) -> Option<&mut Run> {
        self.runs.get_mut(&RunKey::of(place))
    }
}

impl Payloads for RunPayloads<'_> {
    fn send(
        &self,
        place: Place,
        range: Range<usize>,
        head: &[IoSlice<'_>],
        socket: BorrowedFd<'_>,
    ) -> Result<usize, Errno> {
        let run = self.runs.get(&RunKey::of(place)).ok_or(Errno::FAULT)?;
        run.send_payload(Handle(place.operation), range, head, socket)
    }

    fn copy(&mut self, place: Place) -> Vec<u8> {
        let copy = |run: &mut Run| run.interpreter.copy_outgoing(Handle(place.operation));
        self.run(place).and_then(copy).unwrap_or_default()
    }

    fn sent(&mut self, place: Place) {
        self.sent.push(place);
    }

    fn admit(&mut self, node: u32, route: Route, packet: &Packet, bytes: u64) -> Option<Place> {
        let Route { destination: rank, communicator, source, sequence, signature } = route;
        let run = self.runs.get_mut(&RunKey { rank, communicator, sequence })?;
        run.admit(MessageOrigin { node, source, signature }, packet, bytes)
    }

    fn store(&mut self, place: Place, at: usize, bytes: &[u8]) -> bool {
        let receive = Handle(place.operation);
        self.run(place).is_some_and(|run| run.store_payload(receive, at, bytes))
    }

    fn receive(
        &mut self,
        place: Place,
        at: usize,
        most: usize,
        socket: BorrowedFd<'_>,
    ) -> Option<Result<usize, Errno>> {
        match self.run(place)?.receive_payload(Handle(place.operation), at, most, socket) {
            // The transport drops the rest of the payload, because the run fails.
            Some(Err(Errno::FAULT)) => {
                self.faulted.push(RunKey::of(place));
                None
            }
            read => read,
        }
    }
}
