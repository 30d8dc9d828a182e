//! A collective by one plan, as a subject of a timer.

use super::data::Data;
use super::graphs::CollectiveCall;
use crate::harness::Error;
use crate::harness::timer::{Meanwhile, Subject};
use collectives::{Algorithm, Choice, Collective, Levels};
use models::decision::CallForm;
use models::machine_file::Engine;
use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;
use tradewind::graph::Graph;
use tradewind::{Algorithms, Buffers, Communicator, Element, Op, Request, Schedule};

/// A collective by one plan on this rank. Subjects with the same [`Memory`] take turns in it.
#[derive(Debug)]
pub(crate) struct CollectiveSubject {
    call: CollectiveCall,
    roots: Vec<u32>,
    rank: u32,
    way: Way,
    memory: Memory,
    /// Name of the engine of the last run.
    engine: &'static str,
}

#[derive(Debug)]
enum Way {
    /// A graph.
    Linked(Schedule),
    /// The calls that programs make.
    Call(Communicator),
}

/// A rank's memory for all plans of a call.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Rc<RefCell<[Words; 2]>>);

/// Bytes that can be taken for numbers of 64 bits.
#[derive(Debug)]
struct Words(Vec<u64>);

impl Words {
    fn bytes(&self, length: usize) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..length]
    }

    fn bytes_mut(&mut self, length: usize) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.0)[..length]
    }

    fn numbers(&self, length: usize) -> &[f64] {
        &bytemuck::cast_slice(&self.0)[..length / 8]
    }

    fn numbers_mut(&mut self, length: usize) -> &mut [f64] {
        &mut bytemuck::cast_slice_mut(&mut self.0)[..length / 8]
    }
}

impl Memory {
    /// Memory for a call with these roots.
    ///
    /// # Errors
    /// [`Error::Argument`] if this process has no memory for it.
    pub(crate) fn new(call: &CollectiveCall, roots: &[u32], rank: u32) -> Result<Self, Error> {
        let lengths =
            || roots.iter().map(|root| CollectiveCall { root: *root, ..*call }.lengths(rank));
        let input = lengths().map(|[input, _]| input).max().unwrap_or(0);
        let output = lengths().map(|[_, output]| output).max().unwrap_or(0);
        // A broadcast sends from where others receive.
        let output = if call.operation == Collective::Bcast { call.bytes } else { output };
        Ok(Memory(Rc::new(RefCell::new([zeroed(input)?, zeroed(output)?]))))
    }
}

/// Zeros; an error, not an end, where there is no memory for them.
fn zeroed(bytes: u64) -> Result<Words, Error> {
    let mut words = Vec::new();
    let count = usize::try_from(bytes.div_ceil(8)).ok();
    match count.filter(|count| words.try_reserve_exact(*count).is_ok()) {
        Some(count) => {
            words.resize(count, 0);
            Ok(Words(words))
        }
        None => Err(Error::Argument {
            what: "the length of a buffer",
            found: format!("{bytes} bytes"),
            expected: "less, or fewer ranks: this process has no memory for it",
        }),
    }
}

impl CollectiveSubject {
    /// A plan as measurements of plans on one node run it: a linked schedule, but for the flat
    /// collective, which is called. All ranks call this.
    ///
    /// # Errors
    /// A plan that cannot be run for this call.
    pub(crate) fn linked(
        world: &Communicator,
        call: &CollectiveCall,
        plan: &Choice,
        memory: &Memory,
    ) -> Result<Self, Error> {
        if plan.algorithm == Algorithm::Join {
            return Self::called(world, call, plan, None, &[call.root], memory);
        }
        let schedule = world.compile(&call.graph(plan, world.rank())?)?;
        Ok(Self::new(world, call, &[call.root], Way::Linked(schedule), memory))
    }

