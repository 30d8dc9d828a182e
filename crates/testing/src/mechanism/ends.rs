//! Ends, as the suite sees them.

use std::time::{Duration, Instant};

/// Time that a call may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// None.
    No,
    /// This long.
    For(Duration),
    /// Until there is a result.
    Forever,
}

/// Reason why an end carries nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The other end is closed.
    Closed,
    /// A rank at the other end has left or failed.
    Exited(u32),
}

/// End that sends a number. Returns false if there was no space in time, and an error if nothing can
/// be sent any more.
pub type Sender<'a> = Box<dyn FnMut(u64, Wait) -> Result<bool, End> + Send + 'a>;

/// End that receives a number, and the rank of its sender. Returns `None` if nothing came in time,
/// and an error if everything was received and nothing follows.
pub type Receiver<'a> = Box<dyn FnMut(Wait) -> Result<Option<(u32, u64)>, End> + Send + 'a>;

/// Ends of one rank of a connection in which all ranks send to one.
#[derive(Default)]
pub struct Ends {
    /// End that sends, on every rank that does.
    pub sender: Option<Sender<'static>>,
    /// End that receives, on the receiving rank.
    pub receiver: Option<Receiver<'static>>,
}

/// Job of a test, as one of its ranks sees it.
pub trait Job {
    /// Number of this rank.
    fn rank(&self) -> u32;
    /// Number of ranks.
    fn size(&self) -> u32;
    /// Sum of a number of each rank; no rank returns before all have called.
    fn sum(&self, number: u64) -> u64;
    /// Bytes of shared memory that this rank has allocated.
    fn allocated_bytes(&self) -> u64;
}

/// Mechanism under test.
pub struct Mechanism<J> {
    /// Name for messages.
    pub name: &'static str,
    /// Opens the ends of a connection to a rank. All ranks call it.
    pub open: fn(&J, to: u32) -> Ends,
    /// True if a receiver finds out that its senders have closed. Otherwise it finds out that ranks
    /// have left the job.
    pub reports_closed_senders: bool,
    /// Bytes of one connection, at most.
    pub bytes: u64,
}

/// Merges receivers of which each has one sender. The exit of a sender is reported once, the close of
/// all senders as the end.
pub fn merge<'a>(receivers: impl IntoIterator<Item = Receiver<'a>>) -> Option<Receiver<'a>> {
    let mut members: Vec<_> = receivers.into_iter().map(Some).collect();
    if members.len() < 2 {
        return members.pop().flatten();
    }
    let poll = |member: &mut Option<Receiver<'a>>, wait| {
        let received = member.as_mut().map_or(Ok(None), |member| member(wait));
        if received.is_err() {
            *member = None;
        }
        if received == Err(End::Closed) { Ok(None) } else { received }
    };
    Some(Box::new(move |wait| {
        let begin = Instant::now();
        loop {
            // The next one first next time.
            members.rotate_left(1);
            let mut found = members.iter_mut().map(|member| poll(member, Wait::No));
            if let Some(found) = found.find(|found| *found != Ok(None)) {
                return found;
            }
            // Only a call that waits finds out that ranks have exited.
            let Some(member) = members.iter_mut().find(|member| member.is_some()) else {
                return Err(End::Closed);
            };
            let is_over = match wait {
                Wait::No => true,
                Wait::For(time) => begin.elapsed() >= time,
                Wait::Forever => false,
            };
            let moment = Wait::For(Duration::from_micros(200));
            let found = if is_over { Ok(None) } else { poll(member, moment) };
            if is_over || found != Ok(None) {
                return found;
            }
        }
    }))
}

/// Bytes that identify their sender, their number, and their place in the message. Their count
/// depends on the number: `shortest` and `longest` are among the lengths.
pub fn content(from: u32, number: u64, shortest: usize, longest: usize) -> Vec<u8> {
    let range = longest - shortest + 1;
    let length = match number % 4 {
        0 => shortest + number as usize / 4 % range.min(57),
        1 => shortest + (number as usize * 7919 + from as usize) % range,
        2 => longest,
        _ => shortest,
    };
    let seed = number.wrapping_mul(31) ^ u64::from(from);
    (0..length).map(|place| (seed ^ (place as u64).wrapping_mul(7)) as u8).collect()
}
