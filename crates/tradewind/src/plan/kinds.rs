//! A plan, and the buffers that one of each kind takes.

use crate::error::{Result, argument};
use crate::path::ExecutionPath;
use crate::reduction::{FoldFunction, FoldOrder};
use crate::shape::{BufferShape, OwnBlock};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A collective on this rank, ready to start with the buffers `B`.
#[derive(Debug)]
pub(crate) struct CollectivePlan<B> {
    pub(crate) path: ExecutionPath,
    pub(super) buffers: B,
    /// Order of contributions, by which the algorithm was selected.
    pub(super) order: FoldOrder,
}

/// Buffers of a [`Persistent`](crate::Persistent) barrier: none.
#[derive(Debug)]
pub struct NoBuffers(pub(super) ());

/// Buffer of a [`Persistent`](crate::Persistent) broadcast: read at the root, written elsewhere.
pub struct OneBuffer<T> {
    pub(super) bytes: u64,
    pub(super) is_root: bool,
    pub(super) element: PhantomData<fn(T)>,
}

/// Buffers of all other [`Persistent`](crate::Persistent) collectives: an input and an output.
pub struct TwoBuffers<T> {
    pub(super) shape: BufferShape,
    /// Blocks for the rank itself among those between neighbours, which the caller copies.
    pub(super) own_edges: Option<Arc<[OwnBlock]>>,
    /// Computes the result from contributions that the path gathers.
    pub(super) fold: Option<OwnFold>,
    pub(super) element: PhantomData<fn(T)>,
}

/// A fold by the rank itself.
#[derive(Clone, Debug)]
pub(super) struct OwnFold {
    pub(super) function: FoldFunction,
    /// Bytes that the path gathers.
    pub(super) gathered: u64,
    /// The part of them that is folded.
    pub(super) folded: Range<usize>,
}

impl<T> std::fmt::Debug for OneBuffer<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OneBuffer { bytes, is_root, .. } = self;
        formatter.debug_struct("OneBuffer").field("bytes", bytes).field("is_root", is_root).finish()
    }
}

impl<T> std::fmt::Debug for TwoBuffers<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TwoBuffers { shape, fold, .. } = self;
        formatter.debug_struct("TwoBuffers").field("shape", shape).field("fold", fold).finish()
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
