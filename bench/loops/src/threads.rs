//! Half a round trip between one thread of rank 0 and two threads of rank 1, which share the queue
//! that they receive from and the one that they answer through. Whichever of the two gets a message
//! answers it.

use crate::Failure;
use crate::measure::wall_us;
use crate::messages::{Batch, check, measure_batches, name};
use crate::report::Options;
use crate::row::Row;
use std::sync::Barrier;
use tradewind::Communicator;
use tradewind::messages::ExpressMessage;
use tradewind::messages::ExpressPort;
use tradewind::messages::{ExpressReceiver, ExpressSender};

const THREADS: u64 = 2;
const ROUND_TRIPS: u64 = 1000;

/// Measures one row.
pub fn measure(world: &Communicator, row: Row, options: &Options) -> Result<(), Failure> {
    let mut threads = Threads { world, port: world.express(256)? };
    measure_batches(world, row, "threads", &mut threads, options)
}

struct Threads<'w> {
    world: &'w Communicator,
    port: ExpressPort,
}

fn answer(
    mut receiver: ExpressReceiver,
    sender: &ExpressSender,
    messages: u64,
) -> Result<(), tradewind::Error> {
    for _ in 0..messages {
        sender.send(&receiver.recv()?)?;
    }
    Ok(())
}

impl Threads<'_> {
    /// Both threads of rank 1 live for a batch; rank 0 is notified when they are there.
    fn answer(&mut self) -> Result<f64, Failure> {
        let receiver = &self.port.receiver;
        let sender = &self.port.senders[0];
        let both = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                both.wait();
                answer(receiver.clone(), sender, ROUND_TRIPS / THREADS)
            });
            both.wait();
            sender.send(&ExpressMessage::default())?;
            answer(receiver.clone(), sender, ROUND_TRIPS / THREADS)?;
            second.join().map_err(|_| "the second thread has panicked")??;
            Ok(0.0)
        })
    }
}

impl Batch for Threads<'_> {
    fn run(&mut self, batch: u64) -> Result<f64, Failure> {
        if self.world.rank() == 1 {
            return self.answer();
        }
        let receiver = &mut self.port.receiver;
        let sender = &mut self.port.senders[1];
        receiver.recv()?;
        let start_us = wall_us();
        for number in batch * ROUND_TRIPS..(batch + 1) * ROUND_TRIPS {
            let bytes = number.to_le_bytes();
            let sent =
                ExpressMessage::new(name(0), 0, [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]]);
            sender.send(&sent)?;
            check(receiver.recv()?.data() == sent.data())?;
        }
        Ok((wall_us() - start_us) / ROUND_TRIPS as f64 / 2.0)
    }
}
