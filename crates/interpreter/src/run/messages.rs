//! Messages: sending, posting, matching, and the rendezvous protocol.

use super::payload_pool::is_copied;
use super::*;
use goal::schedule::BlockRecord;

impl ScheduleRun {
    /// Processes a packet from another rank's interpreter.
    pub(super) fn packet(
        &mut self,
        view: &ScheduleView<'_>,
        named: &NamedReceives,
        source: u32,
        packet: Packet,
    ) -> Result<(), EventError> {
        let ranks = view.header().ranks;
        if source >= ranks {
            return Err(EventError::UnknownSource { source_rank: source, ranks });
        }
        // `source` is a rank of the schedule from here on. Tags, ordinals, lengths and handles are
        // what the other rank has sent, and every use checks them.
        match packet {
            Packet::Eager { tag, ordinal, payload } => {
                let envelope =
                    MessageEnvelope { source, tag, ordinal, bytes: payload.len() as u64 };
                self.arrive(
                    view,
                    named,
                    ArrivedMessage { envelope, content: PayloadLocation::Payload(payload) },
                )
            }
            Packet::RequestToSend { tag, ordinal, bytes, send } => {
                let envelope = MessageEnvelope { source, tag, ordinal, bytes };
                self.arrive(
                    view,
                    named,
                    ArrivedMessage { envelope, content: PayloadLocation::AtSender(send) },
                )
            }
            Packet::ClearToSend { send, receive } => {
                self.clear_to_send(view, source, send, receive)
            }
            Packet::Data { receive, payload } => self.data(view, source, receive, payload),
        }
    }

    /// Sends a message eagerly or requests to send it. Returns whether the send is complete.
    pub(super) fn send(
        &mut self,
        view: &ScheduleView<'_>,
        record: &OperationRecord,
        operation: u32,
    ) -> bool {
        let tag = record.tag;
        let ordinal = record.ordinal;
        let bytes = record.bytes;
        let send = Handle(operation);
        // Rendezvous: the payload stays in the memory of the run, and the receiver requests it when
        // its receive is posted. So the bytes need no memory at the receiver.
        if bytes > self.eager_limit.min(self.eager_budget) {
            self.phases[operation as usize] = OperationPhase::Running;
            let packet = Packet::RequestToSend { tag, ordinal, bytes, send };
            self.effects.push_back(Effect::Transmit { peer: record.peer, packet });
            return false;
        }
        // Does not underflow: the condition above includes the budget. A transport sets a new
        // budget before each event.
        self.eager_budget -= bytes;
        self.transmit(view, send, |payload| Packet::Eager { tag, ordinal, payload })
    }

    /// Emits the message of a send. Returns whether the send is complete.
    fn transmit(
        &mut self,
        view: &ScheduleView<'_>,
        send: Handle,
        packet: impl FnOnce(Vec<u8>) -> Packet,
    ) -> bool {
        let record = &view.operations()[send.0 as usize];
        let OperationRecord { peer, bytes, .. } = *record;
        // A copied payload frees its blocks at once, so the send is complete. A payload in place
        // must be contiguous, and its block is in use until `Event::Sent`.
        if is_copied(view, record, self.in_place) {
            let packet = packet(self.payload(view, record));
            self.effects.push_back(Effect::Transmit { peer, packet });
            return true;
        }
        self.phases[send.0 as usize] = OperationPhase::Sending;
        let packet = packet(Vec::new());
        self.effects.push_back(Effect::TransmitInPlace { peer, packet, send, bytes });
        false
    }

    /// Assigns an arriving message the memory of its receive.
    pub(crate) fn admit(
        &mut self,
        view: &ScheduleView<'_>,
        named: &NamedReceives,
        source: u32,
        packet: &Packet,
        bytes: u64,
    ) -> Option<Handle> {
        let (operation, posted) = match packet {
            Packet::Eager { tag, ordinal, .. } => {
                (named.find(source, *tag, *ordinal)?, OperationPhase::Running)
            }
            Packet::Data { receive, .. } => (receive.0, OperationPhase::Fetching),
            Packet::RequestToSend { .. } | Packet::ClearToSend { .. } => return None,
        };
        let record = view.operations().get(operation as usize)?;
        // The conditions under which `arrive` and `data` would accept the message now. Every other
        // message takes that way, where its errors are reported.
        let fits = self.stage == RunStage::Running
            && record.kind() == Kind::Receive
            && self.phases[operation as usize] == posted
            && record.peer() == Some(source)
            && record.bytes == bytes
            && view.destination(record).len() == 1;
        // One message at a time is admitted to a receive: a second one with the same handle finds
        // another phase.
        fits.then(|| {
            self.phases[operation as usize] = OperationPhase::Arriving;
            Handle(operation)
        })
    }

