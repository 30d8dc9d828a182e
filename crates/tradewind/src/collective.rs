//! The collectives of a communicator: blocking, nonblocking, persistent.

use crate::algorithms::{Levels, Order};
use crate::buffers::{Input, Output};
use crate::communicator::{Communicator, LinkKey};
use crate::error::{Error, Result};
use crate::operation::Op;
use crate::persistent::{Persistent, Plan};
use crate::request::{Outputs, Request};
use crate::{AllreduceAlgorithm, AlltoallAlgorithm, BarrierAlgorithm, BcastAlgorithm};
use bytemuck::Pod;
use collectives::{Reduction, two_level};
use engine::call::CallKind;
use engine::lane::Argument;
use engine::meeting::Meeting;
use goal::arithmetic::{Arithmetic, Element};
use goal::schedule::JoinKind;

impl Communicator {
    /// Waits until every rank has come here.
    ///
    /// # Errors
    /// When a rank is gone or in another collective.
    #[inline]
    pub fn barrier(&self) -> Result<()> {
        self.plan_barrier()?.run(self, &[], &mut [])
    }

    /// Begins a barrier: complete when every rank has begun its own.
    ///
    /// # Errors
    /// When the schedule cannot be linked. Never waits, once linked.
    #[inline]
    pub fn ibarrier(&self) -> Result<Request<'static>> {
        self.plan_barrier()?.start_bare(self)
    }

    /// Prepares a barrier to be started many times.
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn barrier_init(&self) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_barrier()?))
    }

    #[inline]
    fn plan_barrier(&self) -> Result<Plan> {
        let choice = self.choose::<BarrierAlgorithm>(0, Order::Any);
        let call = Self::call(CallKind::Barrier, 0, choice.digest());
        if choice.algorithm == BarrierAlgorithm::Join {
            return Ok(Plan::Meeting(Meeting { kind: JoinKind::Barrier, arithmetic: None, root: 0, bytes: 0, call }));
        }
        let draw = || match choice.levels {
            Levels::One => choice.algorithm.graph(self.rank(), self.size()),
            Levels::Two(per_node) => two_level::barrier(self.rank(), self.size(), per_node, choice.algorithm),
        };
        Ok(Plan::Linked(self.linkage(LinkKey::new(call, &choice, 0), || Ok(draw()?))?))
    }

    /// Combines the ranks' inputs element by element; every rank gets the same result, bit for bit.
    ///
    /// Shapes: input and output have the same number of elements, the same on all ranks. With the algorithm `join`
    /// the result is ((c₀ ∘ c₁) ∘ c₂) ∘ … in rank order.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut largest = [0u32; 2];
    ///     world.allreduce(&[world.rank(), 7], &mut largest, tradewind::Op::Maximum)?;
    ///     assert_eq!(largest, [3, 7]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lengths differ, an integer is divided by zero, a rank is gone or in another collective.
    #[inline]
    pub fn allreduce<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<()> {
        let (from, ()) = input.into_parts();
        let (to, private, ()) = output.into_parts();
        same_length("the output of an allreduce", to.length, from.length)?;
        self.plan_allreduce::<T>(from.length, op)?.run(self, &[from, to], &mut [&mut [], private])
    }

    /// Begins an [`allreduce`](Self::allreduce). Buffers of the segment move in and come back from
    /// [`wait`](Request::wait).
    ///
    /// # Errors
    /// When the lengths differ or the schedule cannot be linked. Never waits, once linked.
    #[inline]
    pub fn iallreduce<'a, T: Element, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        op: Op,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let (from, kept) = input.into_parts();
        let (to, private, back) = output.into_parts();
        same_length("the output of an allreduce", to.length, from.length)?;
        self.plan_allreduce::<T>(from.length, op)?.start(self, &[from, to], Outputs::Second(private), (kept, back))
    }

    /// Prepares an allreduce of `count` elements to be started many times.
    ///
    /// # Errors
    /// As [`iallreduce`](Self::iallreduce).
    pub fn allreduce_init<T: Element>(&self, count: usize, op: Op) -> Result<Persistent> {
        Ok(Persistent::new(self, self.plan_allreduce::<T>((count * size_of::<T>()) as u64, op)?))
    }

    #[inline]
    fn plan_allreduce<T: Element>(&self, bytes: u64, op: Op) -> Result<Plan> {
        let operation = Arithmetic::from(op);
        if !operation.applies_to(T::DATA_TYPE) {
            return Err(argument("the operation", format!("{operation} on {}", T::DATA_TYPE), "one that the type has"));
        }
        let choice = self.choose::<AllreduceAlgorithm>(bytes, op.order());
        let arguments = choice.digest() << 16 | (operation as u64) << 8 | T::DATA_TYPE as u64;
        let call = Self::call(CallKind::Allreduce, bytes, arguments);
        if choice.algorithm == AllreduceAlgorithm::Join {
            let arithmetic = Some((operation, T::DATA_TYPE));
            return Ok(Plan::Meeting(Meeting { kind: JoinKind::Reduce, arithmetic, root: 0, bytes, call }));
        }
        let (rank, ranks, reduction) = (self.rank(), self.size(), Reduction::new(operation, T::DATA_TYPE));
        let draw = || match choice.levels {
            Levels::One => choice.algorithm.graph(rank, ranks, bytes, reduction),
            Levels::Two(per_node) => two_level::allreduce(rank, ranks, per_node, bytes, reduction, choice.algorithm),
        };
        Ok(Plan::Linked(self.linkage(LinkKey::new(call, &choice, arguments), || Ok(draw()?))?))
    }

    /// Every rank gives one part to every rank: part j of rank i's input becomes part i of rank j's output.
    ///
    /// Shapes: input and output have size × n elements, n the same on all ranks.
    ///
    /// # Errors
    /// When the lengths differ or are no multiple of the number of ranks, a rank is gone or in another collective.
    #[inline]
    pub fn alltoall<T: Pod>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let (from, ()) = input.into_parts();
        let (to, private, ()) = output.into_parts();
        same_length("the output of an alltoall", to.length, from.length)?;
        self.plan_alltoall(from.length)?.run(self, &[from, to], &mut [&mut [], private])
    }

    /// Begins an [`alltoall`](Self::alltoall).
    ///
    /// # Errors
    /// When the lengths do not fit or the schedule cannot be linked. Never waits, once linked.
    #[inline]
    pub fn ialltoall<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let (from, kept) = input.into_parts();
        let (to, private, back) = output.into_parts();
        same_length("the output of an alltoall", to.length, from.length)?;
        self.plan_alltoall(from.length)?.start(self, &[from, to], Outputs::Second(private), (kept, back))
    }

    /// Prepares an alltoall of `count` elements for each rank to be started many times.
    ///
    /// # Errors
    /// As [`ialltoall`](Self::ialltoall).
    pub fn alltoall_init<T: Pod>(&self, count: usize) -> Result<Persistent> {
        let bytes = (count * size_of::<T>()) as u64 * u64::from(self.size());
        Ok(Persistent::new(self, self.plan_alltoall(bytes)?))
    }

    #[inline]
    fn plan_alltoall(&self, bytes: u64) -> Result<Plan> {
        let ranks = u64::from(self.size());
        if !bytes.is_multiple_of(ranks) {
            let expected = format!("a multiple of the {ranks} ranks");
            return Err(argument("the length of an alltoall's buffers", format!("{bytes} bytes"), &expected));
        }
        let choice = self.choose::<AlltoallAlgorithm>(bytes / ranks, Order::Any);
        let call = Self::call(CallKind::Alltoall, bytes, choice.digest());
        if choice.algorithm == AlltoallAlgorithm::Join {
            return Ok(Plan::Meeting(Meeting { kind: JoinKind::Exchange, arithmetic: None, root: 0, bytes, call }));
        }
        let draw = || Ok(choice.algorithm.graph(self.rank(), self.size(), bytes / ranks, choice.tuning)?);
        Ok(Plan::Linked(self.linkage(LinkKey::new(call, &choice, 0), draw)?))
    }

    /// Gives every rank the root's buffer.
    ///
    /// Shapes: the same number of elements on all ranks.
    ///
    /// # Errors
    /// When there is no such root, a rank is gone or in another collective.
    #[inline]
    pub fn bcast<T: Pod>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        let (argument, private, ()) = buffer.into_parts();
        match self.plan_bcast(argument.length, root)? {
            Plan::Meeting(meeting) if self.rank() == root => {
                let arguments = [Argument::input(private), Argument::output(0)];
                Ok(self.group().meet_and_wait(&meeting, &arguments, &mut [])?)
            }
            Plan::Meeting(meeting) => {
                let arguments = [Argument::input(&[]), argument];
                Ok(self.group().meet_and_wait(&meeting, &arguments, &mut [&mut [], private])?)
            }
            plan => plan.start_bcast(self, self.rank() == root, argument, private, ())?.wait(),
        }
    }

    /// Begins a [`bcast`](Self::bcast).
    ///
    /// # Errors
    /// When there is no such root or the schedule cannot be linked. Never waits, once linked.
    #[inline]
    pub fn ibcast<'a, T: Pod, O: Output<'a, T>>(&self, buffer: O, root: u32) -> Result<Request<'a, O::Back>> {
        let (argument, private, back) = buffer.into_parts();
        let plan = self.plan_bcast(argument.length, root)?;
        plan.start_bcast(self, self.rank() == root, argument, private, back)
    }

    /// Prepares a bcast of `count` elements to be started many times.
    ///
    /// # Errors
    /// As [`ibcast`](Self::ibcast).
    pub fn bcast_init<T: Pod>(&self, count: usize, root: u32) -> Result<Persistent> {
        let plan = self.plan_bcast((count * size_of::<T>()) as u64, root)?;
        Ok(Persistent::bcast(self, plan, root))
    }

    #[inline]
    fn plan_bcast(&self, bytes: u64, root: u32) -> Result<Plan> {
        if root >= self.size() {
            return Err(argument("the root", root.to_string(), &format!("below {}", self.size())));
        }
        let choice = self.choose::<BcastAlgorithm>(bytes, Order::Any);
        let call = Self::call(CallKind::Bcast, bytes, choice.digest() << 32 | u64::from(root));
        if choice.algorithm == BcastAlgorithm::Join {
            return Ok(Plan::Meeting(Meeting { kind: JoinKind::Broadcast, arithmetic: None, root, bytes, call }));
        }
        let (rank, ranks, algorithm, tuning) = (self.rank(), self.size(), choice.algorithm, choice.tuning);
        let draw = || match choice.levels {
            Levels::One => algorithm.graph(rank, ranks, root, bytes, tuning),
            Levels::Two(per_node) => two_level::bcast(rank, ranks, per_node, root, bytes, algorithm, tuning),
        };
        Ok(Plan::Linked(self.linkage(LinkKey::new(call, &choice, u64::from(root)), || Ok(draw()?))?))
    }
}

