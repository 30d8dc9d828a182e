//! Queues, channels, windows and messages between two ranks.

use super::rounds::Row;
use ::queues::express::ExpressMessage;
use ::queues::id::SourceName;
use tradewind::messages::{BasicEnd, BasicHeader, BulkEnd, CacheLineHeader, ChannelEnd};
use tradewind::{Communicator, Result};

pub(super) const ROWS: &[Row] = &[
    Row { name: "windows", round: windows },
    Row { name: "channels", round: channels },
    Row { name: "pipelines", round: |world, _| world.pipeline::<u64>(16).map(drop) },
    Row { name: "bulk connections", round: bulk },
    Row { name: "basic rings", round: basic },
    Row { name: "express queues", round: express },
    Row { name: "cache-line queues", round: |world, _| world.cache_lines(64).map(drop) },
    Row { name: "append buffers", round: append },
    Row { name: "tag-on", round: tag_on },
    Row { name: "persistent messages", round: persistent },
    Row { name: "dropped messages", round: dropped },
];

fn next(world: &Communicator) -> u32 {
    (world.rank() + 1) % world.size()
}

fn before(world: &Communicator) -> u32 {
    (world.rank() + world.size() - 1) % world.size()
}

fn name(world: &Communicator) -> SourceName {
    SourceName::new(world.rank() as u16).expect("few ranks")
}

fn windows(world: &Communicator, round: usize) -> Result<()> {
    let windows = world.windows(4096)?;
    windows.all[next(world) as usize].put_value(8, round as u64)?;
    // A window is freed only after all ranks have used it.
    world.barrier()
}

fn channels(world: &Communicator, round: usize) -> Result<()> {
    let to = 1 + round as u32 % (world.size() - 1);
    match world.channel::<u64>(0, to, 512)? {
        Some(ChannelEnd::Sender(mut sender)) => Ok(sender.send(7)?),
        Some(ChannelEnd::Receiver(mut receiver)) => Ok(receiver.recv().map(drop)?),
        None => Ok(()),
    }
}

fn bulk(world: &Communicator, round: usize) -> Result<()> {
    let to = 1 + round as u32 % (world.size() - 1);
    let mut bytes = [7; 10_000];
    match world.bulk(0, to, 4096)? {
        Some(BulkEnd::Sender(mut sender)) => Ok(sender.send(&bytes).map(drop)?),
        Some(BulkEnd::Receiver(mut receiver)) => Ok(receiver.recv(&mut bytes).map(drop)?),
        None => Ok(()),
    }
}

fn basic(world: &Communicator, round: usize) -> Result<()> {
    let from = round as u32 % world.size();
    match world.basic(from, (from + 1) % world.size(), 64)? {
        Some(BasicEnd::Sender(mut sender)) => {
            Ok(sender.send(BasicHeader { source: name(world), handler: 0 }, &[7; 100])?)
        }
        Some(BasicEnd::Receiver(mut receiver)) => Ok(receiver.recv().map(drop)?),
        None => Ok(()),
    }
}

fn express(world: &Communicator, round: usize) -> Result<()> {
    let mut port = world.express(64)?;
    let message = ExpressMessage::of_number(name(world), 0, round as u64).expect("five bytes");
    port.senders[next(world) as usize].send(&message)?;
    Ok(port.receiver.recv().map(drop)?)
}

fn append(world: &Communicator, round: usize) -> Result<()> {
    let ends = world.append_buffer(round as u32 % world.size(), 16, 100)?;
    // Refused if the receiver is gone already.
    let _ = ends.sender.send(&[7; 100]);
    Ok(())
}

fn tag_on(world: &Communicator, _: usize) -> Result<()> {
    let mut port = world.tag_on(16, 2, 1000)?;
    let data = port.pool.take()?.finish(1000);
    let header = CacheLineHeader { source: name(world), handler: 0, tag: 0 };
    port.sender.send(&data, &[next(world)], header, &[])?;
    port.receiver.recv().map(drop)
}

fn persistent(world: &Communicator, _: usize) -> Result<()> {
    let send = world.send_init::<u64>(1000, next(world), 1)?;
    let receive = world.recv_init::<u64>(1000, before(world), 1)?;
    let (sent, mut received) = ([7; 1000], [0; 1000]);
    let arriving = receive.start(&mut received)?;
    send.start(&sent)?.wait()?;
    arriving.wait().map(drop)
}

fn dropped(world: &Communicator, _: usize) -> Result<()> {
    let (sent, mut received) = ([7u64; 1000], [0u64; 1000]);
    drop(world.isend(&sent, next(world), 1)?);
    world.recv(&mut received, before(world), 1)?;
    // Cancelled: nothing is sent with this tag.
    drop(world.irecv(&mut received, before(world), 2)?);
    Ok(())
}
