//! Messages between pairs of ranks on the way that programs use: a schedule that is linked once and
//! run for each message.

use crate::experiments::queues::message_path::pattern;
use crate::harness::Error;
use crate::harness::timer::{Batches, calls};
use tradewind::graph::{Access, Graph};
use tradewind::{Buffers, CallForm, Communicator, Op, Schedule};

/// Bytes that are copied to let a receive wait for something.
const MOMENT: u64 = 8;

/// Messages between the two ranks of a pair in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Both send at once, then both receive.
    Exchange,
    /// The rank of the lower number sends, and the other sends back.
    RoundTrip,
    /// The rank of the lower number sends.
    Forth,
    /// The rank of the higher number sends.
    Back,
}

/// True if a receive is known before its message comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receive {
    /// Posted beforehand ("forced"): the bytes go where they are wanted.
    Posted,
    /// Posted when something else is done ("unforced"): short messages wait in a mailbox, long ones
    /// wait for the receive.
    Late,
}

/// One rank's end of a pair, or of none.
pub(crate) struct Exchange {
    schedule: Schedule,
    form: CallForm,
    sends: bool,
    receives: bool,
    pub(crate) outgoing: Vec<u8>,
    pub(crate) incoming: Vec<u8>,
}

impl Exchange {
    /// Links the schedule; all ranks call this, each with its own partner, if it has one.
    pub(crate) fn link(
        world: &Communicator,
        partner: Option<u32>,
        bytes: u64,
        pattern_of: Pattern,
        receive: Receive,
    ) -> Result<Self, Error> {
        let rank = world.rank();
        let is_first = partner.is_some_and(|partner| rank < partner);
        let both = matches!(pattern_of, Pattern::Exchange | Pattern::RoundTrip);
        let forth = pattern_of == Pattern::Forth;
        let sends = partner.is_some() && (both || is_first == forth);
        let receives = partner.is_some() && (both || is_first != forth);
        let mut graph = Graph::new(rank, world.size());
        if let Some(partner) = partner {
            draw(&mut graph, partner, bytes, (sends, receives), (pattern_of, receive));
        }
        let schedule = world.compile(&graph)?;
        let outgoing = pattern(if sends { bytes } else { 0 });
        let incoming = vec![0; if receives { bytes } else { 0 } as usize];
        let form = CallForm::Nonblocking;
        Ok(Exchange { schedule, form, sends, receives, outgoing, incoming })
    }

    /// The same in calls of this form. Between nodes each form has engines of its own.
    pub(crate) fn with_form(self, form: CallForm) -> Self {
        Exchange { form, ..self }
    }

    /// Name of the engine that runs it.
    pub(crate) fn engine(&self) -> &'static str {
        self.schedule.engine(self.form)
    }

    /// Makes a run: a blocking call, or one that is started and waited for.
    pub(crate) fn once(&mut self) -> Result<(), Error> {
        let buffers =
            buffers((self.sends, self.receives), &self.outgoing, self.incoming.as_mut_slice());
        run(&self.schedule, self.form, buffers)
    }

    /// Runs as [`once`](Self::once) does, and receives into other memory of the same length.
    pub(crate) fn once_into(&self, incoming: &mut [u8]) -> Result<(), Error> {
        run(
            &self.schedule,
            self.form,
            buffers((self.sends, self.receives), &self.outgoing, incoming),
        )
    }

    /// Both schedules at once: starts both, then waits for both.
    pub(crate) fn both(&mut self, other: &mut Exchange) -> Result<(), Error> {
        let one = (self.sends, self.receives);
        let one = buffers(one, &self.outgoing, self.incoming.as_mut_slice());
        let two = (other.sends, other.receives);
        let two = buffers(two, &other.outgoing, other.incoming.as_mut_slice());
        let one = self.schedule.run(one)?;
        let two = other.schedule.run(two)?;
        one.wait()?;
        two.wait()?;
        Ok(())
    }

    /// Microseconds of a run, for each batch.
    pub(crate) fn time(
        &mut self,
        world: &Communicator,
        batches: Batches,
    ) -> Result<Vec<f64>, Error> {
        let times = batches.time(world, &mut calls(|| self.once()))?;
        self.check(world)?;
        Ok(times)
    }

    /// Returns true if every rank got what was sent to it.
    pub(crate) fn check(&self, world: &Communicator) -> Result<(), Error> {
        let wrong = self.receives && self.incoming != pattern(self.incoming.len() as u64);
        let mut all = [0];
        world.allreduce(&[u32::from(wrong) * (world.rank() + 1)], &mut all, Op::Maximum)?;
        match all[0].checked_sub(1) {
            None => Ok(()),
            Some(rank) => Err(Error::WrongData {
                rank,
                what: format!("a message of {} bytes", self.incoming.len()),
            }),
        }
    }
}

