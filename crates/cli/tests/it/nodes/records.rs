//! Append buffers, bulk connections and Tag-On between ranks that are processes on several nodes,
//! one of which is killed or vanishes.

use super::rank::say;
use super::{VICTIM, after_a_disconnection, after_a_kill};
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
];

const EACH: u64 = 1000;
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
