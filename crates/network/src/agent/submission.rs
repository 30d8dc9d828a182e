//! The requests of a rank to its agent, and their encoding as entries of the submission ring.

use crate::flows::ChannelEnd;
use crate::run_counts::StartedRuns;
use shm::segment::Offset;

/// Largest number of runs of one rank that are under way or not fetched yet.
pub(crate) const SLOTS: u32 = 1 << 16;

/// A request of a rank to its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submission {
    /// Registers a schedule: the members of the communicator (u32 each) at `at`, the schedule's
    /// bytes at the next multiple of 8.
    Register {
        id: u64,
        communicator: u32,
        rank: u32,
        at: Offset,
        members: u64,
        bytes: u64,
        signature: u32,
    },
    /// Releases a schedule.
    Release { id: u64 },
    /// Starts a run with its buffers at `at`.
    Start { id: u64, slot: u32, generation: u32, sequence: u64, at: Offset },
    /// Requests the ranks that a run waits for.
    QueryAwaited { slot: u32, generation: u32 },
    /// Sends the ranks that a run waits for a sign of it.
    AnnounceWait { slot: u32, generation: u32 },
    /// Requests the ranks from `first` on that have exited, in order, each as the word of an
    /// [`ExitedRank`](crate::backend::ExitedRank).
    QueryExited { first: u32 },
    /// Requests an answer that is not empty if there are messages for a run that this rank has not
    /// started.
    QueryUnexpected { communicator: u32, sequence: u64 },
    /// Runs that the rank has started on another backend, for the announcement that follows.
    CountStarted(StartedRuns),
    /// Notes that the rank neither has nor will have a communicator with one of these numbers.
    EndCommunicators { first: u32, last: u32 },
    /// Announces that the rank leaves, and starts nothing any more on the other backend.
    AnnounceExit,
    /// Requests the ranks that have announced this and have not started a run there.
    QueryNeverStart { communicator: u32, sequence: u64 },
    /// Opens the memory for messages at `at`, with rings of `ring` bytes.
    OpenMessages { at: Offset, ring: u64 },
    /// Opens the queue at `at` in the job's segment to other nodes, as a port of this rank, with the
    /// ranks in the table at `table` there and the count of its users at `uses`. The answer is empty,
    /// or the reason of the refusal.
    OpenPort { port: u64, at: Offset, table: Offset, uses: Offset },
    /// Closes that queue.
    CloseReceiver { port: u64 },
    /// Ends the sends of this rank to the other queues of the port.
    CloseSenders { port: u64 },
    /// Requests the ranks from `first` on that have exited, and from which nothing follows in the
    /// queue; as `QueryExited`.
    QueryQueueExits { port: u64, first: u32 },
    /// Opens an end of a channel of this rank, with its ring at `at` in the job's segment.
    OpenChannel { port: u64, end: ChannelEnd, at: Offset },
    /// Opens the window at `at` in the job's segment to other nodes, as a port of this rank, for the
    /// ranks in the table at `table` there. Answered as `OpenPort`.
    OpenWindow { port: u64, at: Offset, table: Offset },
    /// Closes that window for other nodes.
    CloseWindow { port: u64 },
    /// The last entry. The rank leaves in order, or because its thread panics.
    Exit { has_panicked: bool },
}

