//! Requests of one notification by a thread that sleeps on something else than the wake-up word, as
//! the node service does: it looks for the notification when it is awake.

use shm::wakeup::{Armed, Wakeup};

/// Result of a request for a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// It was made now. Once the caller has passed a [heavy fence](shm::fence::heavy) and found
    /// nothing, what follows is notified of.
    Now,
    /// It was made before.
    Before,
    /// The word has no space for another waiting thread, so there will be no notification.
    Refused,
    /// It was renewed, because an earlier one may have been served: the caller passes a heavy
    /// fence and tries once more, before each sleep.
    Renewed,
}

/// Requests a notification, unless one is requested. The caller then checks its condition.
pub(crate) fn begin(wakeup: Wakeup<'_>, request: &mut Option<Armed>) -> Requested {
    if request.is_some() {
        return Requested::Before;
    }
    *request = wakeup.request();
    if request.is_some() { Requested::Now } else { Requested::Refused }
}

/// Returns true if a notification is requested and there was none. A request that was answered is
/// withdrawn.
pub(crate) fn is_pending(wakeup: Wakeup<'_>, request: &mut Option<Armed>) -> bool {
    if request.is_some_and(|armed| wakeup.has_notified(armed)) {
        withdraw(wakeup, request);
    }
    request.is_some()
}

/// Withdraws the request.
pub(crate) fn withdraw(wakeup: Wakeup<'_>, request: &mut Option<Armed>) {
    if let Some(armed) = request.take() {
        wakeup.disarm(armed);
    }
}
