//! Every mechanism of a communicator for the suite `testing::mechanism`.

#[path = "../../../../queues/tests/it/ends.rs"]
mod ends;

/// Types of the ends.
mod names {
    pub(crate) use tradewind::messages::{
        AppendReceiver, AppendSender, BasicHeader, BasicReceiver, BasicSender, CacheLineHeader,
        CacheLineMessage, CacheLineReceiver, CacheLineSender, ChannelSender, ExpressMessage,
        ExpressReceiver, ExpressSender, RecvError, SendError, SourceName,
    };
    pub(crate) type ChannelReceiver =
        <tradewind::messages::ChannelReceiver<u64> as std::ops::Deref>::Target;
}

use ends::{ended, sent};
use names::{CacheLineHeader, SourceName};
use std::time::Duration;
use testing::mechanism::{self, End, Ends, Mechanism, Wait, content, merge};
use tradewind::messages::{
    BasicEnd, BulkEnd, BulkError, BulkReceiver, BulkSender, ChannelEnd, Condition, Fetch,
    MessageError, RemoteWindow, TagOnError, TagOnPool, TagOnReceiver, TagOnSender, Window,
    WindowError,
};
use tradewind::{Communicator, Error, Op, Result};

/// A rank of a job.
pub(crate) struct Rank(pub(crate) Communicator);

impl mechanism::Job for Rank {
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn sum(&self, number: u64) -> u64 {
        let mut sum = [0];
        self.0.allreduce(&[number], &mut sum, Op::Sum).expect("all ranks call");
        sum[0]
    }

    fn allocated_bytes(&self) -> u64 {
        self.0.allocated_bytes()
    }
}

/// Takes the ends of a connection to one rank from a port, which has a sender to each.
fn of_port<S, R>(
    (rank, to): (u32, u32),
    (mut senders, receiver): (Vec<S>, R),
    sender: impl FnOnce(u32, S) -> mechanism::Sender<'static>,
    of_receiver: impl FnOnce(R) -> mechanism::Receiver<'static>,
) -> Ends {
    Ends {
        sender: Some(sender(rank, senders.swap_remove(to as usize))),
        receiver: (rank == to).then(|| of_receiver(receiver)),
    }
}

const EXPRESS: Mechanism<Rank> = Mechanism {
    name: "Express queue",
    open: |Rank(world), to| {
        let port = world.express(64).expect("memory");
        let parts = (port.senders, port.receiver);
        of_port((world.rank(), to), parts, ends::express, ends::of_express)
    },
    reports_closed_senders: false,
    bytes: 2048,
};

const CACHE_LINE: Mechanism<Rank> = Mechanism {
    name: "CacheLine queue",
    open: |Rank(world), to| {
        let port = world.cache_lines(64).expect("memory");
        let parts = (port.senders, port.receiver);
        of_port((world.rank(), to), parts, ends::cache_line, ends::of_cache_line)
    },
    reports_closed_senders: false,
    bytes: 8192,
};

const APPEND: Mechanism<Rank> = Mechanism {
    name: "append buffer",
    open: |Rank(world), to| {
        let ends = world.append_buffer(to, 16, 480).expect("memory");
        assert_eq!(
            (ends.receiver.is_some(), ends.sender.record_bytes()),
            (world.rank() == to, 480)
        );
        Ends {
            sender: Some(ends::append(world.rank(), ends.sender)),
            receiver: ends.receiver.map(ends::of_append),
        }
    },
    reports_closed_senders: false,
    bytes: 11_000,
};

/// Opens ends from each other rank to one, by a function of the pair.
fn of_pairs(world: &Communicator, to: u32, mut open: impl FnMut(u32) -> Result<Ends>) -> Ends {
    let mut sender = None;
    let mut receivers = Vec::new();
    for from in (0..world.size()).filter(|from| *from != to) {
        let ends = open(from).expect("memory");
        assert_eq!(ends.sender.is_some(), world.rank() == from);
        assert_eq!(ends.receiver.is_some(), world.rank() == to);
        sender = sender.or(ends.sender);
        receivers.extend(ends.receiver);
    }
    Ends { sender, receiver: merge(receivers) }
}

const BASIC: Mechanism<Rank> = Mechanism {
    name: "Basic ring",
    open: |Rank(world), to| {
        of_pairs(world, to, |from| {
            Ok(match world.basic(from, to, 64)? {
                Some(BasicEnd::Sender(end)) => {
                    Ends { sender: Some(ends::basic(from, end)), receiver: None }
                }
                Some(BasicEnd::Receiver(end)) => {
                    Ends { sender: None, receiver: Some(ends::of_basic(from, 64, end)) }
                }
                None => Ends::default(),
            })
        })
    },
    reports_closed_senders: true,
    bytes: 2 * 64 * 80,
};

