//! A collective on this rank, ready to start: its execution path, the buffers that it takes, and
//! the fold of a user-defined reduction.
//!
//! A plan is made once and then run, started, or kept as a
//! [`Persistent`](crate::Persistent) collective. Its type parameter says which buffers a start
//! takes: [`NoBuffers`], [`OneBuffer`] or [`TwoBuffers`].

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use crate::internode::request::run_lent;
use crate::path::ExecutionPath;
use crate::reduction::{FoldFunction, FoldOrder};
use crate::request::{CopiedOutput, FoldedOutput, Outputs, Request};
use crate::shape::{BufferShape, InPlaceRule, OwnBlock};
use bytemuck::Pod;
use engine::argument::{Argument, Binding};
use engine::communicator::Communicator as NodeCommunicator;
use engine::flat::FlatCollective;
use engine::streams::BlockingInput;
use models::decision::CallForm;
use shm::loan::{LentBytes, Loan, lend};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A collective on this rank, ready to start with the buffers `B`.
#[derive(Clone, Debug)]
pub(crate) struct CollectivePlan<B> {
    pub(crate) path: ExecutionPath,
    buffers: B,
    /// Order of contributions, by which the algorithm was selected.
    order: FoldOrder,
}

/// Buffers of a [`Persistent`](crate::Persistent) barrier: none.
#[derive(Clone, Copy, Debug)]
pub struct NoBuffers(());

/// Buffer of a [`Persistent`](crate::Persistent) broadcast: read at the root, written elsewhere.
pub struct OneBuffer<T> {
    bytes: u64,
    is_root: bool,
    element: PhantomData<fn(T)>,
}

/// Buffers of all other [`Persistent`](crate::Persistent) collectives: an input and an output.
pub struct TwoBuffers<T> {
    shape: BufferShape,
    /// Blocks for the rank itself among those between neighbours, which the caller copies.
    own_edges: Option<Arc<[OwnBlock]>>,
    /// Computes the result from contributions that the path gathers.
    fold: Option<OwnFold>,
    element: PhantomData<fn(T)>,
}

/// A fold by the rank itself.
#[derive(Clone, Debug)]
struct OwnFold {
    function: FoldFunction,
    /// Bytes that the path gathers.
    gathered: u64,
    /// The part of them that is folded.
    folded: Range<usize>,
}

impl<T> Clone for OneBuffer<T> {
    fn clone(&self) -> Self {
        OneBuffer { element: PhantomData, ..*self }
    }
}

impl<T> std::fmt::Debug for OneBuffer<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OneBuffer { bytes, is_root, .. } = self;
        formatter.debug_struct("OneBuffer").field("bytes", bytes).field("is_root", is_root).finish()
    }
}

impl<T> Clone for TwoBuffers<T> {
    fn clone(&self) -> Self {
        let TwoBuffers { shape, own_edges, fold, .. } = self;
        TwoBuffers {
            shape: *shape,
            own_edges: own_edges.clone(),
            fold: fold.clone(),
            element: PhantomData,
        }
    }
}

impl<T> std::fmt::Debug for TwoBuffers<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TwoBuffers { shape, fold, .. } = self;
        formatter.debug_struct("TwoBuffers").field("shape", shape).field("fold", fold).finish()
    }
}

impl CollectivePlan<NoBuffers> {
    /// A plan without buffers.
    #[inline]
    pub(crate) fn without_buffers(path: ExecutionPath) -> Self {
        CollectivePlan { path, buffers: NoBuffers(()), order: FoldOrder::Common }
    }

    /// Starts the collective.
    #[inline(always)]
    pub(crate) fn start(&self, communicator: &Communicator) -> Result<Request<'static>> {
        self.start_as(communicator, CallForm::Nonblocking)
    }

    /// Starts the collective and waits.
    pub(crate) fn run(&self, communicator: &Communicator) -> Result<()> {
        match self.path.lending() {
            Some(schedule) => run_lent(schedule, Vec::new()),
            None => self.start_as(communicator, CallForm::Blocking)?.wait(),
        }
    }

    #[inline(always)]
    fn start_as(&self, communicator: &Communicator, form: CallForm) -> Result<Request<'static>> {
        let started = self.path.start(communicator.group(), form, &[])?;
        Ok(Request::new(communicator, started, Outputs::None, ()))
    }
}

impl<T: Pod> CollectivePlan<OneBuffer<T>> {
    /// A plan with one buffer of `bytes` bytes.
    #[inline]
    pub(crate) fn with_one_buffer(path: ExecutionPath, bytes: u64, is_root: bool) -> Self {
        let buffers = OneBuffer { bytes, is_root, element: PhantomData };
        CollectivePlan { path, buffers, order: FoldOrder::Common }
    }

