//! Append buffers, bulk connections and Tag-On between ranks that are processes on several nodes,
//! one of which is killed or vanishes.

use super::harness::{Hydra, Said};
use super::rank::say;
use super::{VICTIM, after_a_disconnection, after_a_kill, nodes};
use rustix::process::{Signal, getpid, kill_process};
use tradewind::messages::{
    AppendEnds, BulkEnd, BulkError, BulkReceiver, BulkSender, CacheLineHeader,
    DEFAULT_STAGING_BYTES, MessageError, RecvError, SendError, TagOnError, TagOnPort, WindowError,
};
use tradewind::{Communicator, Error, Job, Result};

testing::tests![
    needs(Nodes, Mpiexec):
    a_killed_rank_ends_append_buffers_and_bulk_connections_behind_what_it_sent,
    a_vanished_node_ends_append_buffers_and_bulk_connections,
    a_multicast_reaches_the_others_when_one_of_its_receivers_is_killed,
];

const EACH: u64 = 1000;

/// The receiver of a multicast that is killed.
const KILLED: &str = "TRADEWIND_TEST_KILLED";
/// Number of data of a multicast before it holds some, and behind the report of its end.
const BEFORE: u32 = 100;
const BEHIND: u32 = 200;
/// Number of data that it holds.
const HELD: usize = 3;
/// Note of the last data.
const LAST: &[u8] = b"last";
const BULK_BYTES: usize = 100_000;

/// Ends with the victim: buffers of ranks 1 and 2, and a connection from rank 0 to the victim and
/// one from the victim to rank 1.
struct Ends {
    to_1: AppendEnds,
    to_victim: AppendEnds,
    sender: Option<BulkSender>,
    receiver: Option<BulkReceiver>,
    tagged: TagOnPort,
}

impl Ends {
    fn open(world: &Communicator) -> Result<Ends> {
        let to_1 = world.append_buffer(1, 64, 100)?;
        let to_victim = world.append_buffer(VICTIM, 64, 100)?;
        let (mut sender, mut receiver) = (None, None);
        for (from, to) in [(0, VICTIM), (VICTIM, 1)] {
            match world.bulk(from, to, DEFAULT_STAGING_BYTES)? {
                Some(BulkEnd::Sender(end)) => sender = Some(end),
                Some(BulkEnd::Receiver(end)) => receiver = Some(end),
                None => {}
            }
        }
        let tagged = world.tag_on(64, 16, 1000)?;
        Ok(Ends { to_1, to_victim, sender, receiver, tagged })
    }

    /// Waits at the ends of ranks 0 and 1 until they report that the victim has failed.
    fn wait_for_end(&mut self) {
        let appended = std::iter::repeat_with(|| self.to_victim.sender.send(&[1; 100]));
        let error = appended.filter_map(std::result::Result::err).next();
        assert_eq!(error, Some(SendError::RankExited { rank: VICTIM }));
        let is_victim = |error: &_| matches!(error, BulkError::RankExited { rank: VICTIM, .. });
        if let Some(sender) = &mut self.sender {
            let mut sent = std::iter::repeat_with(|| sender.send(&[1; BULK_BYTES]));
            let error = sent.find_map(std::result::Result::err).expect("no rank receives");
            assert!(is_victim(&error), "{error}");
        }
        if let Some(receiver) = &mut self.receiver {
            let error = receiver.recv(&mut [0; BULK_BYTES]).expect_err("nothing follows");
            assert!(is_victim(&error), "{error}");
        }
        let data = self.tagged.pool.take().expect("none is in use").finish(1000);
        let mut sent = std::iter::repeat_with(|| {
            self.tagged.sender.send(&data, &[VICTIM], CacheLineHeader::default(), &[])
        });
        let error = sent.find_map(std::result::Result::err).expect("no rank receives");
        let is_victim = matches!(
            error,
            TagOnError::Send(SendError::RankExited { rank: VICTIM })
                | TagOnError::Land(WindowError::RankExited { rank: VICTIM })
        );
        assert!(is_victim, "{error}");
        let end = self.tagged.receiver.recv().map(drop);
        assert!(
            matches!(
                end,
                Err(Error::Message(MessageError::Recv(RecvError::RankExited { rank: VICTIM })))
            ),
            "{end:?}"
        );
        if let Some(receiver) = &mut self.to_1.receiver {
            let end = receiver.recv(&mut Vec::new());
            assert_eq!(end, Err(RecvError::RankExited { rank: VICTIM }));
        }
    }
}

fn a_killed_rank_ends_append_buffers_and_bulk_connections_behind_what_it_sent() {
    after_a_kill("records-beside-a-killed-rank", "rank 2 has failed");
}

