//! Errors of messages.

use crate::error::Error;

/// A failed message, channel or remote memory command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the error it names")]
pub enum MessageError {
    #[error(transparent)]
    Create(#[from] queues::error::CreateError),
    #[error(transparent)]
    Send(#[from] queues::queue::SendError),
    #[error(transparent)]
    Receive(#[from] queues::queue::RecvError),
    #[error(transparent)]
    ChannelSend(#[from] queues::channel::SendError),
    #[error(transparent)]
    ChannelReceive(#[from] queues::channel::RecvError),
    #[error(transparent)]
    Window(#[from] queues::window::WindowError),
    #[error(transparent)]
    Link(#[from] queues::bulk::BulkError),
}

macro_rules! from_messages {
    ($($error:ty),+ $(,)?) => {
        $(
            impl From<$error> for Error {
                fn from(error: $error) -> Self {
                    Error::Message(error.into())
                }
            }
        )+
    };
}

from_messages!(
    queues::error::CreateError,
    queues::queue::SendError,
    queues::queue::RecvError,
    queues::channel::SendError,
    queues::channel::RecvError,
    queues::window::WindowError,
    queues::bulk::BulkError,
);