fn run(schedule: &Schedule, form: CallForm, buffers: Buffers<'_>) -> Result<(), Error> {
    match form {
        CallForm::Blocking => schedule.call(buffers)?,
        CallForm::Nonblocking => schedule.run(buffers)?.wait()?,
    };
    Ok(())
}

fn buffers<'a>(
    (sends, receives): (bool, bool),
    outgoing: &'a [u8],
    incoming: &'a mut [u8],
) -> Buffers<'a> {
    const NOTHING: &[u8] = &[0; MOMENT as usize];
    let mut buffers = Buffers::new();
    if sends {
        buffers = buffers.input(outgoing);
    }
    if receives {
        buffers = buffers.output(incoming);
    }
    if sends || receives {
        buffers = buffers.input(NOTHING);
    }
    buffers
}

fn draw(
    graph: &mut Graph,
    partner: u32,
    bytes: u64,
    (sends, receives): (bool, bool),
    (pattern, receive): (Pattern, Receive),
) {
    let outgoing = sends.then(|| graph.buffer(Access::Input, bytes));
    let incoming = receives.then(|| graph.buffer(Access::Output, bytes));
    let moment = graph.buffer(Access::Input, MOMENT);
    let is_first = graph.rank() < partner;
    let send = outgoing.map(|outgoing| graph.send(outgoing, partner, 0));
    let Some(incoming) = incoming else { return };
    let receives = graph.receive(incoming, partner, 0);
    if let (Pattern::RoundTrip, false, Some(send)) = (pattern, is_first, send) {
        graph.requires(send, receives);
    }
    if receive == Receive::Late {
        // Something that takes no time to speak of. Not the rank's own send: above the eager limit
        // that waits for a receive, and two ranks would wait for each other.
        let scratch = graph.scratchpad(MOMENT);
        let before = graph.copy(moment, scratch);
        graph.requires(receives, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_moves_every_byte() {
        tradewind::local(3, |world| {
            for pattern in [Pattern::Exchange, Pattern::RoundTrip, Pattern::Forth, Pattern::Back] {
                for receive in [Receive::Posted, Receive::Late] {
                    for bytes in [0, 1, 64, 4096, 4097, 20_000] {
                        // The middle rank stands by.
                        let partner = (world.rank() != 1).then_some(2 - world.rank());
                        let mut exchange = Exchange::link(&world, partner, bytes, pattern, receive)
                            .expect("it fits together");
                        (0..3).for_each(|_| exchange.once().expect("it runs"));
                        exchange
                            .check(&world)
                            .unwrap_or_else(|error| panic!("{pattern:?}, {receive:?}: {error}"));
                    }
                }
            }
            world.barrier()
        })
        .expect("a job of threads");
    }

    #[test]
    fn calls_of_both_forms_move_bytes_between_nodes() {
        tradewind::local_nodes(&[1, 1], |world| {
            for form in CallForm::ALL.iter().copied() {
                let partner = Some(1 - world.rank());
                let link =
                    Exchange::link(&world, partner, 300, Pattern::RoundTrip, Receive::Posted);
                let mut exchange = link.expect("it fits together").with_form(form);
                exchange.once().expect("it runs");
                exchange.check(&world).unwrap_or_else(|error| panic!("{form}: {error}"));
                let engine = if form == CallForm::Blocking { "direct" } else { "agent" };
                assert_eq!(exchange.engine(), engine);
            }
            world.barrier()
        })
        .expect("a job of threads");
    }

    #[test]
    fn wrong_data_is_seen_by_all() {
        tradewind::local(2, |world| {
            let partner = Some(1 - world.rank());
            let mut exchange =
                Exchange::link(&world, partner, 64, Pattern::Exchange, Receive::Posted)
                    .expect("it fits together");
            exchange.once().expect("it runs");
            if world.rank() == 1 {
                exchange.incoming[63] ^= 1;
            }
            let error = exchange.check(&world).expect_err("a byte was changed").to_string();
            assert!(error.contains("rank 1"), "{error}");
            world.barrier()
        })
        .expect("a job of threads");
    }
}