const CHANNEL: Mechanism<Rank> = Mechanism {
    name: "channel",
    open: |Rank(world), to| {
        of_pairs(world, to, |from| {
            Ok(match world.channel::<u64>(from, to, 64)? {
                Some(ChannelEnd::Sender(end)) => {
                    Ends { sender: Some(ends::channel(end)), receiver: None }
                }
                Some(ChannelEnd::Receiver(end)) => {
                    Ends { sender: None, receiver: Some(ends::of_channel(from, end)) }
                }
                None => Ends::default(),
            })
        })
    },
    reports_closed_senders: true,
    bytes: 4096,
};

/// Longest message of a bulk connection: some pieces of its staging area.
const BULK: usize = 10_000;

fn of_bulk<T>(outcome: std::result::Result<T, BulkError>) -> std::result::Result<bool, End> {
    match outcome {
        Ok(_) => Ok(true),
        Err(BulkError::Timeout { .. }) => Ok(false),
        Err(BulkError::Closed { .. }) => Err(End::Closed),
        Err(BulkError::RankExited { rank, .. }) => Err(End::Exited(rank)),
        Err(other) => panic!("{other}"),
    }
}

/// A call that does not wait is one that waits for a moment.
const MOMENT: Duration = Duration::from_millis(1);

fn bulk_sender(from: u32, mut end: BulkSender) -> mechanism::Sender<'static> {
    Box::new(move |number, wait| {
        let bytes = content(from, number, 0, BULK);
        of_bulk(match wait {
            Wait::No => end.send_timeout(&bytes, MOMENT),
            Wait::For(time) => end.send_timeout(&bytes, time),
            Wait::Forever => end.send(&bytes),
        })
    })
}

fn bulk_receiver(from: u32, mut end: BulkReceiver) -> mechanism::Receiver<'static> {
    let mut buffer = vec![0; BULK + 1];
    let mut number = 0;
    Box::new(move |wait| {
        let received = match wait {
            Wait::No => end.recv_timeout(&mut buffer, Duration::ZERO),
            Wait::For(time) => end.recv_timeout(&mut buffer, time),
            Wait::Forever => end.recv(&mut buffer),
        };
        let length = received.as_ref().map_or(0, |received| received.bytes);
        if !of_bulk(received)? {
            return Ok(None);
        }
        assert!(buffer[..length] == content(from, number, 0, BULK), "message {number}");
        number += 1;
        Ok(Some((from, number - 1)))
    })
}

const BULK_CONNECTION: Mechanism<Rank> = Mechanism {
    name: "bulk connection",
    open: |Rank(world), to| {
        of_pairs(world, to, |from| {
            Ok(match world.bulk(from, to, 4096)? {
                Some(BulkEnd::Sender(end)) => {
                    Ends { sender: Some(bulk_sender(from, end)), receiver: None }
                }
                Some(BulkEnd::Receiver(end)) => {
                    Ends { sender: None, receiver: Some(bulk_receiver(from, end)) }
                }
                None => Ends::default(),
            })
        })
    },
    reports_closed_senders: true,
    bytes: 2 * 3 * 8192,
};

/// Longest data of a Tag-On message.
const TAGGED: usize = 1000;

fn of_tag_on(outcome: std::result::Result<(), TagOnError>) -> std::result::Result<bool, End> {
    match outcome {
        Ok(()) => Ok(true),
        Err(TagOnError::Exhausted { .. } | TagOnError::TooMany) => Ok(false),
        Err(TagOnError::Send(error)) => sent(Err(error)),
        Err(TagOnError::Land(error)) => of_window(Err(error)),
        Err(other) => panic!("{other}"),
    }
}

fn tag_on_sender(
    (from, to): (u32, u32),
    (pool, sender): (TagOnPool, TagOnSender),
) -> mechanism::Sender<'static> {
    let source = SourceName::new(from as u16).expect("few ranks");
    let header = CacheLineHeader { source, handler: 0, tag: 7 };
    let send = move |number: u64, time| {
        let bytes = content(from, number, 0, TAGGED);
        let mut buffer = match pool.take() {
            Ok(buffer) => buffer,
            Err(error) => return of_tag_on(Err(error)),
        };
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let data = buffer.finish(bytes.len() as u64);
        of_tag_on(sender.send_timeout(&data, &[to], header, &number.to_le_bytes(), time))
    };
    Box::new(move |number, wait| match wait {
        Wait::No => send(number, Duration::ZERO),
        Wait::For(time) => send(number, time),
        Wait::Forever => loop {
            // A buffer or space becomes free.
            if send(number, Duration::from_secs(1))? {
                return Ok(true);
            }
            std::thread::yield_now();
        },
    })
}

fn tag_on_receiver(mut receiver: TagOnReceiver) -> mechanism::Receiver<'static> {
    Box::new(move |wait| {
        let received = match wait {
            Wait::No => receiver.try_recv(),
            Wait::For(time) => receiver.recv_timeout(time),
            Wait::Forever => receiver.recv().map(Some),
        };
        let message = match received {
            Ok(None) => return Ok(None),
            Ok(Some(message)) => message,
            Err(Error::Message(MessageError::Recv(error))) => return ended(error),
            Err(other) => panic!("{other}"),
        };
        let from = message.header().source.number().into();
        let number = u64::from_le_bytes(message.note().try_into().expect("8 bytes"));
        assert!(message.data[..] == content(from, number, 0, TAGGED), "message {number}");
        Ok(Some((from, number)))
    })
}

