//! Messages between pairs of ranks on the way that programs use: schedules that are linked once and
//! run for each message.

use super::queues::message_path::pattern;
use crate::harness::timer::{Batches, calls};
use crate::harness::{Error, JobShape, Setting, Step, StepContext, agreement};
use crate::rows::{Exchange, Pairs, Pattern, Quantity, Receive, Row, What};
use models::machine::PairClass;
use tradewind::graph::{Access, Graph};
use tradewind::{Buffers, CallForm, Communicator, Request, Schedule, SharedBuffer};

/// Bytes that are copied to let a receive wait for something.
const MOMENT: u64 = 8;
/// The longest message of the curves.
pub(super) const LONGEST: u64 = 16_000;

/// An exchange to be timed.
#[derive(Clone)]
pub(super) struct ExchangeCase {
    pub(super) exchange: Exchange,
    pub(super) form: CallForm,
    pub(super) bytes: u64,
    /// The class of pairs that the two ranks stand for.
    pub(super) pair: Option<PairClass>,
}

impl ExchangeCase {
    /// Empty messages in nonblocking calls, with posted receives.
    pub(super) fn new(pairs: Pairs, pattern: Pattern) -> Self {
        let exchange = Exchange::posted(pairs, pattern);
        ExchangeCase { exchange, form: CallForm::Nonblocking, bytes: 0, pair: None }
    }

    /// The same with messages of this length.
    pub(super) fn sized(&self, bytes: u64) -> Self {
        ExchangeCase { bytes, ..self.clone() }
    }

    /// Times it. All ranks call this.
    pub(super) fn measure(&self, here: &StepContext<'_>, batches: Batches) -> Result<Row, Error> {
        LinkedExchange::new(here.world, self)?.time(here, batches)
    }

    /// Steps of messages up to the longest in jobs of one shape, quickly with every so many bytes.
    pub(super) fn sweep(
        &self,
        setting: &Setting,
        shape: &JobShape,
        what: &str,
        quickly: usize,
    ) -> Vec<Step> {
        let sizes = setting.shuffled((0..=LONGEST).step_by(setting.choose(quickly, 1_000)));
        let step = |bytes: u64| {
            let what = format!("{what}, {bytes} bytes");
            step(what, shape, vec![self.sized(bytes)], batches(setting))
        };
        sizes.into_iter().map(step).collect()
    }
}

/// Batches of the steps of a sweep.
pub(super) fn batches(setting: &Setting) -> Batches {
    setting.choose(
        Batches { rounds: 3, microseconds: 200.0 },
        Batches { rounds: 21, microseconds: 5_000.0 },
    )
}

/// A step with a row for each of these exchanges.
pub(super) fn step(
    what: String,
    shape: &JobShape,
    cases: Vec<ExchangeCase>,
    batches: Batches,
) -> Step {
    let milliseconds = (batches.milliseconds() + 4) * cases.len() as u64;
    Step::new(what, shape.clone(), milliseconds, move |here| {
        cases.iter().map(|case| case.measure(here, batches)).collect::<Result<Vec<_>, _>>()
    })
}

/// One rank's schedules in an exchange.
pub(super) struct LinkedExchange {
    case: ExchangeCase,
    links: Vec<Link>,
}

/// A schedule with one partner, or with none.
struct Link {
    schedule: Schedule,
    /// The message that is sent, if one is.
    outgoing: Option<Vec<u8>>,
    /// Memory of the message that is received.
    incoming: Option<Vec<u8>>,
}