    /// Calls of a communicator with this plan, of which each has the next of these roots. Plans in
    /// two levels take so many consecutive ranks for a node.
    ///
    /// # Errors
    /// A rank that is gone.
    pub(crate) fn called(
        world: &Communicator,
        call: &CollectiveCall,
        plan: &Choice,
        ranks_per_node: Option<NonZeroU32>,
        roots: &[u32],
        memory: &Memory,
    ) -> Result<Self, Error> {
        // A plan of the operation has one of its algorithms.
        let forced = Algorithms::default().with(call.operation, plan.algorithm);
        let forced = Algorithms {
            tuning: plan.tuning(),
            ranks_per_node: ranks_per_node.filter(|_| plan.levels == Levels::Two),
            ..forced.unwrap_or_default()
        };
        let way = Way::Call(world.with_algorithms(forced));
        let mut subject = Self::new(world, call, roots, way, memory);
        if call.form == CallForm::Blocking {
            // Blocking calls have no request that names their engine.
            subject.engine = engine_of_blocking_calls(world)?;
        }
        Ok(subject)
    }

    fn new(
        world: &Communicator,
        call: &CollectiveCall,
        roots: &[u32],
        way: Way,
        memory: &Memory,
    ) -> Self {
        let memory = memory.clone();
        CollectiveSubject {
            call: *call,
            roots: roots.to_vec(),
            rank: world.rank(),
            way,
            memory,
            engine: "",
        }
    }

    /// The engine of the last run.
    ///
    /// # Errors
    /// If the subject has not run.
    pub(crate) fn engine(&self) -> Result<Engine, Error> {
        Ok(self.engine.parse()?)
    }

    /// Runs once with each root on data that identify their origin, and checks every byte received.
    ///
    /// # Errors
    /// [`Error::WrongData`], and those of a run.
    pub(crate) fn verify(&mut self, plan: &Choice) -> Result<(), Error> {
        for number in 0..self.roots.len() as u32 {
            let call = self.call_of(number);
            let data = Data::of(&call, self.rank);
            self.spoil(&call, &data);
            self.run(number, &mut |_| {})?;
            if let Some(at) = self.first_wrong(&call, &data) {
                let what = format!("{call} by {plan}, first at byte {at}");
                return Err(Error::WrongData { rank: self.rank, what });
            }
        }
        Ok(())
    }

    fn call_of(&self, number: u32) -> CollectiveCall {
        CollectiveCall { root: self.roots[number as usize % self.roots.len()], ..self.call }
    }

    /// Writes the inputs, and outputs that only a run can make right.
    fn spoil(&self, call: &CollectiveCall, data: &Data) {
        let [input, output] = &mut *self.memory.0.borrow_mut();
        let is_sent = call.operation == Collective::Bcast && self.rank == call.root;
        input.bytes_mut(data.input.len()).copy_from_slice(&data.input);
        if is_sent {
            output.bytes_mut(data.input.len()).copy_from_slice(&data.input);
        } else {
            let output = output.bytes_mut(data.expected.len());
            output.iter_mut().zip(&data.expected).for_each(|(found, expected)| *found = !expected);
        }
    }

    /// The first byte of the output that is wrong.
    fn first_wrong(&self, call: &CollectiveCall, data: &Data) -> Option<usize> {
        if call.operation == Collective::Exscan && self.rank == 0 {
            return None; // it is left as it was
        }
        let [_, output] = &*self.memory.0.borrow();
        let found = output.bytes(data.expected.len());
        found.iter().zip(&data.expected).position(|(found, expected)| found != expected)
    }
}

impl Subject for CollectiveSubject {
    #[inline]
    fn run(&mut self, number: u32, meanwhile: &mut Meanwhile<'_>) -> Result<(), Error> {
        let call = self.call_of(number);
        let [input, output] = &mut *self.memory.0.borrow_mut();
        let lengths = call.lengths(self.rank).map(|length| length as usize);
        let world = match &self.way {
            Way::Linked(schedule) => {
                let is_root = self.rank == call.root;
                let buffers = buffers((call.operation, is_root), lengths, input, output);
                self.engine = attend(schedule.run(buffers)?, meanwhile)?;
                return Ok(());
            }
            Way::Call(world) => world,
        };
        let found = make_call(world, &call, (lengths, &*input, output), meanwhile)?;
        self.engine = found.unwrap_or(self.engine);
        Ok(())
    }
}

/// Name of the engine that runs blocking calls. All ranks call this.
///
/// # Errors
/// If a rank is gone.
pub(crate) fn engine_of_blocking_calls(world: &Communicator) -> Result<&'static str, Error> {
    let nothing = world.compile(&Graph::new(world.rank(), world.size()))?;
    Ok(nothing.engine(CallForm::Blocking))
}

