//! Probes of an endpoint.

use super::{Endpoint, PostedRecvKey, TakenMessage};
use crate::matching::contexts::Contexts;
use crate::matching::error::MatchError;
use crate::matching::line::MessageHead;
use crate::matching::matcher::{Message, Pattern};
use crate::matching::slab::Key;
use crate::matching::state::State;

impl Endpoint {
    /// Returns the head of the first message that a receive would match now.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn probe_now(&self, pattern: &Pattern) -> Result<Option<MessageHead>, MatchError> {
        self.poll_and_look(|_| pattern.source, || self.with_message(pattern, |_, _, head| head))
    }

    /// Waits for a message and returns its head.
    ///
    /// # Errors
    /// [`MatchError::RankExited`], [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn probe(
        &self,
        pattern: &Pattern,
        exited: impl Fn() -> Option<u32>,
    ) -> Result<MessageHead, MatchError> {
        let awaited = self.awaited_from(pattern.source);
        self.wait_for(
            || pattern.wait(),
            awaited,
            None,
            exited,
            || self.with_message(pattern, |_, _, head| head),
        )
    }

    /// Takes the first message that a receive would match now.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn take_now(&self, pattern: &Pattern) -> Result<Option<TakenMessage>, MatchError> {
        self.poll_and_look(|_| pattern.source, || self.take_first(pattern))
    }

    fn take_first(&self, pattern: &Pattern) -> Result<Option<TakenMessage>, MatchError> {
        self.with_message(pattern, |state, key, head| {
            state.matcher.take_unexpected(key);
            TakenMessage { key, head }
        })
    }

    /// Waits for a message and takes it.
    ///
    /// # Errors
    /// [`MatchError::RankExited`], [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn take(
        &self,
        pattern: &Pattern,
        exited: impl Fn() -> Option<u32>,
    ) -> Result<TakenMessage, MatchError> {
        let awaited = self.awaited_from(pattern.source);
        self.wait_for(|| pattern.wait(), awaited, None, exited, || self.take_first(pattern))
    }

    fn with_message<R>(
        &self,
        pattern: &Pattern,
        select: impl FnOnce(&mut State, Key, MessageHead) -> R,
    ) -> Result<Option<R>, MatchError> {
        let mut state = self.state.lock();
        state.progress(&mut None, &None)?;
        let Some(key) = state.matcher.find_message(pattern) else { return Ok(None) };
        let head = state.matcher.messages.get(key).map(Message::head);
        Ok(head.map(|head| select(&mut state, key, head)))
    }

    /// Receives a taken message.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv).
    pub fn recv_taken(
        &self,
        message: TakenMessage,
        buffer: &mut [u8],
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<MessageHead, MatchError> {
        let TakenMessage { key, head: MessageHead { sender, envelope } } = message;
        let pattern =
            Pattern { context: envelope.context, source: Some(sender), tag: Some(envelope.tag) };
        let posted = self.state.lock().post_for(key, pattern, buffer.len() as u64)?;
        self.complete(PostedRecvKey::new(posted), Some(sender), buffer, exited)
    }

    /// Discards a taken message.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn discard(&self, message: &TakenMessage) -> Result<(), MatchError> {
        self.state.lock().discard(message.key)
    }

    /// Changes the communicators for which messages are received. Discards those of all others that
    /// no receive has matched, and those that arrive later.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn change_contexts(&self, change: impl FnOnce(&mut Contexts)) -> Result<(), MatchError> {
        let mut state = self.state.lock();
        state.progress(&mut None, &None)?;
        state.matcher.change_contexts(change);
        state.discard_unwanted()
    }
}
