//! Runs and starts of collectives with an input and an output.

use super::kinds::{CollectivePlan, OwnFold, TwoBuffers, check_memory};
use crate::buffers::{Input, Output};
use crate::call::Contributions;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::internode::request::run_in_place;
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
use shm::borrowed::{BorrowedBytes, CallerBuffer, with_borrowed};
use std::marker::PhantomData;
use std::sync::Arc;

impl<T: Pod> CollectivePlan<TwoBuffers<T>> {
    /// A plan with a path that delivers the result. The order is that by which the algorithm of a
    /// reduction was selected.
    #[inline]
    pub(crate) fn new(path: ExecutionPath, shape: BufferShape, order: FoldOrder) -> Self {
        CollectivePlan::with_own_edges(path, shape, order, None)
    }

    /// As [`new`](Self::new), with a path that leaves these blocks of the rank for itself to the
    /// caller.
    #[inline]
    pub(crate) fn with_own_edges(
        path: ExecutionPath,
        shape: BufferShape,
        order: FoldOrder,
        own_edges: Option<Arc<[OwnBlock]>>,
    ) -> Self {
        let buffers = TwoBuffers { shape, own_edges, fold: None, element: PhantomData };
        CollectivePlan { path, buffers, order }
    }

    /// The plan with a path that gathers contributions of `bytes` bytes, which this rank folds into a
    /// result of this shape.
    pub(crate) fn with_fold(
        mut self,
        function: FoldFunction,
        shape: BufferShape,
        Contributions { gathered, folded }: Contributions,
        bytes: u64,
    ) -> Self {
        let fold = OwnFold {
            function,
            gathered: u64::from(gathered).saturating_mul(bytes),
            folded: 0..u64::from(folded).saturating_mul(bytes) as usize,
        };
        self.buffers.shape = shape;
        self.buffers.fold = Some(fold);
        self
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
            path if path.in_place_schedule().is_some() && self.buffers.fold.is_none() => {
                self.copy_own(&input, &mut output);
                return self.run_in_place(&input, &mut output);
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
    fn run_in_place<'i, 'o, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        input: &I,
        output: &mut O,
    ) -> Result<()> {
        let Some(schedule) = self.path.in_place_schedule() else { return Ok(()) };
        let shape = self.buffers.shape;
        let length = shape.output.unwrap_or(0) as usize;
        let is_written = shape.output.is_some() && output.argument().is_some();
        // An input that lies in the output is copied: the output is borrowed for writing.
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
        let borrowed = vec![CallerBuffer::Read(read), CallerBuffer::Write(written)];
        with_borrowed(borrowed, |mut buffers| {
            if let Some(inside) = inside {
                buffers[0] = BorrowedBytes::owned(inside);
            }
            if !aside.is_empty() {
                buffers[1] = BorrowedBytes::owned(aside);
            }
            run_in_place(schedule, buffers)
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
        let lengths = (read.map(|read| read.length), written.map(|written| written.length));
        shape.check::<T>(lengths, || self.path.call().kind)
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

/// Bytes of the output among the buffers that moved in.
fn output_of_back<'i, 'o, 'b, T: Pod, I: Input<'i, T>, O: Output<'o, T>>(
    back: &'b mut (I::Back, O::Back),
) -> &'b mut [u8] {
    O::bytes_of_back(&mut back.1)
}