impl LinkedExchange {
    /// Links the schedules; all ranks call this.
    pub(super) fn new(world: &Communicator, case: &ExchangeCase) -> Result<Self, Error> {
        let mut links = Vec::new();
        for partner in case.exchange.pairs.partners(world.rank(), world.size()) {
            let is_first = partner.is_some_and(|partner| world.rank() < partner);
            // Of each schedule: whether this rank sends, and whether it receives.
            let schedules: &[(bool, bool)] = match case.exchange.pattern {
                Pattern::Exchange | Pattern::RoundTrip => &[(true, true)],
                Pattern::InTurn | Pattern::AtOnce if is_first => &[(true, false), (false, true)],
                Pattern::InTurn | Pattern::AtOnce => &[(false, true), (true, false)],
            };
            for (sends, receives) in schedules {
                let mut graph = Graph::new(world.rank(), world.size());
                let ends = partner.map(|partner| (partner, *sends, *receives));
                if let Some(ends) = ends {
                    draw(&mut graph, ends, case);
                }
                let bytes = case.bytes;
                links.push(Link {
                    schedule: world.compile(&graph)?,
                    outgoing: ends.filter(|ends| ends.1).map(|_| pattern(bytes)),
                    incoming: ends.filter(|ends| ends.2).map(|_| vec![0; bytes as usize]),
                });
            }
        }
        Ok(LinkedExchange { case: case.clone(), links })
    }

    /// Makes a run.
    pub(super) fn once(&mut self) -> Result<(), Error> {
        let at_once = self.case.exchange.pattern == Pattern::AtOnce;
        for links in self.links.chunks_mut(if at_once { 2 } else { 1 }) {
            match links {
                [forth, back] => {
                    let forth = forth.start()?;
                    let back = back.start()?;
                    forth.wait()?;
                    back.wait()?;
                }
                links => links.iter_mut().try_for_each(|link| link.once(self.case.form))?,
            }
        }
        Ok(())
    }

    /// Lets the next run receive into memory that nothing has touched. The earlier memory is kept
    /// for good: memory that is given back would come again, touched.
    pub(super) fn renew(&mut self) {
        for incoming in self.links.iter_mut().filter_map(|link| link.incoming.as_mut()) {
            // Zeroed memory of much size comes from the system, a page at the first touch.
            let fresh = vec![0; incoming.len()];
            std::mem::replace(incoming, fresh).leak();
        }
    }

    /// Times runs, and checks what the last one moved.
    pub(super) fn time(&mut self, here: &StepContext<'_>, batches: Batches) -> Result<Row, Error> {
        let times = batches.time(here.world, &mut calls(|| self.once()))?;
        self.check(here.world)?;
        self.row(here, Quantity::Alone, times)
    }

    /// A row of this exchange.
    pub(super) fn row(
        &self,
        here: &StepContext<'_>,
        quantity: Quantity,
        times: Vec<f64>,
    ) -> Result<Row, Error> {
        let ExchangeCase { exchange, form, bytes, pair } = &self.case;
        let engine = self.links.first().map(|link| link.schedule.engine(*form).parse());
        let row = here.row(What::Exchange(exchange.clone()), quantity, times).sized(*bytes);
        Ok(Row { engine: engine.transpose()?, form: Some(*form), pair: *pair, ..row })
    }

    /// Returns an error on every rank if one has not got what was sent to it.
    fn check(&self, world: &Communicator) -> Result<(), Error> {
        let sent = pattern(self.case.bytes);
        let incoming = self.links.iter().filter_map(|link| link.incoming.as_ref());
        let wrong = u32::from(incoming.into_iter().any(|found| *found != sent));
        let own = f64::from(wrong * (world.rank() + 1));
        match (agreement::largest(world, &[own])?[0] as u32).checked_sub(1) {
            None => Ok(()),
            Some(rank) => {
                let what = format!("a message of {} bytes", self.case.bytes);
                Err(Error::WrongData { rank, what })
            }
        }
    }
}

