//! Errors of messages.

/// A failed message, channel or remote memory command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the error it names")]
pub enum MessageError {
    #[error(transparent)]
    Create(#[from] queues::error::CreateError),
    #[error(transparent)]
    Send(#[from] queues::error::SendError),
    #[error(transparent)]
    Recv(#[from] queues::error::RecvError),
    #[error(transparent)]
    Window(#[from] queues::window::WindowError),
    #[error(transparent)]
    Link(#[from] queues::bulk::BulkError),
    #[error(transparent)]
    TagOn(#[from] queues::tag_on::TagOnError),
}