impl Plan {
    /// Starts with the given buffers, waits and fetches the results.
    #[inline]
    fn run(&self, communicator: &Communicator, arguments: &[Argument<'_>], outputs: &mut [&mut [u8]]) -> Result<()> {
        match self {
            Plan::Meeting(meeting) => Ok(communicator.group().meet_and_wait(meeting, arguments, outputs)?),
            Plan::Linked(linkage) => {
                let mut pending = linkage.start(arguments)?;
                pending.wait(None)?;
                Ok(pending.collect(outputs)?)
            }
        }
    }

    /// Starts with the given buffers.
    #[inline]
    pub(crate) fn start<'a, B: Send + 'static>(
        &self,
        communicator: &Communicator,
        arguments: &[Argument<'_>],
        outputs: Outputs<'a>,
        back: B,
    ) -> Result<Request<'a, B>> {
        let pending = match self {
            Plan::Meeting(meeting) => communicator.meet(meeting, arguments)?,
            Plan::Linked(linkage) => linkage.start(arguments)?,
        };
        Ok(Request::new(communicator, pending, outputs, back))
    }

    /// Starts what has no buffers.
    #[inline]
    pub(crate) fn start_bare(&self, communicator: &Communicator) -> Result<Request<'static>> {
        self.start(communicator, &[], Outputs::None, ())
    }

