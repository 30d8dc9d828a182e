//! Delivery-driven progress: whoever brings an operation's count to its threshold executes it, for
//! whichever rank it is.
//!
//! An [`Activation`] begins with a rank's start, or with work that was left for this rank, and ends
//! when nothing more is enabled. What an operation enables goes on the activation's own list (no
//! recursion, no lock, nothing left for later); only what its owner alone may do is left for the
//! owner. Counts are never reset: in the u-th use of a slot an operation executes at u × threshold
//! arrivals.

use crate::error::Error;
use crate::linked::linker::{Delivery, Link};
use crate::linked::lists;
use crate::linked::matcher::Event;
use crate::linked::program::Program;
use crate::protocol::dependency_counter::arrive;
use crate::protocol::owner_queue;
use crate::trace::TraceStage;
use goal::schedule::{JoinKind, Kind, OperationRecord};
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// After an operation on this many bytes, ranks that are complete are told at once.
const PUBLISH_AFTER: u64 = 16 << 10;

/// What is left for a rank to do itself.
#[derive(Clone, Copy, Debug)]
enum OwnerTask {
    /// Execute the operation.
    Execute,
    /// It is complete: enable what waits for it.
    Complete,
}

/// The work of one call.
pub(crate) struct Activation<'a> {
    program: &'a Program,
    run: u64,
    slot: u32,
    uses: u32,
    /// Who executes.
    me: u32,
    /// This is the call that starts the run: it must not be held up by what occupies the owner.
    starting: bool,
    work: SmallVec<[(u32, u32); 16]>,
    /// Completed sinks by rank, not yet told.
    sinks: SmallVec<[u32; 8]>,
    /// Told when a rank has work of its own or is complete.
    notify: &'a dyn Fn(u32),
}

impl<'a> Activation<'a> {
    pub(crate) fn new(
        program: &'a Program,
        run: u64,
        starting: bool,
        notify: &'a dyn Fn(u32),
    ) -> Self {
        Activation {
            program,
            run,
            slot: program.slot(run),
            uses: program.uses(run),
            me: program.rank,
            starting,
            work: SmallVec::new(),
            sinks: SmallVec::from_elem(0, program.ranks() as usize),
            notify,
        }
    }