impl Submission {
    /// Returns the words of the entry.
    pub(super) fn encode(self) -> [u64; 8] {
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        match self {
            Submission::Register { id, communicator, rank, at, members, bytes, signature } => {
                [1, id, pair(communicator, rank), at.0, members, bytes, u64::from(signature), 0]
            }
            Submission::Release { id } => [2, id, 0, 0, 0, 0, 0, 0],
            Submission::Start { id, slot, generation, sequence, at } => {
                [3, id, pair(slot, generation), at.0, sequence, 0, 0, 0]
            }
            Submission::Exit { has_panicked } => [4, 0, u64::from(has_panicked), 0, 0, 0, 0, 0],
            Submission::QueryAwaited { slot, generation } => {
                [5, 0, pair(slot, generation), 0, 0, 0, 0, 0]
            }
            Submission::QueryExited { first } => [6, 0, pair(first, 0), 0, 0, 0, 0, 0],
            Submission::QueryUnexpected { communicator, sequence } => {
                [7, 0, pair(communicator, 0), 0, sequence, 0, 0, 0]
            }
            Submission::CountStarted(StartedRuns { first, last, count }) => {
                [8, 0, pair(first, last), 0, count, 0, 0, 0]
            }
            Submission::AnnounceExit => [9, 0, 0, 0, 0, 0, 0, 0],
            Submission::QueryNeverStart { communicator, sequence } => {
                [10, 0, pair(communicator, 0), 0, sequence, 0, 0, 0]
            }
            Submission::OpenMessages { at, ring } => [11, 0, 0, at.0, ring, 0, 0, 0],
            Submission::OpenPort { port, at, table, uses } => {
                [12, port, 0, at.0, table.0, uses.0, 0, 0]
            }
            Submission::CloseReceiver { port } => [13, port, 0, 0, 0, 0, 0, 0],
            Submission::CloseSenders { port } => [14, port, 0, 0, 0, 0, 0, 0],
            Submission::QueryQueueExits { port, first } => {
                [15, port, pair(first, 0), 0, 0, 0, 0, 0]
            }
            Submission::OpenChannel { port, end, at } => {
                let (peer, receives) = match end {
                    ChannelEnd::SendsTo(peer) => (peer, 0),
                    ChannelEnd::ReceivesFrom(peer) => (peer, 1),
                };
                [16, port, pair(peer, receives), at.0, 0, 0, 0, 0]
            }
            Submission::OpenWindow { port, at, table } => [17, port, 0, at.0, table.0, 0, 0, 0],
            Submission::CloseWindow { port } => [18, port, 0, 0, 0, 0, 0, 0],
            Submission::AnnounceWait { slot, generation } => {
                [19, 0, pair(slot, generation), 0, 0, 0, 0, 0]
            }
            Submission::EndCommunicators { first, last } => {
                [20, 0, pair(first, last), 0, 0, 0, 0, 0]
            }
        }
    }

    /// Reads an entry; `None` if the words are no valid one.
    pub(super) fn decode(
        [kind, id, pair, at, fourth, fifth, sixth, _]: [u64; 8],
    ) -> Option<Submission> {
        let low = pair as u32;
        let high = (pair >> 32) as u32;
        let at = Offset(at);
        match kind {
            1 => Some(Submission::Register {
                id,
                communicator: low,
                rank: high,
                at,
                members: fourth,
                bytes: fifth,
                signature: sixth as u32,
            }),
            2 => Some(Submission::Release { id }),
            3 if low < SLOTS => {
                Some(Submission::Start { id, slot: low, generation: high, sequence: fourth, at })
            }
            4 if pair <= 1 => Some(Submission::Exit { has_panicked: pair == 1 }),
            5 => Some(Submission::QueryAwaited { slot: low, generation: high }),
            6 => Some(Submission::QueryExited { first: low }),
            7 => Some(Submission::QueryUnexpected { communicator: low, sequence: fourth }),
            8 => {
                let started = StartedRuns { first: low, last: high, count: fourth };
                Some(Submission::CountStarted(started))
            }
            9 => Some(Submission::AnnounceExit),
            10 => Some(Submission::QueryNeverStart { communicator: low, sequence: fourth }),
            11 => Some(Submission::OpenMessages { at, ring: fourth }),
            12 => {
                let [table, uses] = [fourth, fifth].map(Offset);
                Some(Submission::OpenPort { port: id, at, table, uses })
            }
            13 => Some(Submission::CloseReceiver { port: id }),
            14 => Some(Submission::CloseSenders { port: id }),
            15 => Some(Submission::QueryQueueExits { port: id, first: low }),
            16 => {
                let end = match high {
                    0 => ChannelEnd::SendsTo(low),
                    1 => ChannelEnd::ReceivesFrom(low),
                    _ => return None,
                };
                Some(Submission::OpenChannel { port: id, end, at })
            }
            17 => Some(Submission::OpenWindow { port: id, at, table: Offset(fourth) }),
            18 => Some(Submission::CloseWindow { port: id }),
            19 => Some(Submission::AnnounceWait { slot: low, generation: high }),
            20 if low <= high => Some(Submission::EndCommunicators { first: low, last: high }),
            _ => None,
        }
    }
}