    /// Reverts `admit`.
    pub(crate) fn withdraw(&mut self, receive: Handle, packet: &Packet) {
        let posted = match packet {
            Packet::Eager { .. } => OperationPhase::Running,
            Packet::Data { .. } => OperationPhase::Fetching,
            Packet::RequestToSend { .. } | Packet::ClearToSend { .. } => return,
        };
        // In any other phase the message has arrived already, or the run was reset: nothing to
        // revert.
        let phase = self.phases.get_mut(receive.0 as usize);
        if let Some(phase) = phase.filter(|phase| **phase == OperationPhase::Arriving) {
            *phase = posted;
        }
    }

    /// Returns the block of an operation in this phase.
    fn place<'a>(
        &self,
        view: &ScheduleView<'a>,
        operation: Handle,
        phase: OperationPhase,
    ) -> Option<&'a BlockRecord> {
        // Also after an early end, until the reset: the payloads of other sends are on their way.
        let is_there =
            self.stage != RunStage::Idle && self.phases.get(operation.0 as usize) == Some(&phase);
        let record = view.operations().get(operation.0 as usize).filter(|_| is_there)?;
        view.destination(record).first()
    }

    pub(crate) fn outgoing(&self, view: &ScheduleView<'_>, send: Handle) -> Option<Outgoing<'_>> {
        Some(self.memory.outgoing(self.place(view, send, OperationPhase::Sending)?))
    }

    pub(crate) fn incoming(
        &mut self,
        view: &ScheduleView<'_>,
        receive: Handle,
    ) -> Option<Incoming<'_>> {
        let block = self.place(view, receive, OperationPhase::Arriving)?;
        Some(self.memory.incoming(block))
    }

    /// Returns a copy of the bytes an operation sends, in a buffer from the pool.
    fn payload(&mut self, view: &ScheduleView<'_>, record: &OperationRecord) -> Vec<u8> {
        let mut payload = self.payloads.take(record.bytes as usize);
        self.memory.gather(view.destination(record), &mut payload);
        payload
    }

    /// Posts a receive, or accepts the message that has already arrived for it.
    pub(super) fn post(
        &mut self,
        view: &ScheduleView<'_>,
        record: &OperationRecord,
        operation: u32,
    ) {
        let source = record.peer();
        let tag = record.tag();
        // The message of a receive without wildcards was matched on arrival, by its ordinal. A
        // receive with a wildcard matches now, in the order of arrivals.
        let arrived = if source.is_some() && tag.is_some() {
            self.unexpected.remove(&operation)
        } else {
            self.wildcards.take_message(source, tag)
        };
        if let Some(message) = arrived {
            self.unexpected_memory.release(&message);
            return self.accept(view, operation, message);
        }
        self.phases[operation as usize] = OperationPhase::Running;
        if source.is_none() || tag.is_none() {
            self.wildcards.post(source, tag, record.vertex, operation);
        }
    }

    /// Matches a message with its receive, or stores it until the receive is posted.
    fn arrive(
        &mut self,
        view: &ScheduleView<'_>,
        named: &NamedReceives,
        message: ArrivedMessage,
    ) -> Result<(), EventError> {
        let MessageEnvelope { source, tag, ordinal, .. } = message.envelope;
        let rank = self.rank;
        let source_rank = source;
        // A naming receive has precedence over all wildcard receives, whether or not it is posted.
        if let Some(operation) = named.find(source, tag, ordinal) {
            match self.phases[operation as usize] {
                OperationPhase::Running => self.accept(view, operation, message),
                // The phase `Arrived` makes a second message with this ordinal a duplicate, so the
                // map has at most one message for each receive.
                OperationPhase::Waiting => {
                    let message = self.within_limits(message);
                    self.phases[operation as usize] = OperationPhase::Arrived;
                    self.unexpected.insert(operation, message);
                }
                _ => return Err(EventError::Duplicate { source_rank, tag, ordinal }),
            }
            return Ok(());
        }
        // Before the match: messages that match at once count as well, so `arrive` finds all
        // duplicates and bounds the number of messages.
        self.wildcards.arrive(source, tag, ordinal).map_err(|refusal| match refusal {
            WildcardRefusal::NoReceive => EventError::NoReceive { rank, source_rank, tag, ordinal },
            WildcardRefusal::Duplicate => EventError::Duplicate { source_rank, tag, ordinal },
        })?;
        match self.wildcards.take_posted(source, tag) {
            Some(operation) => self.accept(view, operation, message),
            None => {
                let message = self.within_limits(message);
                self.wildcards.store(message);
            }
        }
        Ok(())
    }

    /// Returns the message with its payload if the limits allow. Otherwise passes the payload to
    /// the transport and returns the envelope.
    fn within_limits(&mut self, message: ArrivedMessage) -> ArrivedMessage {
        let envelope = message.envelope;
        match message.content {
            PayloadLocation::Payload(payload)
                if !self.unexpected_memory.reserve(envelope.bytes) =>
            {
                let MessageEnvelope { source, tag, ordinal, .. } = envelope;
                self.effects.push_back(Effect::StoreUnexpected { source, tag, ordinal, payload });
                ArrivedMessage { envelope, content: PayloadLocation::AtTransport }
            }
            content => ArrivedMessage { envelope, content },
        }
    }

    /// Processes the match of a posted receive and its message: copies the payload or requests it.
    fn accept(&mut self, view: &ScheduleView<'_>, operation: u32, message: ArrivedMessage) {
        let record = &view.operations()[operation as usize];
        let MessageEnvelope { source, tag, ordinal, bytes } = message.envelope;
        // `scatter` requires equal lengths, and no later packet corrects a wrong one: the run ends,
        // and its other operations never complete.
        if bytes != record.bytes {
            return self.end(Err(Failure::SizesDiffer {
                source_rank: source,
                tag,
                ordinal,
                sent: bytes,
                rank: self.rank,
                vertex: record.vertex,
                expected: record.bytes,
            }));
        }
        let receive = Handle(operation);
        match message.content {
            PayloadLocation::Payload(payload) => {
                self.memory.scatter(view.destination(record), &payload);
                self.payloads.put(payload);
                return self.complete(view, operation);
            }
            PayloadLocation::AtSender(send) => {
                let packet = Packet::ClearToSend { send, receive };
                self.effects.push_back(Effect::Transmit { peer: source, packet });
            }
            PayloadLocation::AtTransport => {
                self.effects.push_back(Effect::LoadUnexpected { source, tag, ordinal, receive })
            }
        }
        // `data` accepts a payload for this receive in this phase only, and only once.
        self.phases[operation as usize] = OperationPhase::Fetching;
        if record.peer().is_none() {
            self.fetching.insert(operation, source);
        }
    }

    /// Sends the payload of a rendezvous message, which completes the send.
    fn clear_to_send(
        &mut self,
        view: &ScheduleView<'_>,
        source: u32,
        send: Handle,
        receive: Handle,
    ) -> Result<(), EventError> {
        let record = self.expect(
            view,
            send,
            Kind::Send,
            OperationPhase::Running,
            "a send that waits for clearance",
        )?;
        self.expect_peer(send, record.peer, source)?;
        // Only the receiver of this send can clear it, and only once: `transmit` changes the phase
        // or the send completes here.
        if self.transmit(view, send, |payload| Packet::Data { receive, payload }) {
            self.complete(view, send.0);
        }
        Ok(())
    }

    /// Completes a receive with the payload it requested.
    fn data(
        &mut self,
        view: &ScheduleView<'_>,
        source: u32,
        receive: Handle,
        payload: Vec<u8>,
    ) -> Result<(), EventError> {
        let record = self.expect(
            view,
            receive,
            Kind::Receive,
            OperationPhase::Fetching,
            "a receive that requested its payload",
        )?;
        // A wildcard receive names no peer; its message was recorded when it matched. `accept`
        // records it with the phase that was checked above, so one of the two is present.
        let sender = record.peer().or_else(|| self.fetching.get(&receive.0).copied());
        self.expect_peer(receive, sender.unwrap_or(source), source)?;
        self.expect_length(receive, record.bytes, &payload)?;
        self.memory.scatter(view.destination(record), &payload);
        self.payloads.put(payload);
        self.complete(view, receive.0);
        Ok(())
    }
}