const TAG_ON: Mechanism<Rank> = Mechanism {
    name: "Tag-On",
    open: |Rank(world), to| {
        let port = world.tag_on(16, 4, TAGGED as u64).expect("memory");
        Ends {
            sender: Some(tag_on_sender((world.rank(), to), (port.pool, port.sender))),
            receiver: (world.rank() == to).then(|| tag_on_receiver(port.receiver)),
        }
    },
    reports_closed_senders: false,
    bytes: 32_768,
};

fn of_window(outcome: std::result::Result<bool, WindowError>) -> std::result::Result<bool, End> {
    match outcome {
        Ok(is_done) => Ok(is_done),
        Err(WindowError::Withdrawn { .. }) => Err(End::Closed),
        Err(WindowError::RankExited { rank }) => Err(End::Exited(rank)),
        Err(other) => panic!("{other}"),
    }
}

/// A mailbox of one message in a window. Its owner empties it and increments the word at 0. The sender
/// waits for that, fills it and increments the word at 8, or starts to.
fn window_sender(from: u32, window: RemoteWindow, is_blocking: bool) -> mechanism::Sender<'static> {
    Box::new(move |number, wait| {
        let send = || {
            let emptied = window.fetch_when(Condition { at: 0, at_least: number }, 0, [])?;
            let fetched = match wait {
                Wait::No => emptied.test()?,
                Wait::For(time) => emptied.wait_timeout(time)?,
                Wait::Forever => {
                    emptied.wait()?;
                    Fetch::Complete([])
                }
            };
            let is_empty = matches!(fetched, Fetch::Complete(_));
            let bytes = content(from, number, 0, MAILBOX);
            if is_empty && is_blocking {
                window.put_value(16, bytes.len() as u64)?;
                window.put(24, &bytes)?;
                window.accumulate_value(Op::Sum.into(), 8, 1_u64)?;
            } else if is_empty {
                window.iput_value(16, bytes.len() as u64)?;
                window.iput_signal(24, &bytes, 8, 1)?;
            }
            Ok(is_empty)
        };
        of_window(send())
    })
}

const MAILBOX: usize = 500;

fn window_receiver(from: u32, window: Window) -> mechanism::Receiver<'static> {
    let mut number = 0;
    Box::new(move |wait| {
        let own = window.local();
        let mut receive = || {
            let filled = own.fetch_when(Condition { at: 8, at_least: number + 1 }, 16, [0; 8])?;
            let fetched = match wait {
                Wait::No => filled.test()?,
                Wait::For(time) => filled.wait_timeout(time)?,
                Wait::Forever => Fetch::Complete(filled.wait()?),
            };
            let Fetch::Complete(length) = fetched else { return Ok(false) };
            let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
            own.get(24, &mut bytes)?;
            assert!(bytes == content(from, number, 0, MAILBOX), "message {number}");
            number += 1;
            own.accumulate_value(Op::Sum.into(), 0, 1_u64)?;
            Ok(true)
        };
        Ok(of_window(receive())?.then(|| (from, number - 1)))
    })
}

fn windows(world: &Communicator, to: u32, is_blocking: bool) -> Ends {
    of_pairs(world, to, |from| {
        let mut windows = world.windows(24 + MAILBOX as u64)?;
        let there = windows.all.swap_remove(to as usize);
        Ok(Ends {
            sender: (world.rank() == from).then(|| window_sender(from, there, is_blocking)),
            receiver: (world.rank() == to).then(|| window_receiver(from, windows.own)),
        })
    })
}

const WINDOW: Mechanism<Rank> = Mechanism {
    name: "window",
    open: |Rank(world), to| windows(world, to, true),
    reports_closed_senders: false,
    bytes: 2 * 3 * 16_384,
};

const NONBLOCKING_WINDOW: Mechanism<Rank> = Mechanism {
    name: "window, nonblocking",
    open: |Rank(world), to| windows(world, to, false),
    ..WINDOW
};

/// All mechanisms whose receivers find out that their senders have gone.
pub(crate) const QUEUES: [Mechanism<Rank>; 7] =
    [EXPRESS, CACHE_LINE, BASIC, APPEND, TAG_ON, CHANNEL, BULK_CONNECTION];

/// Windows. Their owners learn nothing about the ranks that work on them.
pub(crate) const WINDOWS: [Mechanism<Rank>; 2] = [WINDOW, NONBLOCKING_WINDOW];

/// All mechanisms.
pub(crate) fn all() -> impl Iterator<Item = Mechanism<Rank>> {
    QUEUES.into_iter().chain(WINDOWS)
}
