//! Messages: sending, posting, matching, and the rendezvous.

use super::*;
use crate::wildcards::Refusal;

impl Run {
    /// Takes in what another rank's interpreter said.
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
                let envelope = Envelope { source, tag, ordinal, bytes: payload.len() as u64 };
                self.arrive(view, named, Message { envelope, content: Content::Payload(payload) })
            }
            Packet::Announce { tag, ordinal, bytes, send } => {
                let envelope = Envelope { source, tag, ordinal, bytes };
                self.arrive(view, named, Message { envelope, content: Content::Announced(send) })
            }
            Packet::Request { send, receive } => self.requested(view, source, send, receive),
            Packet::Data { receive, payload } => self.data(view, source, receive, payload),
        }
    }

    /// Sends or announces a message; whether the send is complete with that.
    pub(super) fn send(
        &mut self,
        view: &ScheduleView<'_>,
        record: &OperationRecord,
        operation: u32,
    ) -> bool {
        let (tag, ordinal, bytes) = (record.tag, record.ordinal, record.bytes);
        let eager = bytes <= self.eager_limit.min(self.eager_budget);
        let packet = if eager {
            self.eager_budget -= bytes;
            Packet::Eager { tag, ordinal, payload: self.payload(view, record) }
        } else {
            self.phases[operation as usize] = Phase::Running;
            Packet::Announce { tag, ordinal, bytes, send: Handle(operation) }
        };
        self.effects.push_back(Effect::Transmit { peer: record.peer, packet });
        eager
    }

    /// A copy of what an operation sends.
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

    /// Posts a receive, or takes the message that has arrived for it.
    pub(super) fn post(
        &mut self,
        view: &ScheduleView<'_>,
        record: &OperationRecord,
        operation: u32,
    ) {
        let (source, tag) = (record.peer(), record.tag());
        let arrived = if source.is_some() && tag.is_some() {
            self.unexpected.remove(&operation)
        } else {
            self.wildcards.take_message(source, tag)
        };
        if let Some(message) = arrived {
            self.allowance.give_back(&message);
            return self.accept(view, operation, message);
        }
        self.phases[operation as usize] = Phase::Running;
        if source.is_none() || tag.is_none() {
            self.wildcards.post(source, tag, record.vertex, operation);
        }
    }

    /// Matches a message with its receive, or keeps it until that is posted.
    fn arrive(
        &mut self,
        view: &ScheduleView<'_>,
        named: &NamedReceives,
        message: Message,
    ) -> Result<(), EventError> {
        let Envelope { source, tag, ordinal, .. } = message.envelope;
        let (rank, source_rank) = (self.rank, source);
        if let Some(operation) = named.find(source, tag, ordinal) {
            match self.phases[operation as usize] {
                Phase::Running => self.accept(view, operation, message),
                Phase::Waiting => {
                    let message = self.within_limits(message);
                    self.phases[operation as usize] = Phase::Arrived;
                    self.unexpected.insert(operation, message);
                }
                _ => return Err(EventError::Duplicate { source_rank, tag, ordinal }),
            }
            return Ok(());
        }
        self.wildcards.arrive(source, tag, ordinal).map_err(|refusal| match refusal {
            Refusal::NoReceive => EventError::NoReceive { rank, source_rank, tag, ordinal },
            Refusal::Duplicate => EventError::Duplicate { source_rank, tag, ordinal },
        })?;
        match self.wildcards.take_posted(source, tag) {
            Some(operation) => self.accept(view, operation, message),
            None => {
                let message = self.within_limits(message);
                self.wildcards.keep(message);
            }
        }
        Ok(())
    }

    /// Leaves the message its payload if the limits allow, and hands the payload back to the
    /// transport otherwise.
    fn within_limits(&mut self, message: Message) -> Message {
        let envelope = message.envelope;
        match message.content {
            Content::Payload(payload) if !self.allowance.take(envelope.bytes) => {
                let Envelope { source, tag, ordinal, .. } = envelope;
                self.effects.push_back(Effect::HoldBack { source, tag, ordinal, payload });
                Message { envelope, content: Content::Held }
            }
            content => Message { envelope, content },
        }
    }

    /// A posted receive has met its message: takes the payload, or asks for it.
    fn accept(&mut self, view: &ScheduleView<'_>, operation: u32, message: Message) {
        let record = &view.operations()[operation as usize];
        let Envelope { source, tag, ordinal, bytes } = message.envelope;
        if bytes != record.bytes {
            let (rank, vertex) = (self.rank, record.vertex);
            let (source_rank, sent, expected) = (source, bytes, record.bytes);
            return self.end(Err(Failure::SizesDiffer {
                source_rank,
                tag,
                ordinal,
                sent,
                rank,
                vertex,
                expected,
            }));
        }
        let receive = Handle(operation);
        match message.content {
            Content::Payload(payload) => {
                self.memory.scatter(view.destination(record), &payload);
                self.recycle(payload);
                return self.complete(view, operation);
            }
            Content::Announced(send) => {
                let packet = Packet::Request { send, receive };
                self.effects.push_back(Effect::Transmit { peer: source, packet });
            }
            Content::Held => {
                self.effects.push_back(Effect::Release { source, tag, ordinal, receive })
            }
        }
        self.phases[operation as usize] = Phase::Fetching;
        if record.peer().is_none() {
            self.fetching.insert(operation, source);
        }
    }

    /// A receiver asks for an announced message.
    fn requested(
        &mut self,
        view: &ScheduleView<'_>,
        source: u32,
        send: Handle,
        receive: Handle,
    ) -> Result<(), EventError> {
        let record =
            self.expect(view, send, Kind::Send, Phase::Running, "a send that was announced")?;
        self.expect_peer(send, record.peer, source)?;
        let packet = Packet::Data { receive, payload: self.payload(view, record) };
        self.effects.push_back(Effect::Transmit { peer: source, packet });
        self.complete(view, send.0);
        Ok(())
    }

    /// The payload of a message that was asked for.
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
            Phase::Fetching,
            "a receive that requested its payload",
        )?;
        let sender = record.peer().or_else(|| self.fetching.get(&receive.0).copied());
        self.expect_peer(receive, sender.unwrap_or(source), source)?;
        self.expect_length(receive, record.bytes, &payload)?;
        self.memory.scatter(view.destination(record), &payload);
        self.recycle(payload);
        self.complete(view, receive.0);
        Ok(())
    }
}
