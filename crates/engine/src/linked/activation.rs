//! Progress by delivery: the process with the arrival that brings an operation's count to its
//! threshold executes the operation, for any rank.
//!
//! An [`Activation`] begins with a rank's start, or with tasks deferred to this rank, and ends when
//! nothing more is enabled. The operations that it enables go to its own list: no recursion, no
//! lock, and no work postponed. Only operations that their owner must execute are deferred to the
//! owner. Counts are never reset: in the u-th use of a slot an operation is enabled at
//! u × threshold arrivals.

use crate::error::Error;
use crate::linked::lists::{self, BlockList};
use crate::linked::matcher::MatcherEvent;
use crate::linked::program::LinkedProgram;
use crate::protocol::dependency_counter::arrive;
use crate::protocol::owner_queue;
use crate::trace::{ProgramTrace, TraceStage};
use goal::link::{Delivery, OperationLink};
use goal::schedule::{JoinKind, Kind, OperationRecord};
use shm::clock::monotonic_nanoseconds;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// After an operation on this many bytes, the completions of ranks are published at once.
const PUBLISH_AFTER: u64 = 16 << 10;

/// A task that is deferred to the owner of an operation.
#[derive(Clone, Copy, Debug)]
enum OwnerTask {
    /// Execute the operation.
    Execute,
    /// Enable the successors of the operation, which is complete.
    Complete,
}

/// The work of one call.
pub(crate) struct Activation<'a> {
    program: &'a LinkedProgram,
    run: u64,
    slot: u32,
    uses: u32,
    /// The executing rank.
    executor: u32,
    /// This is the call that starts the run. It must not execute operations that occupy their
    /// owner.
    starting: bool,
    work: SmallVec<[(u32, u32); 16]>,
    /// By rank: number of completed sinks that are not published yet.
    sinks: SmallVec<[u32; 8]>,
    /// Notifies a rank that has tasks or is complete.
    notify: &'a dyn Fn(u32),
}

impl<'a> Activation<'a> {
    pub(crate) fn new(
        program: &'a LinkedProgram,
        run: u64,
        starting: bool,
        notify: &'a dyn Fn(u32),
    ) -> Self {
        Activation {
            program,
            run,
            slot: program.slot(run),
            uses: program.uses(run),
            executor: program.rank,
            starting,
            work: SmallVec::new(),
            sinks: SmallVec::from_elem(0, program.ranks() as usize),
            notify,
        }
    }