    /// Starts the collective with its buffer.
    #[inline(always)]
    pub(crate) fn start<'a, O: Output<'a, T>>(
        &self,
        communicator: &Communicator,
        buffer: O,
    ) -> Result<Request<'a, O::Back>> {
        self.start_as(communicator, CallForm::Nonblocking, buffer)
    }

    /// Starts the collective with its buffer and waits.
    pub(crate) fn run(&self, communicator: &Communicator, buffer: &mut [T]) -> Result<()> {
        let Some(schedule) = self.path.lending() else {
            return self.start_as(communicator, CallForm::Blocking, buffer)?.wait();
        };
        let bytes = bytemuck::cast_slice_mut::<T, u8>(buffer);
        let loan = if self.buffers.is_root { Loan::Read(bytes) } else { Loan::Write(bytes) };
        lend(vec![loan], |lent| run_lent(schedule, lent))
    }

    #[inline(always)]
    fn start_as<'a, O: Output<'a, T>>(
        &self,
        communicator: &Communicator,
        form: CallForm,
        mut buffer: O,
    ) -> Result<Request<'a, O::Back>> {
        let OneBuffer { bytes, is_root, .. } = self.buffers;
        check_memory(&self.path, buffer.suits(communicator.group()))?;
        if !is_root {
            buffer.make_writable();
        }
        let written = buffer.argument().filter(|argument| argument.length == bytes);
        let Some(written) = written else {
            let found = format!("{} bytes long", buffer.length());
            return Err(argument("the buffer", found, format!("{bytes} bytes long here")));
        };
        // A flat broadcast declares an input and an output on every rank, a graph only the buffer
        // that the rank uses.
        let is_flat = matches!(self.path, ExecutionPath::Flat(_));
        let group = communicator.group();
        let started = if is_root {
            let in_segment = matches!(written.binding, Binding::Segment(_));
            let read = if in_segment && !self.path.is_internode() {
                written
            } else {
                Argument::input(buffer.bytes())
            };
            let arguments = [read, written];
            self.path.start(group, form, if is_flat { &arguments } else { &arguments[..1] })?
        } else {
            let arguments = [Argument::input(&[]), written];
            self.path.start(group, form, if is_flat { &arguments } else { &arguments[1..] })?
        };
        let (private, back) = buffer.into_parts(|| started.input_readers());
        let outputs = match &self.path {
            _ if is_root => Outputs::None,
            ExecutionPath::Flat(_) => Outputs::Second(private),
            ExecutionPath::Linked(_) => Outputs::First(private),
            ExecutionPath::Internode(_) => {
                let copied = CopiedOutput { buffer: 0, private, bytes: bytes as usize };
                Outputs::Copied(Box::new(copied), |back| O::bytes_of_back(back))
            }
        };
        Ok(Request::new(communicator, started, outputs, back))
    }
}

impl<T: Pod> CollectivePlan<TwoBuffers<T>> {
    /// The plan of a reduction by an algorithm that was selected for this order.
    #[inline]
    pub(crate) fn in_order(self, order: FoldOrder) -> Self {
        CollectivePlan { order, ..self }
    }

    /// A plan with a path that delivers the result.
    #[inline]
    pub(crate) fn new(path: ExecutionPath, shape: BufferShape) -> Self {
        CollectivePlan::with_own_edges(path, shape, None)
    }

    /// A plan with a path that leaves these blocks of the rank for itself to the caller.
    #[inline]
    pub(crate) fn with_own_edges(
        path: ExecutionPath,
        shape: BufferShape,
        own_edges: Option<Arc<[OwnBlock]>>,
    ) -> Self {
        let buffers = TwoBuffers { shape, own_edges, fold: None, element: PhantomData };
        CollectivePlan { path, buffers, order: FoldOrder::Common }
    }

    /// A plan with a path that gathers `gathered` contributions of `bytes` bytes, of which the first
    /// `count` are folded by this rank.
    pub(crate) fn folded(
        path: ExecutionPath,
        shape: BufferShape,
        function: FoldFunction,
        (gathered, count, bytes): (u32, u32, u64),
    ) -> Self {
        let fold = OwnFold {
            function,
            gathered: u64::from(gathered).saturating_mul(bytes),
            folded: 0..u64::from(count).saturating_mul(bytes) as usize,
        };
        let buffers = TwoBuffers { shape, own_edges: None, fold: Some(fold), element: PhantomData };
        CollectivePlan { path, buffers, order: FoldOrder::Common }
    }