/// Waits for a request after `meanwhile`; the name of its engine.
#[inline]
pub(crate) fn attend<B: Send>(
    request: Request<'_, B>,
    meanwhile: &mut Meanwhile<'_>,
) -> Result<&'static str, Error> {
    let engine = request.engine();
    meanwhile(&|| request.is_complete());
    request.wait()?;
    Ok(engine)
}

/// Buffers as the graphs declare them.
fn buffers<'a>(
    (operation, is_root): (Collective, bool),
    [input_length, output_length]: [usize; 2],
    input: &'a Words,
    output: &'a mut Words,
) -> Buffers<'a> {
    let buffers = Buffers::new();
    match operation {
        Collective::Barrier => buffers,
        Collective::Bcast if is_root => buffers.input(input.bytes(input_length)),
        Collective::Bcast => buffers.output(output.bytes_mut(output_length)),
        _ => buffers.input(input.bytes(input_length)).output(output.bytes_mut(output_length)),
    }
}

/// Lengths of input and output, and their memory.
type Private<'a> = ([usize; 2], &'a Words, &'a mut Words);

/// Makes a call in the wanted form: the blocking method, or the other one and its wait. Returns the
/// name of the engine of a request.
macro_rules! in_form {
    ($form:expr, $meanwhile:ident, $world:ident, $now:ident | $later:ident $arguments:tt) => {
        match $form {
            CallForm::Blocking => {
                $meanwhile(&|| false);
                $world.$now $arguments?;
                Ok(None)
            }
            CallForm::Nonblocking => attend($world.$later $arguments?, $meanwhile).map(Some),
        }
    };
}

fn make_call(
    world: &Communicator,
    call: &CollectiveCall,
    (lengths, input, output): Private<'_>,
    meanwhile: &mut Meanwhile<'_>,
) -> Result<Option<&'static str>, Error> {
    let CollectiveCall { operation, form, bytes, root, .. } = *call;
    let [input_length, output_length] = lengths;
    if operation.is_reduction() && bytes.is_multiple_of(8) {
        let input = input.numbers(input_length);
        return reduce(world, call, input, output.numbers_mut(output_length), meanwhile);
    }
    let input = input.bytes(input_length);
    if operation == Collective::Bcast {
        let data = output.bytes_mut(bytes as usize);
        return in_form!(form, meanwhile, world, bcast | ibcast(data, root));
    }
    let output = output.bytes_mut(output_length);
    match operation {
        Collective::Barrier => in_form!(form, meanwhile, world, barrier | ibarrier()),
        Collective::Scatter => {
            in_form!(form, meanwhile, world, scatter | iscatter(input, output, root))
        }
        Collective::Gather => {
            in_form!(form, meanwhile, world, gather | igather(input, output, root))
        }
        Collective::Allgather => {
            in_form!(form, meanwhile, world, allgather | iallgather(input, output))
        }
        Collective::Alltoall => {
            in_form!(form, meanwhile, world, alltoall | ialltoall(input, output))
        }
        _ => reduce(world, call, input, output, meanwhile),
    }
}

/// The sum of elements of any type.
fn reduce<T: Element>(
    world: &Communicator,
    call: &CollectiveCall,
    input: &[T],
    output: &mut [T],
    meanwhile: &mut Meanwhile<'_>,
) -> Result<Option<&'static str>, Error> {
    let sum = Op::Sum;
    let CollectiveCall { operation, form, root, .. } = *call;
    match operation {
        Collective::Reduce => {
            in_form!(form, meanwhile, world, reduce | ireduce(input, output, sum, root))
        }
        Collective::Allreduce => {
            in_form!(form, meanwhile, world, allreduce | iallreduce(input, output, sum))
        }
        Collective::ReduceScatter => in_form!(
            form,
            meanwhile,
            world,
            reduce_scatter_block | ireduce_scatter_block(input, output, sum)
        ),
        Collective::Scan => in_form!(form, meanwhile, world, scan | iscan(input, output, sum)),
        _ => in_form!(form, meanwhile, world, exscan | iexscan(input, output, sum)),
    }
}
