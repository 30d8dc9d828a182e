//! Broadcast.

use crate::buffers::Output;
use crate::call::{Blocks, Call};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, OneBuffer};
use crate::request::Request;
use crate::selection::choice::SelectedAlgorithm;
use crate::shape::bytes_of;
use bytemuck::Pod;
use collectives::Collective;
use engine::argument::Argument;
use engine::streams::BlockingInput;
use models::decision::CallForm;

/// # Broadcast
impl Communicator {
    /// Sends the root's buffer to every rank.
    ///
    /// Shapes: the same number of elements on all ranks.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let mut word = if world.rank() == 1 { *b"tell" } else { [0; 4] };
    ///     world.bcast(&mut word, 1)?;
    ///     assert_eq!(&word, b"tell");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the root is not a rank, or a rank is gone or in another collective.
    #[inline]
    pub fn bcast<T: Pod>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        let bytes = size_of_val(buffer) as u64;
        let call = self.describe_bcast(CallForm::Blocking, bytes, root)?;
        let choice = self.choose(&call);
        if !choice.is_join() {
            return self.bcast_by_graph(call, choice, buffer);
        }
        let flat = &call.flat(&choice);
        let private = bytemuck::cast_slice_mut::<T, u8>(buffer);
        if self.group().streams(flat) {
            let streamed = match call.is_root() {
                true => self.group().stream(flat, BlockingInput::Apart(private), &mut []),
                false => self.group().stream(flat, BlockingInput::Apart(&[]), private),
            };
            if let Some(outcome) = streamed {
                return Ok(outcome?);
            }
        }
        if call.is_root() {
            let arguments = [Argument::input(private), Argument::output(0)];
            return Ok(self.group().run_flat(flat, &arguments, &mut [])?);
        }
        let arguments = [Argument::input(&[]), Argument::output(bytes)];
        Ok(self.group().run_flat(flat, &arguments, &mut [&mut [], private])?)
    }

    #[cold]
    fn bcast_by_graph<T: Pod>(
        &self,
        call: Call<'_>,
        choice: SelectedAlgorithm,
        buffer: &mut [T],
    ) -> Result<()> {
        let path = self.path_by_graph(call, choice)?;
        CollectivePlan::with_one_buffer(path, call.own_bytes(), call.is_root()).run(self, buffer)
    }

    /// Starts a [`bcast`](Self::bcast).
    ///
    /// # Errors
    /// Fails if the root is not a rank or the schedule cannot be linked. Never waits once linked.
    #[inline]
    pub fn ibcast<'a, T: Pod, O: Output<'a, T>>(
        &self,
        buffer: O,
        root: u32,
    ) -> Result<Request<'a, O::Back>> {
        let call = self.describe_bcast(CallForm::Nonblocking, buffer.length(), root)?;
        let choice = self.choose(&call);
        if !choice.is_join() {
            return self.ibcast_by_graph(call, choice, buffer);
        }
        // Known to be flat here, so that its pattern is a constant.
        let path = ExecutionPath::Flat(call.flat(&choice));
        CollectivePlan::with_one_buffer(path, call.own_bytes(), call.is_root()).start(self, buffer)
    }

    #[cold]
    fn ibcast_by_graph<'a, T: Pod, O: Output<'a, T>>(
        &self,
        call: Call<'_>,
        choice: SelectedAlgorithm,
        buffer: O,
    ) -> Result<Request<'a, O::Back>> {
        let path = self.path_by_graph(call, choice)?;
        CollectivePlan::with_one_buffer(path, call.own_bytes(), call.is_root()).start(self, buffer)
    }

    /// Prepares a persistent bcast of `count` elements.
    ///
    /// # Errors
    /// The errors of [`ibcast`](Self::ibcast).
    pub fn bcast_init<T: Pod>(&self, count: usize, root: u32) -> Result<Persistent<OneBuffer<T>>> {
        let call = self.describe_bcast(CallForm::Nonblocking, bytes_of::<T>(count)?, root)?;
        let path = self.path_of_call(&call, &self.choose(&call))?;
        let plan = CollectivePlan::with_one_buffer(path, call.own_bytes(), call.is_root());
        Ok(Persistent::new(self, plan))
    }

    #[inline(always)]
    fn describe_bcast(&self, form: CallForm, bytes: u64, root: u32) -> Result<Call<'static>> {
        self.describe(Collective::Bcast, form, Some(root), Blocks::Equal(bytes))
    }
}