impl Link {
    fn start(&mut self) -> Result<Request<'_, Vec<SharedBuffer<u8>>>, Error> {
        let (schedule, buffers) = self.prepared();
        Ok(schedule.run(buffers)?)
    }

    fn once(&mut self, form: CallForm) -> Result<(), Error> {
        let (schedule, buffers) = self.prepared();
        match form {
            CallForm::Blocking => schedule.call(buffers)?,
            CallForm::Nonblocking => schedule.run(buffers)?.wait()?,
        };
        Ok(())
    }

    /// The schedule, and the buffers of its run.
    fn prepared(&mut self) -> (&Schedule, Buffers<'_>) {
        const NOTHING: &[u8] = &[0; MOMENT as usize];
        let Link { schedule, outgoing, incoming } = self;
        let has_partner = outgoing.is_some() || incoming.is_some();
        let mut buffers = Buffers::new();
        if let Some(outgoing) = outgoing {
            buffers = buffers.input(outgoing.as_slice());
        }
        if let Some(incoming) = incoming {
            buffers = buffers.output(incoming.as_mut_slice());
        }
        (schedule, if has_partner { buffers.input(NOTHING) } else { buffers })
    }
}

fn draw(graph: &mut Graph, (partner, sends, receives): (u32, bool, bool), case: &ExchangeCase) {
    let outgoing = sends.then(|| graph.buffer(Access::Input, case.bytes));
    let incoming = receives.then(|| graph.buffer(Access::Output, case.bytes));
    let moment = graph.buffer(Access::Input, MOMENT);
    let is_first = graph.rank() < partner;
    let send = outgoing.map(|outgoing| graph.send(outgoing, partner, 0));
    let Some(incoming) = incoming else { return };
    let receives = graph.receive(incoming, partner, 0);
    if let (Pattern::RoundTrip, false, Some(send)) = (case.exchange.pattern, is_first, send) {
        graph.requires(send, receives);
    }
    if case.exchange.receive == Receive::Late {
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

    const PATTERNS: [Pattern; 4] =
        [Pattern::Exchange, Pattern::RoundTrip, Pattern::InTurn, Pattern::AtOnce];

    #[test]
    fn every_pattern_moves_every_byte() {
        tradewind::local(4, |world| {
            for (bytes, pairs) in [
                (0, Pairs::Chain),
                (1, Pairs::Chain),
                (64, Pairs::Hypercube),
                (4096, Pairs::Matching(vec![2, 3, 0, 1])),
                // Two ranks stand by.
                (4097, Pairs::Matching(vec![0, 2, 1, 3])),
                (20_000, Pairs::Hypercube),
            ] {
                for pattern in PATTERNS {
                    let mut case = ExchangeCase::new(pairs.clone(), pattern).sized(bytes);
                    for receive in [Receive::Posted, Receive::Late] {
                        case.exchange.receive = receive;
                        let linked = LinkedExchange::new(&world, &case);
                        let mut linked = linked.expect("it fits together");
                        (0..3).for_each(|_| linked.once().expect("it runs"));
                        let checked = linked.check(&world);
                        checked.unwrap_or_else(|error| panic!("{:?}: {error}", case.exchange));
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
                let case = ExchangeCase::new(Pairs::Chain, Pattern::RoundTrip).sized(300);
                let linked = LinkedExchange::new(&world, &ExchangeCase { form, ..case });
                let mut linked = linked.expect("it fits together");
                linked.once().expect("it runs");
                linked.check(&world).unwrap_or_else(|error| panic!("{form}: {error}"));
                let engine = if form == CallForm::Blocking { "direct" } else { "agent" };
                assert_eq!(linked.links[0].schedule.engine(form), engine);
            }
            world.barrier()
        })
        .expect("a job of threads");
    }

    #[test]
    fn wrong_data_is_seen_by_all() {
        tradewind::local(2, |world| {
            let case = ExchangeCase::new(Pairs::Chain, Pattern::Exchange).sized(64);
            let mut linked = LinkedExchange::new(&world, &case).expect("it fits together");
            linked.once().expect("it runs");
            if world.rank() == 1 {
                linked.links[0].incoming.as_mut().expect("it receives")[63] ^= 1;
            }
            let error = linked.check(&world).expect_err("a byte was changed").to_string();
            assert!(error.contains("rank 1"), "{error}");
            world.barrier()
        })
        .expect("a job of threads");
    }
}
