//! A collective on this rank, ready to start: its execution path, the buffers that it takes, and
//! the fold of a user-defined reduction.
//!
//! A plan is made once and then run, started, or kept as a
//! [`Persistent`](crate::Persistent) collective. Its type parameter names the buffers that a start
//! takes: [`NoBuffers`], [`OneBuffer`] or [`TwoBuffers`].

mod kinds;
mod two_buffers;

use crate::buffer_error::Elements;
use crate::buffers::Output;
use crate::communicator::Communicator;
use crate::error::{Result, does_not_fit};
use crate::internode::request::run_in_place;
use crate::path::ExecutionPath;
use crate::reduction::FoldOrder;
use crate::request::{CopiedOutput, Outputs, Request};
use bytemuck::Pod;
use engine::argument::{Argument, Binding};
pub(crate) use kinds::{CollectivePlan, check_memory};
pub use kinds::{NoBuffers, OneBuffer, TwoBuffers};
use models::decision::CallForm;
use shm::borrowed::{CallerBuffer, with_borrowed};
use std::marker::PhantomData;

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
        match self.path.in_place_schedule() {
            Some(schedule) => run_in_place(schedule, Vec::new()),
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
        let Some(schedule) = self.path.in_place_schedule() else {
            return self.start_as(communicator, CallForm::Blocking, buffer)?.wait();
        };
        let bytes = bytemuck::cast_slice_mut::<T, u8>(buffer);
        let buffer = if self.buffers.is_root {
            CallerBuffer::Read(bytes)
        } else {
            CallerBuffer::Write(bytes)
        };
        with_borrowed(vec![buffer], |buffers| run_in_place(schedule, buffers))
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
            let elements = |bytes| format!("{}", Elements { bytes, each: size_of::<T>() });
            let found = format!("has {}", elements(buffer.length()));
            let expected = format!("have {}", elements(bytes));
            return Err(does_not_fit(self.path.call().kind, "the buffer", found, expected));
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
