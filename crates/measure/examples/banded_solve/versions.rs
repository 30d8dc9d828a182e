//! The four ways in which a product comes from the column before and goes to the one after.

use clap::ValueEnum;
use queues::bulk::DEFAULT_STAGING_BYTES;
use queues::cache_line::{CacheLineHeader, CacheLineMessage};
use queues::id::SourceName;
use queues::window::Condition;
use std::hint::black_box;
use tradewind::messages::{BulkEnd, BulkReceiver, BulkSender, CacheLinePort, Pipeline, Windows};
use tradewind::{Communicator, Result};

/// A version of the solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Version {
    /// Send and receive of messages of any length.
    SendReceive,
    /// A short message a value.
    Message,
    /// Channels that are open for the whole computation.
    Channel,
    /// The value is fetched from its owner as soon as it is there.
    Fetch,
}

impl Version {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Version::SendReceive => "send-receive",
            Version::Message => "message",
            Version::Channel => "channel",
            Version::Fetch => "fetch",
        }
    }

    /// Returns true if it also works between nodes.
    pub(crate) fn crosses_nodes(self) -> bool {
        matches!(self, Version::Message | Version::Channel)
    }
}

/// A place in the pipeline. The first rank never receives, the last one never sends.
pub(crate) trait Stage {
    fn receive(&mut self) -> Result<f64>;
    fn send(&mut self, product: f64) -> Result<()>;
}

/// No communication at all: what is left is the computation.
pub(crate) struct Alone {
    incoming: f64,
}

impl Alone {
    pub(crate) fn new() -> Self {
        // Unknown to the compiler, so that it is subtracted as any other.
        Alone { incoming: black_box(0.0) }
    }
}

impl Stage for Alone {
    #[inline(always)]
    fn receive(&mut self) -> Result<f64> {
        Ok(self.incoming)
    }

    #[inline(always)]
    fn send(&mut self, product: f64) -> Result<()> {
        black_box(product);
        Ok(())
    }
}

/// The general library: messages of any length from buffer to buffer, as MPI's.
pub(crate) struct SendReceive {
    previous: Option<BulkReceiver>,
    next: Option<BulkSender>,
}

impl SendReceive {
    pub(crate) fn open(world: &Communicator) -> Result<Self> {
        let (mut previous, mut next) = (None, None);
        for rank in 1..world.size() {
            match world.bulk(rank - 1, rank, DEFAULT_STAGING_BYTES)? {
                Some(BulkEnd::Sender(sender)) => next = Some(sender),
                Some(BulkEnd::Receiver(receiver)) => previous = Some(receiver),
                None => {}
            }
        }
        Ok(SendReceive { previous, next })
    }
}

impl Stage for SendReceive {
    #[inline(always)]
    fn receive(&mut self) -> Result<f64> {
        let mut buffer = [0; 8];
        if let Some(previous) = &mut self.previous {
            previous.recv(&mut buffer)?;
        }
        Ok(f64::from_le_bytes(buffer))
    }

    #[inline(always)]
    fn send(&mut self, product: f64) -> Result<()> {
        if let Some(next) = &mut self.next {
            next.send(&product.to_le_bytes())?;
        }
        Ok(())
    }
}

/// A message with a header for every value, into a queue with any number of senders.
pub(crate) struct Message {
    port: CacheLinePort,
    header: CacheLineHeader,
    next: usize,
}

impl Message {
    pub(crate) fn open(world: &Communicator, capacity: usize) -> Result<Self> {
        let source = SourceName::new(world.rank() as u16).unwrap_or_default();
        let port = world.cache_lines(capacity)?;
        Ok(Message {
            port,
            header: CacheLineHeader { source, handler: 0, tag: 0 },
            next: world.rank() as usize + 1,
        })
    }
}

impl Stage for Message {
    #[inline(always)]
    fn receive(&mut self) -> Result<f64> {
        let message = self.port.receiver.recv()?;
        Ok(message.data().try_into().map_or(f64::NAN, f64::from_le_bytes))
    }

    #[inline(always)]
    fn send(&mut self, product: f64) -> Result<()> {
        // Eight bytes are never too long.
        let message =
            CacheLineMessage::new(self.header, &product.to_le_bytes()).unwrap_or_default();
        Ok(self.port.senders[self.next].send(&message)?)
    }
}

/// Nothing but the value: a store for a send, two loads for a receive.
impl Stage for Pipeline<f64> {
    #[inline(always)]
    fn receive(&mut self) -> Result<f64> {
        match &mut self.previous {
            Some(previous) => Ok(previous.recv()?),
            None => Ok(0.0),
        }
    }

    #[inline(always)]
    fn send(&mut self, product: f64) -> Result<()> {
        match &mut self.next {
            Some(next) => Ok(next.send(product)?),
            None => Ok(()),
        }
    }
}

/// The products of a solve lie in their owner's window, each beside a count that says that it is
/// there.
pub(crate) struct Fetch {
    windows: Windows,
    rank: usize,
    rows: u64,
    /// Counted over all solves, so that no count ever goes back.
    received: u64,
    sent: u64,
}

/// Bytes of a count and its product. They lie in one line, so that a rank that reads the count
/// has the product too.
const PAIR: u64 = 16;
const PRODUCT: u64 = 8;

impl Fetch {
    pub(crate) fn open(world: &Communicator, rows: u64) -> Result<Self> {
        let windows = world.windows(rows * PAIR)?;
        Ok(Fetch { windows, rank: world.rank() as usize, rows, received: 0, sent: 0 })
    }
}

impl Stage for Fetch {
    #[inline(always)]
    fn receive(&mut self) -> Result<f64> {
        let at = self.received % self.rows * PAIR;
        self.received += 1;
        let condition = Condition { at, at_least: self.received };
        let request =
            self.windows.all[self.rank - 1].fetch_when(condition, at + PRODUCT, [0; 8])?;
        Ok(f64::from_le_bytes(request.wait()?))
    }

    #[inline(always)]
    fn send(&mut self, product: f64) -> Result<()> {
        let own = self.windows.own.local();
        let at = self.sent % self.rows * PAIR;
        self.sent += 1;
        own.put_value(at + PRODUCT, product)?;
        Ok(own.put_value(at, self.sent)?)
    }
}