    /// Starts the collective with an input and an output, waits and fetches the result.
    #[inline(always)]
    pub(crate) fn run<'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        communicator: &Communicator,
        input: I,
        mut output: O,
    ) -> Result<()> {
        self.check(communicator, &input, &mut output)?;
        let group = communicator.group();
        let flat = match &self.path {
            ExecutionPath::Flat(flat) if self.buffers.fold.is_none() => {
                // A stream copies the own block itself, while the other ranks read theirs.
                if group.streams(flat)
                    && let Some(outcome) = self.stream(group, flat, &input, output.bytes())
                {
                    return outcome;
                }
                flat
            }
            path if path.lending().is_some() && self.buffers.fold.is_none() => {
                self.copy_own(&input, &mut output);
                return self.run_lent(&input, &mut output);
            }
            _ => {
                self.copy_own(&input, &mut output);
                return self.start_and_wait(communicator, input, output);
            }
        };
        self.copy_own(&input, &mut output);
        self.run_flat(group, flat, input, output)
    }

    /// As [`run`](Self::run), for a rank that has found no memory for streams.
    #[cold]
    pub(crate) fn run_without_streams<'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        communicator: &Communicator,
        input: I,
        mut output: O,
    ) -> Result<()> {
        self.check(communicator, &input, &mut output)?;
        self.copy_own(&input, &mut output);
        match &self.path {
            ExecutionPath::Flat(flat) => self.run_flat(communicator.group(), flat, input, output),
            _ => self.start_and_wait(communicator, input, output),
        }
    }

    #[inline(always)]
    fn run_flat<'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        group: &Arc<NodeCommunicator>,
        flat: &FlatCollective,
        input: I,
        mut output: O,
    ) -> Result<()> {
        let held = group.start_blocking(flat, &self.arguments(&input, &mut output, false))?;
        let (private, _) = output.into_parts(|| None);
        let private = self.buffers.shape.result_in(private);
        Ok(group.finish_blocking(held, flat, &mut [&mut [], private])?)
    }

    /// Runs a collective between nodes on the buffers themselves.
    fn run_lent<'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        input: &I,
        output: &mut O,
    ) -> Result<()> {
        let Some(schedule) = self.path.lending() else { return Ok(()) };
        let shape = self.buffers.shape;
        let length = shape.output.unwrap_or(0) as usize;
        let is_written = shape.output.is_some() && output.argument().is_some();
        // An input that lies in the output is copied: the output is lent for writing.
        let inside = match (shape.input, input.argument(), shape.in_place) {
            (Some(length), None, InPlaceRule::InputAt(at)) => {
                let piece = at as usize..(at + length) as usize;
                Some(output.bytes().get(piece).unwrap_or_default().to_vec())
            }
            _ => None,
        };
        let read = if shape.input.is_some() { input.bytes() } else { &[] };
        let written = if is_written { shape.result_in(output.bytes()) } else { &mut [] };
        // A result in place stays in the input, so the engine writes it elsewhere.
        let aside = vec![0; length - written.len()];
        lend(vec![Loan::Read(read), Loan::Write(written)], |lent| {
            let mut buffers = lent;
            if let Some(inside) = inside {
                buffers[0] = LentBytes::owned(inside);
            }
            if !aside.is_empty() {
                buffers[1] = LentBytes::owned(aside);
            }
            run_lent(schedule, buffers)
        })
    }

    /// Runs a collective that is not flat.
    fn start_and_wait<'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        communicator: &Communicator,
        input: I,
        output: O,
    ) -> Result<()> {
        self.start_prepared(communicator, CallForm::Blocking, input, output)?.wait().map(|_| ())
    }

    /// Runs a long flat collective as a stream of pieces; `None` if there is no memory for it.
    #[cold]
    fn stream<'i, I: Input<'i, T>>(
        &self,
        group: &NodeCommunicator,
        flat: &FlatCollective,
        input: &I,
        output: &mut [u8],
    ) -> Option<Result<()>> {
        let shape = self.buffers.shape;
        let contribution = match (shape.input, input.argument(), shape.in_place) {
            (Some(_), Some(_), _) => BlockingInput::Apart(input.bytes()),
            (Some(length), None, InPlaceRule::InputAt(at)) => {
                BlockingInput::InOutput(at as usize..(at + length) as usize)
            }
            _ => BlockingInput::Apart(&[]),
        };
        Some(group.stream(flat, contribution, output)?.map_err(Error::from))
    }

    /// Starts the collective with an input and an output.
    #[inline(always)]
    pub(crate) fn start<'a, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        communicator: &Communicator,
        input: I,
        mut output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.check(communicator, &input, &mut output)?;
        self.copy_own(&input, &mut output);
        self.start_prepared(communicator, CallForm::Nonblocking, input, output)
    }

    /// Starts the collective with buffers that have been checked.
    #[inline(always)]
    fn start_prepared<'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        communicator: &Communicator,
        form: CallForm,
        input: I,
        mut output: O,
    ) -> Result<Request<'o, (I::Back, O::Back)>> {
        let TwoBuffers { shape, fold, .. } = &self.buffers;
        let group = communicator.group();
        output.make_writable();
        let arguments = self.arguments(&input, &mut output, self.path.is_internode());
        let started = self.path.start(group, form, &arguments)?;
        let (private, back) = output.into_parts(|| None);
        let private = shape.result_in(private);
        let bytes = shape.output.unwrap_or(0) as usize;
        let outputs = match fold {
            None if self.path.is_internode() => {
                let copied = CopiedOutput { buffer: 1, private, bytes };
                Outputs::Copied(Box::new(copied), output_of_back::<T, I, O>)
            }
            None => Outputs::Second(private),
            Some(OwnFold { function, gathered, folded }) => {
                let folded = FoldedOutput {
                    function: function.clone(),
                    contributions: vec![0; *gathered as usize],
                    folded: folded.clone(),
                    private,
                    bytes,
                };
                Outputs::Folded(Box::new(folded), output_of_back::<T, I, O>)
            }
        };
        let input = input.into_back(|| started.input_readers());
        let request = Request::new(communicator, started, outputs, (input, back));
        Ok(request.in_order(self.order))
    }

    /// Checks the memory and the lengths of the buffers.
    ///
    /// Here and in what a flat collective runs through, the shape is not copied: the vector loads of
    /// a copy wait until the stores that have just written it word by word are visible, and these
    /// wait for all earlier ones, up to that of the last call to a line in another core's cache.
    #[inline]
    fn check<'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        communicator: &Communicator,
        input: &I,
        output: &mut O,
    ) -> Result<()> {
        check_memory(
            &self.path,
            input.suits(communicator.group()) && output.suits(communicator.group()),
        )?;
        let read = input.argument();
        let written = output.argument();
        let shape = &self.buffers.shape;
        shape.check(read.map(|read| read.length), written.map(|written| written.length))
    }

    /// Copies the rank's blocks for itself from the input to the output, if the path leaves that to
    /// the caller and neither is in place.
    #[inline]
    fn copy_own<'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(&self, input: &I, output: &mut O) {
        let TwoBuffers { shape, own_edges, .. } = &self.buffers;
        if shape.own.is_none() && own_edges.is_none() {
            return;
        }
        if input.argument().is_none() || output.argument().is_none() {
            return;
        }
        for own in shape.own.iter().chain(own_edges.iter().flat_map(|edges| edges.iter())) {
            own.copy(input.bytes(), output.bytes());
        }
    }

    /// The engine's arguments for buffers that have been checked. With `is_copied`, an input in the
    /// segment is read as private memory.
    #[inline]
    fn arguments<'b, 'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        input: &'b I,
        output: &'b mut O,
        is_copied: bool,
    ) -> [Argument<'b>; 2] {
        let TwoBuffers { shape, fold, .. } = &self.buffers;
        let written = match (fold, shape.output, output.argument()) {
            (Some(fold), ..) => Argument::output(fold.gathered),
            (None, Some(length), Some(written)) => Argument { length, ..written },
            (None, length, _) => Argument::output(length.unwrap_or(0)),
        };
        let read = match (shape.input, input.argument(), shape.in_place) {
            (Some(_), Some(Argument { binding: Binding::Segment(_), .. }), _) if is_copied => {
                Argument::input(input.bytes())
            }
            (Some(_), Some(read), _) => read,
            (Some(length), None, InPlaceRule::InputAt(at)) => {
                let piece = at as usize..(at + length) as usize;
                Argument::input(output.bytes().get(piece).unwrap_or_default())
            }
            _ => Argument::input(&[]),
        };
        [read, written]
    }
}

/// Refuses memory that the engine would look for in another segment. Between nodes the bytes are
/// copied, so any memory does.
#[inline]
pub(crate) fn check_memory(path: &ExecutionPath, suits: bool) -> Result<()> {
    if suits || path.is_internode() {
        return Ok(());
    }
    let expected = "memory that `alloc` of a communicator of this job on this node has returned";
    Err(argument("the memory of a buffer", "that of another job or node", expected))
}

/// Bytes of the output among the buffers that moved in.
fn output_of_back<'i, 'o, 'b, T: Pod, I: Input<'i, T>, O: Output<'o, T>>(
    back: &'b mut (I::Back, O::Back),
) -> &'b mut [u8] {
    O::bytes_of_back(&mut back.1)
}