pub(super) fn beside_a_killed_rank() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let rank = world.rank();
    let mut ends = Ends::open(world)?;
    world.barrier()?;
    if rank == VICTIM {
        (0..EACH).try_for_each(|number| ends.to_1.sender.send(&number.to_le_bytes()))?;
        if let Some(sender) = &mut ends.sender {
            (0..5).try_for_each(|number| sender.send(&[number; BULK_BYTES]).map(drop))?;
        }
        for number in 0..10 {
            let mut buffer = ends.tagged.pool.take()?;
            buffer.fill(number);
            let data = buffer.finish(1000);
            ends.tagged.sender.send(&data, &[0, 1], CacheLineHeader::default(), &[])?;
        }
        let _ = kill_process(getpid(), Signal::KILL);
    }
    if let Some(receiver) = &mut ends.to_1.receiver {
        let mut record = Vec::new();
        for number in 0..EACH {
            receiver.recv(&mut record)?;
            assert_eq!(record, number.to_le_bytes(), "what it appended comes first");
        }
    }
    if let Some(receiver) = &mut ends.receiver {
        let mut buffer = vec![0; BULK_BYTES];
        for number in 0..5 {
            assert_eq!(receiver.recv(&mut buffer)?.bytes, BULK_BYTES);
            assert!(buffer.iter().all(|byte| *byte == number), "what it sent comes first");
        }
    }
    for number in 0..10 {
        let message = ends.tagged.receiver.recv()?;
        assert_eq!(message.data[..], [number; 1000], "what it sent comes first");
    }
    ends.wait_for_end();
    say(rank, "rank 2 has failed");
    Ok(())
}

fn a_vanished_node_ends_append_buffers_and_bulk_connections() {
    after_a_disconnection("records-to-a-vanished-node", &["rank 2 has failed"]);
}

pub(super) fn to_a_vanished_node() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let mut ends = Ends::open(world)?;
    world.barrier()?;
    say(world.rank(), "waits");
    if world.rank() == VICTIM {
        // It finds the other node lost, too.
        let receiver = ends.to_victim.receiver.as_mut().expect("this rank receives");
        while receiver.recv(&mut Vec::new()).is_ok() {}
        return Ok(());
    }
    ends.wait_for_end();
    say(world.rank(), "rank 2 has failed");
    Ok(())
}

/// Ranks 1 to 3 are on the second node. Rank 1 has the memory for the data of all three.
fn a_multicast_reaches_the_others_when_one_of_its_receivers_is_killed() {
    for killed in [2, 1] {
        let testbed = nodes(2);
        // A name for each rank, because Hydra kills what it has started by one name together.
        let said = Hydra::new(&testbed, &[1, 1, 1, 1])
            .option("-disable-auto-cleanup")
            .variable(KILLED, &killed.to_string())
            .program("multicast-to-a-killed-rank")
            .run();
        let others = [0, 1, 2, 3].into_iter().filter(|rank| *rank != killed);
        let expected: Vec<Said> = others.map(|rank| Said::new(rank, "goes on")).collect();
        assert_eq!(said, expected, "rank {killed} is killed");
    }
}

/// Rank 0 sends numbered data to the others, one of which is killed while it holds some, and has
/// not received others. Ends with data behind the report of the kill.
pub(super) fn multicast_to_a_killed_rank() -> Result<()> {
    let killed = std::env::var(KILLED).ok().and_then(|rank| rank.parse().ok());
    let killed: u32 = killed.expect("the test sets it");
    let job = Job::init()?;
    let world = job.world();
    // One more than the killed rank holds: it gets another one before the sender has none.
    let port = world.tag_on(16, HELD as u64 + 1, 1000)?;
    world.barrier()?;
    match world.rank() {
        0 => multicast(&port, killed)?,
        rank => receive_multicast(port, rank, killed)?,
    }
    say(world.rank(), "goes on");
    Ok(())
}

fn multicast(port: &TagOnPort, killed: u32) -> Result<()> {
    let mut reported = None;
    for number in 0_u32.. {
        let mut buffer = port.pool.take()?;
        buffer.fill(number as u8);
        buffer[..4].copy_from_slice(&number.to_le_bytes());
        let data = buffer.finish(1000);
        let is_last = reported.is_some_and(|reported| number == reported + BEHIND);
        let note = if is_last { LAST } else { &[] };
        let sent = port.sender.send(&data, &[1, 2, 3], CacheLineHeader::default(), note);
        match sent {
            Ok(()) => assert_eq!(reported, None, "it was reported before"),
            Err(
                TagOnError::Send(SendError::RankExited { rank })
                | TagOnError::Land(WindowError::RankExited { rank }),
            ) if rank == killed => _ = reported.get_or_insert(number),
            Err(other) => return Err(other.into()),
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

fn receive_multicast(mut port: TagOnPort, rank: u32, killed: u32) -> Result<()> {
    let mut held = Vec::new();
    let mut next = 0;
    loop {
        let message = match port.receiver.recv() {
            // The killed rank might have sent, too. What others send still arrives.
            Err(Error::Message(MessageError::Recv(RecvError::RankExited { rank })))
                if rank == killed =>
            {
                std::thread::yield_now();
                continue;
            }
            other => other?,
        };
        let (begin, rest) = message.data.split_first_chunk().expect("1000 bytes");
        assert_eq!(u32::from_le_bytes(*begin), next, "each once, in order");
        assert!(rest.iter().all(|byte| *byte == next as u8), "whole");
        next += 1;
        if message.note() == LAST {
            return Ok(());
        }
        if rank == killed && next > BEFORE {
            held.push(message);
        }
        if held.len() == HELD {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}