    /// Starts this rank's part of the run.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let program = self.program;
        // Other ranks may count arrivals at this rank's operations before this point; the inputs are
        // in place since `prepare`, and the arrivals below release them.
        for operation in &program.linked(self.executor).starts {
            self.arrive_local(self.executor, *operation);
            self.drain()?;
        }
        self.publish_completions();
        Ok(())
    }

    /// Executes the tasks deferred to this rank. Returns whether there were any.
    pub(crate) fn resume(&mut self) -> Result<bool, Error> {
        let program = self.program;
        let frame = program.frame(self.slot, self.executor);
        let mut did_any = false;
        while let Some(entry) = owner_queue::take(&frame.owner_queue_line.head, &frame.owner_queue)
        {
            did_any = true;
            let operation = entry >> 1;
            // The lowest bit is the task, see `defer_to_owner`.
            if entry & 1 == 0 {
                self.work.push((self.executor, operation));
            } else {
                self.complete(self.executor, operation);
            }
            self.drain()?;
        }
        self.publish_completions();
        Ok(did_any)
    }

    fn drain(&mut self) -> Result<(), Error> {
        // The list grows while it is walked, so a chain of operations needs no recursion.
        let mut next = 0;
        while let Some((rank, operation)) = self.work.get(next).copied() {
            next += 1;
            self.execute(rank, operation)?;
        }
        self.work.clear();
        Ok(())
    }

    /// Publishes the completed sinks of each rank. The addition releases all bytes that this
    /// activation has written; the rank acquires them when it finds its run complete.
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

    /// Returns whether this activation may execute an operation of a rank.
    fn may_execute(&self, rank: u32, link: &OperationLink) -> bool {
        !link.owner || (rank == self.executor && !self.starting)
    }

    /// Defers a task to a rank, which executes it in its own calls.
    #[cold]
    fn defer_to_owner(&self, rank: u32, operation: u32, task: OwnerTask) {
        let frame = self.program.frame(self.slot, rank);
        let code = operation << 1 | u32::from(matches!(task, OwnerTask::Complete));
        owner_queue::push(&frame.owner_queue_line.tail, &frame.owner_queue, code);
        // After the push: a notified rank finds the task.
        (self.notify)(rank);
    }

    /// Counts one arrival. Returns whether it is the last one that the counter waits for.
    #[inline]
    fn count(&self, rank: u32, counter: u32, threshold: u32) -> bool {
        // The process of the only arrival executes the operation, in program order.
        if threshold == 1 {
            return true;
        }
        let counters = &self.program.frame(self.slot, rank).counters;
        arrive(&counters[counter as usize].arrivals, threshold, self.uses)
    }

    /// Counts an arrival from the rank's own graph, or its start, at an operation.
    #[inline]
    fn arrive_local(&mut self, rank: u32, operation: u32) {
        let link = &self.program.linked(rank).links[operation as usize];
        if let Some(post) = link.post {
            // The posting is a step of its own: it enables other operations and is then one of the
            // two arrivals at the receive.
            if self.count(rank, post, link.local) {
                if let Some(trace) = &self.program.trace {
                    self.record(trace, (rank, operation), TraceStage::Posted, trace.now());
                }
                self.started(rank, operation);
                self.arrive(rank, operation);
            }
            return;
        }
        self.arrive(rank, operation);
    }

    /// Counts an arrival at the operation itself: a local one, or its message.
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

    /// Counts the start of an operation at the operations that wait for it.
    fn started(&mut self, rank: u32, operation: u32) {
        let view = self.program.linked(rank).schedule.view();
        for successor in view.start_successors(&view.operations()[operation as usize]) {
            self.arrive_local(rank, successor);
        }
    }

    /// Counts the completion of an operation at the operations that wait for it.
    fn complete(&mut self, rank: u32, operation: u32) {
        let view = self.program.linked(rank).schedule.view();
        let record = &view.operations()[operation as usize];
        if record.is_sink() {
            // Added to the rank's word at the end, so that many sinks cost one access to its line.
            self.sinks[rank as usize] += 1;
            return;
        }
        for successor in view.successors(record) {
            self.arrive_local(rank, successor);
        }
    }

    /// As [`complete`](Self::complete), for an operation of any rank. Defers to the owner if only
    /// the owner may act for the operation.
    fn complete_any(&mut self, rank: u32, operation: u32) {
        let link = &self.program.linked(rank).links[operation as usize];
        if rank == self.executor || !link.owner {
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
        // A receive with a posting step has enabled these operations when it was posted.
        if record.start_edge_count > 0 && link.post.is_none() {
            self.started(rank, operation);
        }
        match record.kind() {
            Kind::Send => self.send(rank, operation, record, link)?,
            Kind::Receive => self.receive(rank, operation, record, link)?,
            Kind::Join => self.join(record)?,
            Kind::Local | Kind::Copy | Kind::Timestamp | Kind::Calc => {
                self.compute(rank, record)?;
                self.complete(rank, operation);
            }
        }
        if let (Some(trace), Some(begun)) = (&program.trace, begun) {
            self.record(trace, (rank, operation), TraceStage::Executed, begun);
        }
        // Ranks that are complete would otherwise wait for the rest of this activation, which may
        // be as long again.
        if record.bytes >= PUBLISH_AFTER && record.kind() != Kind::Calc {
            self.publish_completions();
        }
        Ok(())
    }

    /// Executes an operation without a partner.
    #[inline]
    fn compute(&self, rank: u32, record: &OperationRecord) -> Result<(), Error> {
        let program = self.program;
        let view = program.linked(rank).schedule.view();
        match record.kind() {
            Kind::Local => {
                if lists::local(program, self.slot, rank, record)? {
                    program.fail(self.run, rank, record);
                }
            }
            Kind::Copy => {
                let source = (rank, view.left(record));
                lists::copy(program, self.slot, source, (rank, view.destination(record)))?;
            }
            Kind::Timestamp => {
                let now = monotonic_nanoseconds();
                if let [block] = view.destination(record) {
                    let at = program.place(self.slot, rank, block);
                    program.memory.write(at, &now.to_le_bytes())?;
                }
            }
            _ => {
                if !program.skip_calc {
                    occupy(Duration::from_nanos(record.bytes));
                }
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        rank: u32,
        operation: u32,
        record: &OperationRecord,
        link: &OperationLink,
    ) -> Result<(), Error> {
        let program = self.program;
        if let Delivery::Wildcard(number) = link.delivery {
            return self.send_to_wildcard(rank, operation, record.peer, number);
        }
        let Some((peer, receive)) = link.partner else {
            self.complete(rank, operation);
            return Ok(());
        };
        match link.delivery {
            // The destination is untouched before, so the receiver need not have started.
            Delivery::Immediate => {
                let begun = program.trace.as_ref().map(|trace| trace.now());
                self.copy_message((rank, operation), (peer, receive))?;
                if let (Some(trace), Some(begun)) = (&program.trace, begun) {
                    self.record(trace, (peer, receive), TraceStage::Executed, begun);
                }
                self.complete(peer, receive);
                self.complete(rank, operation);
            }
            // The receive copies and then completes both ends.
            // The send stays incomplete until the receive has copied, so the source does not
            // change. If the receiver never posts, the liveness check of the waiting ranks finds
            // it.
            Delivery::Rendezvous => self.arrive(peer, receive),
            _ => {
                // The mailbox is free: the message of the slot's previous use was received before
                // every rank had consumed that run. The arrival releases the bytes, and the last
                // arrival acquires them.
                let mailbox = program.mailbox(self.slot, peer, receive, record.bytes);
                lists::gather(program, self.slot, self.blocks(rank, operation), mailbox)?;
                self.arrive(peer, receive);
                self.complete(rank, operation);
            }
        }
        Ok(())
    }

    /// Sends to a rank with a matcher, which pairs the message with a wildcard receive.
    fn send_to_wildcard(
        &mut self,
        rank: u32,
        operation: u32,
        peer: u32,
        number: u32,
    ) -> Result<(), Error> {
        if let Some(mailbox) = self.program.wildcard_mailbox(self.slot, peer, number) {
            lists::gather(self.program, self.slot, self.blocks(rank, operation), mailbox)?;
            self.complete(rank, operation);
        }
        self.submit(peer, MatcherEvent::Arrived(number))
    }

    fn receive(
        &mut self,
        rank: u32,
        operation: u32,
        record: &OperationRecord,
        link: &OperationLink,
    ) -> Result<(), Error> {
        let program = self.program;
        match (link.delivery, link.partner) {
            (Delivery::Wildcard(number), _) => {
                return self.submit(rank, MatcherEvent::Posted(number));
            }
            (Delivery::Eager, _) => {
                let mailbox = program.mailbox(self.slot, rank, operation, record.bytes);
                lists::scatter(program, self.slot, mailbox, self.blocks(rank, operation))?;
            }
            (Delivery::Rendezvous, Some((peer, send))) => {
                self.copy_message((peer, send), (rank, operation))?;
                self.complete_any(peer, send);
            }
            _ => {}
        }
        self.complete(rank, operation);
        Ok(())
    }

    /// Returns the blocks of a send or receive.
    #[inline]
    fn blocks(&self, rank: u32, operation: u32) -> BlockList<'a> {
        let view = self.program.linked(rank).schedule.view();
        (rank, view.destination(&view.operations()[operation as usize]))
    }

    /// Copies a message from the sender's blocks to the receiver's.
    #[inline]
    fn copy_message(&self, send: (u32, u32), receive: (u32, u32)) -> Result<(), Error> {
        let source = self.blocks(send.0, send.1);
        lists::copy(self.program, self.slot, source, self.blocks(receive.0, receive.1))
    }

    /// Submits an event to a rank's matcher and carries out the pairs that it returns.
    fn submit(&mut self, rank: u32, event: MatcherEvent) -> Result<(), Error> {
        let program = self.program;
        let linked = program.linked(rank);
        // The pairs may belong to events of other ranks: the process that finds the matcher idle
        // carries out all of them.
        let Some(matcher) = &program.frame(self.slot, rank).matcher else { return Ok(()) };
        for pair in matcher.submit(event, linked) {
            let receive = linked.wildcards[pair.receive as usize];
            let send = linked.wildcard_sends[pair.send as usize];
            let record = &linked.schedule.view().operations()[receive as usize];
            let begun = program.trace.as_ref().map(|trace| trace.now());
            let mailbox = program.wildcard_mailbox(self.slot, rank, pair.send);
            if send.bytes != record.bytes {
                // Neither end is at fault: the order of arrival made the pair. Both go on, without
                // the bytes, and the requests of all ranks report it.
                program.fail_pair(self.run, rank, pair);
            } else if let Some(mailbox) = mailbox {
                lists::scatter(program, self.slot, mailbox, self.blocks(rank, receive))?;
            } else {
                self.copy_message((send.rank, send.operation), (rank, receive))?;
            }
            if mailbox.is_none() {
                self.complete_any(send.rank, send.operation);
            }
            if let (Some(trace), Some(begun)) = (&program.trace, begun) {
                let stage = TraceStage::Took(send.rank, send.operation);
                self.record(trace, (rank, receive), stage, begun);
            }
            self.complete_any(rank, receive);
        }
        Ok(())
    }

    /// Arrives at a join. The last rank to arrive combines the contributions and completes the join
    /// of every rank.
    fn join(&mut self, record: &OperationRecord) -> Result<(), Error> {
        let program = self.program;
        let join = record.ordinal;
        // The last arrival acquires the contributions of all ranks.
        if !arrive(program.join(self.slot, join), program.ranks(), self.uses) {
            return Ok(());
        }
        let operations = &program.linked.joins[join as usize];
        if record.join_mode != JoinKind::Barrier as u8 && lists::join(program, self.slot, join)? {
            for (rank, operation) in (0..).zip(operations) {
                let view = program.linked(rank).schedule.view();
                program.fail(self.run, rank, &view.operations()[*operation as usize]);
            }
        }
        for (rank, operation) in (0..).zip(operations) {
            self.complete_any(rank, *operation);
        }
        Ok(())
    }

    /// Records a stage of an operation that began at `begun` and ends now.
    fn record(&self, trace: &ProgramTrace, operation: (u32, u32), stage: TraceStage, begun: u64) {
        trace.record(self.run, operation, self.executor, stage, begun);
    }
}

/// Keeps this core busy, as a computation of that length would.
fn occupy(length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {
        std::hint::spin_loop();
    }
}