    /// A broadcast has one buffer, read by the root and written by the others.
    #[inline]
    pub(crate) fn start_bcast<'a, B: Send + 'static>(
        &self,
        communicator: &Communicator,
        is_root: bool,
        argument: Argument<'_>,
        private: &'a mut [u8],
        back: B,
    ) -> Result<Request<'a, B>> {
        let in_segment = matches!(argument.binding, engine::lane::Binding::Segment(_));
        let pending = match self {
            Plan::Meeting(meeting) => {
                let nothing = Argument::input(&[]);
                let given = if in_segment { argument } else { Argument::input(private) };
                let arguments = if is_root { [given, argument] } else { [nothing, argument] };
                communicator.meet(meeting, &arguments)?
            }
            Plan::Linked(linkage) => {
                let given = if is_root && !in_segment { Argument::input(private) } else { argument };
                linkage.start(&[given])?
            }
        };
        let outputs: Outputs<'a> = match self {
            _ if is_root => Outputs::None,
            Plan::Meeting(_) => Outputs::Second(private),
            Plan::Linked(_) => Outputs::First(private),
        };
        Ok(Request::new(communicator, pending, outputs, back))
    }
}

/// An argument error in the engine's words.
pub(crate) fn argument(what: &'static str, found: String, expected: &str) -> Error {
    Error::Engine(engine::Error::Argument { what, found, expected: expected.to_owned() })
}

#[inline]
fn same_length(what: &'static str, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(argument(what, format!("{found} bytes long"), &format!("as long as the input, {expected} bytes")))
}