    /// Starts this rank's part of the run.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let program = self.program;
        for operation in &program.linked(self.me).starts {
            self.arrive_local(self.me, *operation);
            self.drain()?;
        }
        self.publish_completions();
        Ok(())
    }

    /// Does what was left for this rank; true when there was anything.
    pub(crate) fn resume(&mut self) -> Result<bool, Error> {
        let program = self.program;
        let frame = program.frame(self.slot, self.me);
        let mut did_any = false;
        while let Some(entry) = owner_queue::take(&frame.ready_line.head, &frame.ready) {
            did_any = true;
            let operation = entry >> 1;
            if entry & 1 == 0 {
                self.work.push((self.me, operation));
            } else {
                self.complete(self.me, operation);
            }
            self.drain()?;
        }
        self.publish_completions();
        Ok(did_any)
    }

    fn drain(&mut self) -> Result<(), Error> {
        let mut next = 0;
        while let Some((rank, operation)) = self.work.get(next).copied() {
            next += 1;
            self.execute(rank, operation)?;
        }
        self.work.clear();
        Ok(())
    }

    /// Publishes completed sinks.
    fn publish_completions(&mut self) {
        for (rank, count) in (0..).zip(self.sinks.iter_mut()) {
            if *count > 0 {
                let (done, threshold) = self.program.completion(self.run, rank);
                let crossed = done.add_threshold(std::mem::take(count), threshold).crossed;
                if crossed && self.program.linked.needs_owner {
                    (self.notify)(rank);
                }
            }
        }
    }

    /// Whether this activation may act for a rank's operation.
    fn may_execute(&self, rank: u32, link: &Link) -> bool {
        !link.owner || (rank == self.me && !self.starting)
    }

    /// Leaves something for a rank to do in its own calls.
    #[cold]
    fn defer_to_owner(&self, rank: u32, operation: u32, left: OwnerTask) {
        let frame = self.program.frame(self.slot, rank);
        let code = operation << 1 | u32::from(matches!(left, OwnerTask::Complete));
        owner_queue::push(&frame.ready_line.tail, &frame.ready, code);
        (self.notify)(rank);
    }

    /// Counts one arrival; true when it is the one that the operation waited for.
    #[inline]
    fn count(&self, rank: u32, node: u32, threshold: u32) -> bool {
        if threshold == 1 {
            return true;
        }
        arrive(
            &self.program.frame(self.slot, rank).nodes[node as usize].arrivals,
            threshold,
            self.uses,
        )
    }

    /// Something in the rank's own graph, or its start, has come about that the operation waits
    /// for.
    #[inline]
    fn arrive_local(&mut self, rank: u32, operation: u32) {
        let link = &self.program.linked(rank).links[operation as usize];
        if let Some(post) = link.post {
            if self.count(rank, post, link.local) {
                if let Some(trace) = &self.program.trace {
                    trace.record(
                        self.run,
                        (rank, operation),
                        self.me,
                        TraceStage::Posted,
                        trace.now(),
                    );
                }
                self.started(rank, operation);
                self.arrive(rank, operation);
            }
            return;
        }
        self.arrive(rank, operation);
    }

    /// One arrival at the operation itself: a local one, or its message.
    #[inline]
    fn arrive(&mut self, rank: u32, operation: u32) {
        let link = &self.program.linked(rank).links[operation as usize];
        if self.count(rank, operation, link.threshold) {
            self.enable(rank, operation);
        }
    }

    #[inline]
    fn enable(&mut self, rank: u32, operation: u32) {
        if self.may_execute(rank, &self.program.linked(rank).links[operation as usize]) {
            self.work.push((rank, operation));
        } else {
            self.defer_to_owner(rank, operation, OwnerTask::Execute);
        }
    }

    /// The operation has started: what waits for that arrives.
    fn started(&mut self, rank: u32, operation: u32) {
        let view = self.program.linked(rank).schedule.view();
        for successor in view.start_successors(&view.operations()[operation as usize]) {
            self.arrive_local(rank, successor);
        }
    }

    /// The operation is complete: what waits for that arrives.
    fn complete(&mut self, rank: u32, operation: u32) {
        let view = self.program.linked(rank).schedule.view();
        let record = &view.operations()[operation as usize];
        if record.is_sink() {
            self.sinks[rank as usize] += 1;
            return;
        }
        for successor in view.successors(record) {
            self.arrive_local(rank, successor);
        }
    }

    /// As [`complete`](Self::complete), for an operation of another rank whose owner may want to do
    /// that itself.
    fn complete_other(&mut self, rank: u32, operation: u32) {
        let link = &self.program.linked(rank).links[operation as usize];
        if rank == self.me || !link.owner {
            self.complete(rank, operation);
        } else {
            self.defer_to_owner(rank, operation, OwnerTask::Complete);
        }
    }

    fn execute(&mut self, rank: u32, operation: u32) -> Result<(), Error> {
        let program = self.program;
        let linked = program.linked(rank);
        let view = linked.schedule.view();
        let record = &view.operations()[operation as usize];
        let link = &linked.links[operation as usize];
        let begun = program.trace.as_ref().map(|trace| trace.now());
        if record.start_edge_count > 0 && link.post.is_none() {
            self.started(rank, operation);
        }
        match record.kind() {
            Kind::Send => self.send(rank, operation, record, link)?,
            Kind::Receive => self.receive(rank, operation, record, link)?,
            Kind::Local => {
                if lists::local(program, self.slot, rank, record)? {
                    program.fail(self.run, rank, record);
                }
                self.complete(rank, operation);
            }
            Kind::Copy => {
                let (from, to) = (view.left(record), view.destination(record));
                lists::copy(program, self.slot, (rank, from), (rank, to))?;
                self.complete(rank, operation);
            }
            Kind::Timestamp => {
                let now = monotonic_nanoseconds();
                if let [block] = view.destination(record) {
                    program
                        .memory
                        .write(program.place(self.slot, rank, block), &now.to_le_bytes())?;
                }
                self.complete(rank, operation);
            }
            Kind::Calc => {
                if !program.skip_calc {
                    occupy(Duration::from_nanos(record.bytes));
                }
                self.complete(rank, operation);
            }
            Kind::Join => self.meet(rank, operation, record)?,
        }
        if let (Some(trace), Some(begun)) = (&program.trace, begun) {
            trace.record(self.run, (rank, operation), self.me, TraceStage::Executed, begun);
        }
        if record.bytes >= PUBLISH_AFTER && record.kind() != Kind::Calc {
            self.publish_completions();
        }
        Ok(())
    }

    fn send(
        &mut self,
        rank: u32,
        operation: u32,
        record: &OperationRecord,
        link: &Link,
    ) -> Result<(), Error> {
        let program = self.program;
        let source = program.linked(rank).schedule.view().destination(record);
        if let Delivery::Wildcard(number) = link.delivery {
            let peer = record.peer;
            let target = program.linked(peer);
            if let Some(mail) = target.wildcard_sends[number as usize].mail {
                lists::gather(
                    program,
                    self.slot,
                    (rank, source),
                    program.frame_place(self.slot, peer, mail),
                )?;
                self.complete(rank, operation);
            }
            return self.matched(peer, Event::Arrived(number));
        }
        let Some((peer, receive)) = link.partner else {
            self.complete(rank, operation);
            return Ok(());
        };
        let target = program.linked(peer).schedule.view();
        match program.linked(peer).links[receive as usize].delivery {
            Delivery::Immediate => {
                let destination = target.destination(&target.operations()[receive as usize]);
                let begun = program.trace.as_ref().map(|trace| trace.now());
                lists::copy(program, self.slot, (rank, source), (peer, destination))?;
                if let (Some(trace), Some(begun)) = (&program.trace, begun) {
                    trace.record(self.run, (peer, receive), self.me, TraceStage::Executed, begun);
                }
                self.complete(peer, receive);
                self.complete(rank, operation);
            }
            Delivery::Rendezvous => self.arrive(peer, receive),
            _ => {
                if let Some(mailbox) = program.mailbox(self.slot, peer, receive) {
                    lists::gather(program, self.slot, (rank, source), mailbox)?;
                }
                self.arrive(peer, receive);
                self.complete(rank, operation);
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        rank: u32,
        operation: u32,
        record: &OperationRecord,
        link: &Link,
    ) -> Result<(), Error> {
        let program = self.program;
        if let Delivery::Wildcard(number) = link.delivery {
            return self.matched(rank, Event::Posted(number));
        }
        let destination = program.linked(rank).schedule.view().destination(record);
        if let Some(mailbox) = program.mailbox(self.slot, rank, operation) {
            lists::scatter(program, self.slot, mailbox, (rank, destination))?;
        } else if let (Some((peer, send)), Delivery::Rendezvous) = (link.partner, link.delivery) {
            self.copy_message((peer, send), (rank, operation))?;
            self.complete_other(peer, send);
        }
        self.complete(rank, operation);
        Ok(())
    }

    /// One copy from the sender's blocks to the receiver's.
    fn copy_message(&self, send: (u32, u32), receive: (u32, u32)) -> Result<(), Error> {
        let blocks = |(rank, operation): (u32, u32)| {
            let view = self.program.linked(rank).schedule.view();
            (rank, view.destination(&view.operations()[operation as usize]))
        };
        lists::copy(self.program, self.slot, blocks(send), blocks(receive))
    }

    /// Tells a rank's matcher and carries out what it pairs.
    fn matched(&mut self, rank: u32, event: Event) -> Result<(), Error> {
        let program = self.program;
        let linked = program.linked(rank);
        let Some(matcher) = &program.frame(self.slot, rank).matcher else { return Ok(()) };
        for (wildcard, number) in matcher.submit(event, linked) {
            let receive = linked.wildcards[wildcard as usize];
            let send = linked.wildcard_sends[number as usize];
            let view = linked.schedule.view();
            let record = &view.operations()[receive as usize];
            if send.bytes != record.bytes {
                return Err(Error::Argument {
                    what: "the length of a message that a wildcard receive takes",
                    found: format!(
                        "{} bytes, sent by rank {} with tag {}",
                        send.bytes, send.rank, send.tag
                    ),
                    expected: format!(
                        "{} bytes, as vertex {} of rank {rank} says",
                        record.bytes, record.vertex
                    ),
                });
            }
            let begun = program.trace.as_ref().map(|trace| trace.now());
            match send.mail {
                Some(mail) => {
                    let mail = program.frame_place(self.slot, rank, mail);
                    lists::scatter(program, self.slot, mail, (rank, view.destination(record)))?;
                }
                None => {
                    self.copy_message((send.rank, send.operation), (rank, receive))?;
                    self.complete_other(send.rank, send.operation);
                }
            }
            if let (Some(trace), Some(begun)) = (&program.trace, begun) {
                let stage = TraceStage::Took(send.rank, send.operation);
                trace.record(self.run, (rank, receive), self.me, stage, begun);
            }
            self.complete_other(rank, receive);
        }
        Ok(())
    }

    /// Comes to a join; the last rank combines for all.
    fn meet(&mut self, _rank: u32, _operation: u32, record: &OperationRecord) -> Result<(), Error> {
        let program = self.program;
        let join = record.ordinal;
        if !arrive(program.join(self.slot, join), program.ranks(), self.uses) {
            return Ok(());
        }
        if record.join_mode != JoinKind::Barrier as u8 && lists::join(program, self.slot, join)? {
            for (rank, operation) in (0..).zip(&program.linked.joins[join as usize]) {
                program.fail(
                    self.run,
                    rank,
                    &program.linked(rank).schedule.view().operations()[*operation as usize],
                );
            }
        }
        for (rank, operation) in (0..).zip(&program.linked.joins[join as usize]) {
            self.complete_other(rank, *operation);
        }
        Ok(())
    }
}

/// Keeps this core busy, as a computation of that length would.
fn occupy(length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {
        std::hint::spin_loop();
    }
}

/// The monotonic clock, the same for all processes of the node.
pub(crate) fn monotonic_nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
