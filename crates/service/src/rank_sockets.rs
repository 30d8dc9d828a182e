//! Copies of the sockets between ranks, which outlive their ranks.
//!
//! A rank hands what it sends to its system and computes. If its process is killed
//! then, the last copy of a socket would close with messages that the rank has not read: the system
//! resets such a connection and drops what it has not sent. The copies of the node service prevent
//! that. When the rank has exited, the service ends the rank's direction of each connection behind
//! what is left to send, and closes the copy once the other rank's system has everything.

use crate::limits::spare_files;
use network::transport::tcp::unacknowledged;
use rustix::net::{Shutdown, shutdown};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at the sockets of a rank that has exited, first and last. The system
/// reports no acknowledgement, and most follow within a round trip.
const INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// The copies, by rank of this node.
#[derive(Debug, Default)]
pub(crate) struct RankSockets {
    of_rank: HashMap<u32, Vec<OwnedFd>>,
    kept: u64,
    /// Number of ranks that have exited with something left to send.
    unsent: Arc<AtomicU32>,
}

impl RankSockets {
    /// Keeps sockets of a rank.
    ///
    /// # Errors
    /// If the service needs its descriptors itself.
    pub(crate) fn keep(&mut self, rank: u32, sockets: Vec<OwnedFd>) -> Result<(), String> {
        let kept = self.kept + sockets.len() as u64;
        if kept > spare_files() {
            return Err(format!(
                "copies of {kept} sockets are more than a quarter of its open files: raise their limit \
                 (`ulimit -n`)"
            ));
        }
        self.kept = kept;
        self.of_rank.entry(rank).or_default().extend(sockets);
        Ok(())
    }

    /// Ends the connections of a rank that has exited, behind what is left to send. Returns a
    /// connection up that makes no progress for the time `time_limit`. Calls `ended` if
    /// [`is_busy`](Self::is_busy) has changed.
    pub(crate) fn exit(
        &mut self,
        rank: u32,
        time_limit: Duration,
        ended: impl FnOnce() + Send + 'static,
    ) {
        let sockets = self.of_rank.remove(&rank).unwrap_or_default();
        let now = Instant::now();
        let mut unsent: Vec<UnsentRest> =
            sockets.into_iter().filter_map(|socket| UnsentRest::of(socket, now)).collect();
        if unsent.is_empty() {
            return;
        }
        self.unsent.fetch_add(1, Ordering::Relaxed);
        let count = Arc::clone(&self.unsent);
        let finish = move || {
            let [mut interval, longest] = INTERVALS;
            while !unsent.is_empty() {
                std::thread::sleep(interval);
                interval = (2 * interval).min(longest);
                unsent.retain_mut(|rest| rest.is_under_way(time_limit));
            }
            // Release: pairs with the Acquire in `is_busy`; the service ends behind the closes.
            count.fetch_sub(1, Ordering::Release);
            ended();
        };
        let thread = std::thread::Builder::new().name("tradewind-rest".into());
        if thread.spawn(finish).is_err() {
            // The sockets are closed with the closure, as those of a rank are without copies.
            self.unsent.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns true while something is left to send that a rank has handed to the system.
    pub(crate) fn is_busy(&self) -> bool {
        // Acquire: pairs with the Release in `exit`.
        self.unsent.load(Ordering::Acquire) > 0
    }
}

/// A connection of which the other system does not have everything.
#[derive(Debug)]
struct UnsentRest {
    socket: OwnedFd,
    bytes: u64,
    /// Time of the last acknowledgement that was seen.
    since: Instant,
}

impl UnsentRest {
    /// Ends this direction of a connection; `None` if nothing is left to send.
    fn of(socket: OwnedFd, since: Instant) -> Option<Self> {
        // It fails if the connection has ended, or the descriptor is no socket.
        shutdown(&socket, Shutdown::Write).ok()?;
        let bytes = unacknowledged(socket.as_fd());
        (bytes > 0).then_some(UnsentRest { socket, bytes, since })
    }

    /// Returns false once the other system has everything, or has acknowledged nothing for the time
    /// `time_limit`.
    fn is_under_way(&mut self, time_limit: Duration) -> bool {
        let bytes = unacknowledged(self.socket.as_fd());
        if std::mem::replace(&mut self.bytes, bytes) != bytes {
            self.since = Instant::now();
        }
        bytes > 0 && self.since.elapsed() < time_limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::channel;

    fn connection() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let first = TcpStream::connect(address).expect("it listens");
        [first, listener.accept().expect("one has connected").0]
    }

    /// Writes until the system takes no more, and returns how many bytes it has taken.
    fn fill(stream: &mut TcpStream) -> usize {
        stream.set_nonblocking(true).expect("a socket");
        let mut taken = 0;
        while let Ok(count) = stream.write(&[7; 4096]) {
            taken += count;
        }
        taken
    }

    #[test]
    fn what_a_rank_has_left_to_send_arrives_although_it_has_not_read_everything() {
        let [mut rank, mut other] = connection();
        let mut sockets = RankSockets::default();
        let copy = rank.try_clone().expect("a descriptor");
        sockets.keep(3, vec![copy.into()]).expect("one is not too many");
        other.write_all(b"never read").expect("the connection holds it");
        let taken = fill(&mut rank);
        drop(rank);
        let (sender, receiver) = channel();
        sockets.exit(3, Duration::from_secs(60), move || sender.send(()).expect("it waits"));
        assert!(sockets.is_busy(), "the other end has read nothing of {taken} bytes");
        let mut arrived = Vec::new();
        other.read_to_end(&mut arrived).expect("the connection is not reset");
        assert_eq!(arrived, vec![7; taken]);
        receiver.recv().expect("the other system has everything");
        assert!(!sockets.is_busy());
    }

    #[test]
    fn a_rank_without_anything_to_send_is_over_at_once() {
        let [rank, mut other] = connection();
        let mut sockets = RankSockets::default();
        sockets.keep(0, vec![rank.into()]).expect("one is not too many");
        // The end of a connection is acknowledged as bytes are.
        let (sender, receiver) = channel::<()>();
        sockets.exit(0, Duration::from_secs(60), move || drop(sender));
        assert_eq!(other.read(&mut [0; 8]).expect("an end"), 0);
        assert!(receiver.recv().is_err(), "it is not called, or has been");
        sockets.exit(0, Duration::from_secs(60), || panic!("the rank has no sockets any more"));
    }

    #[test]
    fn a_reset_connection_is_over_at_once() {
        let [mut rank, mut other] = connection();
        let mut sockets = RankSockets::default();
        fill(&mut rank);
        other.write_all(b"never read").expect("the connection holds it");
        sockets.keep(0, vec![rank.into()]).expect("one is not too many");
        let (sender, receiver) = channel();
        sockets.exit(0, Duration::from_secs(3600), move || sender.send(()).expect("it waits"));
        // With data that it has not read: its system resets the connection.
        drop(other);
        receiver.recv().expect("the rest is never read");
    }

    #[test]
    fn connections_without_progress_are_given_up() {
        let [mut rank, other] = connection();
        let mut sockets = RankSockets::default();
        fill(&mut rank);
        sockets.keep(0, vec![rank.into()]).expect("one is not too many");
        let (sender, receiver) = channel();
        sockets.exit(0, Duration::ZERO, move || sender.send(()).expect("it waits"));
        receiver.recv().expect("it gives up");
        assert!(!sockets.is_busy());
        drop(other);
    }
}
