//! Broadcast.

use crate::buffers::Output;
use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, OneBuffer};
use crate::reduction::FoldOrder;
use crate::request::Request;
use crate::selection::choice::SelectedAlgorithm;
use crate::shape::bytes_of;
use bytemuck::Pod;
use collectives::Collective;
use engine::argument::Argument;
use engine::flat::{FlatCollective, Pattern};
use engine::signature::{CallKind, Signature};
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
        let is_root = self.rank() == root;
        self.check_root(root)?;
        let choice = self.choose(CallForm::Blocking, Collective::Bcast, bytes, FoldOrder::Any);
        if !choice.is_join() {
            let path = self.linked_bcast(&choice, bytes, root)?;
            return CollectivePlan::with_one_buffer(path, bytes, is_root).run(self, buffer);
        }
        let flat = &flat_bcast(&choice, bytes, root);
        let private = bytemuck::cast_slice_mut::<T, u8>(buffer);
        if self.group().streams(flat) {
            let streamed = match is_root {
                true => self.group().stream(flat, BlockingInput::Apart(private), &mut []),
                false => self.group().stream(flat, BlockingInput::Apart(&[]), private),
            };
            if let Some(outcome) = streamed {
                return Ok(outcome?);
            }
        }
        if is_root {
            let arguments = [Argument::input(private), Argument::output(0)];
            return Ok(self.group().run_flat(flat, &arguments, &mut [])?);
        }
        let arguments = [Argument::input(&[]), Argument::output(bytes)];
        Ok(self.group().run_flat(flat, &arguments, &mut [&mut [], private])?)
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
        let bytes = buffer.length();
        let path = self.path_of_bcast(CallForm::Nonblocking, bytes, root)?;
        CollectivePlan::with_one_buffer(path, bytes, self.rank() == root).start(self, buffer)
    }

    /// Prepares a persistent bcast of `count` elements.
    ///
    /// # Errors
    /// The errors of [`ibcast`](Self::ibcast).
    pub fn bcast_init<T: Pod>(&self, count: usize, root: u32) -> Result<Persistent<OneBuffer<T>>> {
        let bytes = bytes_of::<T>(count)?;
        let path = self.path_of_bcast(CallForm::Nonblocking, bytes, root)?;
        Ok(Persistent::new(self, CollectivePlan::with_one_buffer(path, bytes, self.rank() == root)))
    }

    #[inline(always)]
    fn path_of_bcast(&self, form: CallForm, bytes: u64, root: u32) -> Result<ExecutionPath> {
        self.check_root(root)?;
        let choice = self.choose(form, Collective::Bcast, bytes, FoldOrder::Any);
        if choice.is_join() {
            return Ok(ExecutionPath::Flat(flat_bcast(&choice, bytes, root)));
        }
        self.linked_bcast(&choice, bytes, root)
    }

    #[cold]
    fn linked_bcast(
        &self,
        choice: &SelectedAlgorithm,
        bytes: u64,
        root: u32,
    ) -> Result<ExecutionPath> {
        let call = signature_of_bcast(choice, bytes, root);
        self.linked_equal((call, choice), root.into(), (root, bytes, None))
    }
}

#[inline(always)]
fn flat_bcast(choice: &SelectedAlgorithm, bytes: u64, root: u32) -> FlatCollective {
    FlatCollective::new(Pattern::Broadcast { root }, bytes, signature_of_bcast(choice, bytes, root))
}

#[inline(always)]
fn signature_of_bcast(choice: &SelectedAlgorithm, bytes: u64, root: u32) -> Signature {
    Signature::new(CallKind::Bcast, bytes, choice.digest() << 32 | u64::from(root))
}
