//! Messages: sending, posting, matching, and the rendezvous protocol.

use super::*;

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
        let eager = bytes <= self.eager_limit.min(self.eager_budget);
        let packet = if eager {
            self.eager_budget -= bytes;
            Packet::Eager { tag, ordinal, payload: self.payload(view, record) }
        } else {
            self.phases[operation as usize] = OperationPhase::Running;
            Packet::RequestToSend { tag, ordinal, bytes, send: Handle(operation) }
        };
        self.effects.push_back(Effect::Transmit { peer: record.peer, packet });
        eager
    }

    /// Returns a copy of the bytes an operation sends, in a buffer from the pool.
    fn payload(&mut self, view: &ScheduleView<'_>, record: &OperationRecord) -> Vec<u8> {
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload.reserve_exact(record.bytes as usize);
        self.memory.gather(view.destination(record), &mut payload);
        payload
    }

    pub(crate) fn recycle(&mut self, payload: Vec<u8>) {
        if self.spare.len() < SPARE_PAYLOADS && (1..=SPARE_BYTES).contains(&payload.capacity()) {
            self.spare.push(payload);
        }
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
                OperationPhase::Waiting => {
                    let message = self.within_limits(message);
                    self.phases[operation as usize] = OperationPhase::Arrived;
                    self.unexpected.insert(operation, message);
                }
                _ => return Err(EventError::Duplicate { source_rank, tag, ordinal }),
            }
            return Ok(());
        }
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

    /// Returns the message with its payload if the limits allow. Otherwise passes the payload to the
    /// transport and returns the envelope.
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
                self.recycle(payload);
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
        let packet = Packet::Data { receive, payload: self.payload(view, record) };
        self.effects.push_back(Effect::Transmit { peer: source, packet });
        self.complete(view, send.0);
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
        // A wildcard receive names no peer; its message was recorded when it matched.
        let sender = record.peer().or_else(|| self.fetching.get(&receive.0).copied());
        self.expect_peer(receive, sender.unwrap_or(source), source)?;
        self.expect_length(receive, record.bytes, &payload)?;
        self.memory.scatter(view.destination(record), &payload);
        self.recycle(payload);
        self.complete(view, receive.0);
        Ok(())
    }
}
