//! The mechanisms by which a number comes from rank 0 to rank 1.

use clap::ValueEnum;
use queues::cache_line::{CacheLineHeader, CacheLineMessage};
use queues::channel;
use queues::express;
use queues::id::SourceName;
use queues::window::Condition;
use tradewind::messages::{CacheLinePort, ChannelEnd, ChannelReceiver, ExpressPort, Windows};
use tradewind::{Communicator, Result};

/// Ranks of the sender and the receiver.
pub(crate) const SENDER: u32 = 0;
pub(crate) const RECEIVER: u32 = 1;

/// Messages that a queue or a channel holds; there is never more than one.
const CAPACITY: usize = 64;

/// A mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mechanism {
    /// Five bytes in a word of a queue.
    Express,
    /// A line of a queue.
    Wide,
    /// A word of an open channel.
    Channel,
    /// The receiver fetches it from the sender's memory as soon as it is there.
    Fetch,
    /// The sender writes it into the receiver's memory and notifies.
    Write,
}

impl Mechanism {
    pub(crate) const ALL: [Mechanism; 5] = [
        Mechanism::Express,
        Mechanism::Wide,
        Mechanism::Channel,
        Mechanism::Fetch,
        Mechanism::Write,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Express => "express",
            Mechanism::Wide => "wide",
            Mechanism::Channel => "channel",
            Mechanism::Fetch => "fetch",
            Mechanism::Write => "write",
        }
    }
}

/// Mechanism that carries numbers from rank 0 to rank 1. Each is one more than the one before.
pub(crate) trait Way {
    fn send(&mut self, number: u64) -> Result<()>;
    fn receive(&mut self) -> Result<u64>;
}

impl Way for ExpressPort {
    fn send(&mut self, number: u64) -> Result<()> {
        // The receiver would notice a number of more than five bytes.
        let message = express::ExpressMessage::of_number(SourceName::default(), 0, number)
            .unwrap_or_default();
        Ok(self.senders[RECEIVER as usize].send(&message)?)
    }

    fn receive(&mut self) -> Result<u64> {
        Ok(self.receiver.recv()?.number())
    }
}

impl Way for CacheLinePort {
    fn send(&mut self, number: u64) -> Result<()> {
        let header = CacheLineHeader { source: SourceName::default(), handler: 0, tag: 0 };
        // Eight bytes are never too long.
        let message = CacheLineMessage::new(header, &number.to_le_bytes()).unwrap_or_default();
        Ok(self.senders[RECEIVER as usize].send(&message)?)
    }

    fn receive(&mut self) -> Result<u64> {
        Ok(self.receiver.recv()?.data().try_into().map_or(0, u64::from_le_bytes))
    }
}

/// The ends of a channel that this rank has.
#[derive(Debug)]
pub(crate) struct Ends {
    sender: Option<channel::Sender<u64>>,
    receiver: Option<ChannelReceiver<u64>>,
}

impl Ends {
    pub(crate) fn open(world: &Communicator, from: u32, to: u32) -> Result<Self> {
        let (sender, receiver) = match world.channel(from, to, CAPACITY as u64)? {
            Some(ChannelEnd::Sender(sender)) => (Some(sender), None),
            Some(ChannelEnd::Receiver(receiver)) => (None, Some(receiver)),
            None => (None, None),
        };
        Ok(Ends { sender, receiver })
    }
}

impl Way for Ends {
    fn send(&mut self, number: u64) -> Result<()> {
        self.sender.as_mut().map_or(Ok(()), |sender| Ok(sender.send(number)?))
    }

    fn receive(&mut self) -> Result<u64> {
        self.receiver.as_mut().map_or(Ok(0), |receiver| Ok(receiver.recv()?))
    }
}

/// The sender's window: the number behind a count of those that were written.
struct Fetched {
    windows: Windows,
    received: u64,
    sent: u64,
}

/// Place of the number: not in the count's line.
const NUMBER: u64 = 64;

impl Way for Fetched {
    fn send(&mut self, number: u64) -> Result<()> {
        let own = self.windows.own.local();
        own.put_value(NUMBER, number)?;
        self.sent += 1;
        Ok(own.put_value(0, self.sent)?)
    }

    fn receive(&mut self) -> Result<u64> {
        self.received += 1;
        let condition = Condition { at: 0, at_least: self.received };
        let request = self.windows.all[SENDER as usize].fetch_when(condition, NUMBER, [0; 8])?;
        Ok(u64::from_le_bytes(request.wait()?))
    }
}

/// The receiver's window, with notifications.
struct Written {
    windows: Windows,
    received: u64,
}

impl Way for Written {
    fn send(&mut self, number: u64) -> Result<()> {
        let there = &self.windows.all[RECEIVER as usize];
        there.put_value(0, number)?;
        there.notify()?;
        Ok(())
    }

    fn receive(&mut self) -> Result<u64> {
        self.received += 1;
        self.windows.own.wait_for_notifications(self.received, None);
        Ok(self.windows.own.local().get_value(0)?)
    }
}

/// Opens a way. All ranks call this.
pub(crate) fn open(world: &Communicator, mechanism: Mechanism) -> Result<Box<dyn Way>> {
    Ok(match mechanism {
        Mechanism::Express => Box::new(world.express(CAPACITY)?),
        Mechanism::Wide => Box::new(world.cache_lines(CAPACITY)?),
        Mechanism::Channel => Box::new(Ends::open(world, SENDER, RECEIVER)?),
        Mechanism::Fetch => {
            Box::new(Fetched { windows: world.windows(NUMBER + 8)?, received: 0, sent: 0 })
        }
        Mechanism::Write => Box::new(Written { windows: world.windows(8)?, received: 0 }),
    })
}
