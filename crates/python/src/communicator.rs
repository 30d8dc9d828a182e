//! The communicator.

use crate::elements::Op;
use crate::errors::exception;
use crate::forms::{Array, Maybe, collectives};
use crate::handle::Handle;
use crate::interrupts::interruptible;
use crate::messages;
use crate::neighbors::Neighbors;
use crate::prepared::Ranks;
use crate::request::Request;
use crate::status::Status;
use pyo3::prelude::*;

/// The operation of a reduction, unless the call names another.
const SUM: Op = Op::Sum;

/// Ranks that communicate with each other.
///
/// All ranks start the collectives of a communicator in the same order. Arrays are objects with the
/// buffer protocol or DLPack, such as `numpy.ndarray`, contiguous and in the memory of the processor.
/// Without `out` a collective returns a new `numpy.ndarray`.
#[pyclass(frozen, weakref, module = "tradewind")]
pub(crate) struct Communicator(Handle<tradewind::Communicator>);

impl Communicator {
    pub(crate) fn new(communicator: tradewind::Communicator) -> Self {
        Communicator(Handle::new(communicator))
    }

    /// Ends this object: its rank leaves.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    fn ranks(&self) -> PyResult<Ranks> {
        Ok(Ranks { communicator: self.0.get()?, neighbors: None })
    }

    /// Makes another communicator by a call that waits for other ranks.
    fn derive<T: Send>(
        &self,
        py: Python<'_>,
        make: impl FnOnce(&tradewind::Communicator) -> tradewind::Result<T> + Send,
    ) -> PyResult<T> {
        let communicator = self.0.get()?;
        interruptible(py, || make(&communicator))
    }
}

collectives! {
    Communicator {
        /// This rank, from 0.
        #[getter]
        fn rank(&self) -> PyResult<u32> {
            Ok(self.0.get()?.rank())
        }

        /// Number of ranks.
        #[getter]
        fn size(&self) -> PyResult<u32> {
            Ok(self.0.get()?.size())
        }

        /// Number of nodes that the ranks are on.
        #[getter]
        fn nodes(&self) -> PyResult<u32> {
            Ok(self.0.get()?.nodes())
        }

        /// Splits the communicator: the ranks with the same `color` form a new one, ordered by `key`,
        /// then by rank. A rank with the color `None` gets `None`. Waits for all ranks.
        #[pyo3(signature = (color, key=0))]
        fn split(&self, py: Python<'_>, color: Option<u32>, key: i64) -> PyResult<Option<Communicator>> {
            let part = self.derive(py, |communicator| communicator.split(color, key))?;
            Ok(part.map(Communicator::new))
        }

        /// Makes a communicator of the same ranks. Operations of the two do not match each other. Waits for
        /// all ranks.
        fn dup(&self, py: Python<'_>) -> PyResult<Communicator> {
            Ok(Communicator::new(self.derive(py, |communicator| communicator.dup())?))
        }

        /// Makes a communicator of some ranks, in the order of the list. Only these ranks call it, all with
        /// the same list, and a `tag` that no other message of theirs has meanwhile.
        fn create_from_group(
            &self,
            py: Python<'_>,
            ranks: Vec<u32>,
            tag: u32,
        ) -> PyResult<Communicator> {
            let group =
                self.derive(py, |communicator| communicator.create_from_group(&ranks, tag))?;
            Ok(Communicator::new(group))
        }

        /// Makes a communicator of the ranks on this rank's node. Waits for all ranks.
        fn split_by_node(&self, py: Python<'_>) -> PyResult<Communicator> {
            Ok(Communicator::new(self.derive(py, |communicator| communicator.split_by_node())?))
        }

        /// Makes a communicator in which `sources` send to this rank, which sends to `destinations`.
        fn neighbors(
            &self,
            py: Python<'_>,
            sources: Vec<Option<u32>>,
            destinations: Vec<Option<u32>>,
        ) -> PyResult<Neighbors> {
            let made = self.derive(py, |communicator| {
                communicator.neighbors_with_gaps(&sources, &destinations)
            })?;
            Ok(Neighbors::new(made))
        }

        /// Makes a communicator with the neighbours of a grid: dimension by dimension the previous and the
        /// next rank. The last dimension varies fastest.
        fn cartesian(
            &self,
            py: Python<'_>,
            dimensions: Vec<u32>,
            periodic: Vec<bool>,
        ) -> PyResult<Neighbors> {
            let made =
                self.derive(py, |communicator| communicator.cartesian(&dimensions, &periodic))?;
            Ok(Neighbors::new(made))
        }

        /// Ends the job: this process exits at once with the status, or with 1 if that would be success.
        /// Waits of other ranks raise `RankFailedError`, and the launcher ends the job.
        #[pyo3(signature = (status=1))]
        fn abort(&self, py: Python<'_>, status: u8) -> PyResult<()> {
            // The exit does not flush what Python has buffered.
            for stream in ["stdout", "stderr"] {
                let _ = py.import("sys")?.getattr(stream)?.call_method0("flush");
            }
            self.0.get()?.abort(status)
        }

        /// Starts collectives of this rank that are queued. Never waits. Returns whether some are still
        /// queued.
        fn progress(&self) -> PyResult<bool> {
            self.0.get()?.progress().map_err(|error| exception(&error))
        }

        /// Sends an array to rank `to`, and waits until it may be changed.
        #[pyo3(signature = (data, to, tag=0))]
        fn send(&self, py: Python<'_>, data: Array<'_, '_>, to: u32, tag: u32) -> PyResult<()> {
            messages::start_send(self.0.get()?, data, to, tag, false)?.wait(py, None).map(drop)
        }

        /// Sends an array to rank `to`, and waits until it is received.
        #[pyo3(signature = (data, to, tag=0))]
        fn ssend(&self, py: Python<'_>, data: Array<'_, '_>, to: u32, tag: u32) -> PyResult<()> {
            messages::start_send(self.0.get()?, data, to, tag, true)?.wait(py, None).map(drop)
        }

        /// Starts to send an array to rank `to`. It may be changed when the request is complete.
        #[pyo3(signature = (data, to, tag=0))]
        fn isend(&self, data: Array<'_, '_>, to: u32, tag: u32) -> PyResult<Request> {
            messages::start_send(self.0.get()?, data, to, tag, false)
        }

        /// Receives a message into the beginning of `out`, and returns its `Status`. Without `source` or
        /// `tag` it is one of any rank or tag.
        #[pyo3(signature = (out, source=None, tag=None))]
        fn recv(
            &self,
            py: Python<'_>,
            out: Array<'_, '_>,
            source: Option<u32>,
            tag: Option<u32>,
        ) -> PyResult<Py<PyAny>> {
            messages::post_recv(self.0.get()?, out, source, tag)?.wait(py, None)
        }

        /// Posts a receive into the beginning of `out`. The result of its request is the `Status`.
        #[pyo3(signature = (out, source=None, tag=None))]
        fn irecv(
            &self,
            out: Array<'_, '_>,
            source: Option<u32>,
            tag: Option<u32>,
        ) -> PyResult<Request> {
            messages::post_recv(self.0.get()?, out, source, tag)
        }

        /// Sends one message and receives another one, without a deadlock in any order of the ranks.
        #[pyo3(signature = (data, to, out, source=None, tag=0, recv_tag=None))]
        #[expect(clippy::too_many_arguments, reason = "the arguments of MPI_Sendrecv")]
        fn sendrecv(
            &self,
            py: Python<'_>,
            data: Array<'_, '_>,
            to: u32,
            out: Array<'_, '_>,
            source: Option<u32>,
            tag: u32,
            recv_tag: Option<u32>,
        ) -> PyResult<Py<PyAny>> {
            let receive = messages::post_recv(self.0.get()?, out, source, recv_tag)?;
            messages::start_send(self.0.get()?, data, to, tag, false)?.wait(py, None)?;
            receive.wait(py, None)
        }

        /// Waits for a message that a receive with this source and tag would take, and describes it.
        #[pyo3(signature = (source=None, tag=None))]
        fn probe(&self, py: Python<'_>, source: Option<u32>, tag: Option<u32>) -> PyResult<Status> {
            messages::wait_for(&*self.0.get()?, py, source, tag)
        }

        /// Describes the message that a receive with this source and tag would take now; `None` if there
        /// is none.
        #[pyo3(signature = (source=None, tag=None))]
        fn iprobe(&self, source: Option<u32>, tag: Option<u32>) -> PyResult<Option<Status>> {
            messages::find(&*self.0.get()?, source, tag)
        }
    }

    /// Waits until all ranks have called it.
    barrier, ibarrier, barrier_init = Barrier () from None, to None, with {};

    /// Sends the array of the root to all ranks, into theirs, and returns it.
    bcast, ibcast, bcast_init = Bcast
        (array: Array<'_, '_>, root: u32 = 0) from None, to Some(array), with { root };

    /// Collects the inputs of all ranks at the root: its output has one more dimension, the ranks. Other
    /// ranks get `None`.
    gather, igather, gather_init = Gather
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None, root: u32 = 0)
        from Some(input), to out, with { root };

    /// As `gather`, with a number of elements of each rank, which the root passes as `counts`.
    gatherv, igatherv, gatherv_init = Gatherv
        (input: Array<'_, '_>, counts: Option<Vec<usize>> = None, out: Maybe<'_, '_> = None, root: u32 = 0)
        from Some(input), to out, with { counts: counts.unwrap_or_default(), root };

    /// Sends block r of the root's input to rank r. The first dimension of the input counts the ranks.
    /// Other ranks pass `None` as input, and an output.
    scatter, iscatter, scatter_init = Scatter
        (input: Maybe<'_, '_>, out: Maybe<'_, '_> = None, root: u32 = 0)
        from input, to out, with { root };

    /// As `scatter`, with a number of elements for each rank, which the root passes as `counts`.
    scatterv, iscatterv, scatterv_init = Scatterv
        (input: Maybe<'_, '_>, counts: Option<Vec<usize>> = None, out: Maybe<'_, '_> = None, root: u32 = 0)
        from input, to out, with { counts: counts.unwrap_or_default(), root };

    /// Collects the inputs of all ranks everywhere: the output has one more dimension, the ranks.
    allgather, iallgather, allgather_init = Allgather
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None) from Some(input), to out, with {};

    /// As `allgather`, with these numbers of elements of the ranks.
    allgatherv, iallgatherv, allgatherv_init = Allgatherv
        (input: Array<'_, '_>, counts: Vec<usize>, out: Maybe<'_, '_> = None)
        from Some(input), to out, with { counts };

    /// Sends block r of the input to rank r, and receives a block from each rank.
    alltoall, ialltoall, alltoall_init = Alltoall
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None) from Some(input), to out, with {};

    /// As `alltoall`, with `counts` elements for the ranks and `received` elements from them.
    alltoallv, ialltoallv, alltoallv_init = Alltoallv
        (input: Array<'_, '_>, counts: Vec<usize>, received: Vec<usize>, out: Maybe<'_, '_> = None)
        from Some(input), to out, with { counts, received };

    /// Combines the inputs of all ranks, element by element, at the root. Other ranks get `None`.
    reduce, ireduce, reduce_init = Reduce
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None, op: Op = SUM, root: u32 = 0)
        from Some(input), to out, with { op: Some(op), root };

    /// Combines the inputs of all ranks, element by element. All ranks get the same bits.
    allreduce, iallreduce, allreduce_init = Allreduce
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None, op: Op = SUM)
        from Some(input), to out, with { op: Some(op) };

    /// Combines the inputs of all ranks, and gives each rank its block of the result, of `counts[r]`
    /// elements.
    reduce_scatter, ireduce_scatter, reduce_scatter_init = ReduceScatter
        (input: Array<'_, '_>, counts: Vec<usize>, out: Maybe<'_, '_> = None, op: Op = SUM)
        from Some(input), to out, with { counts, op: Some(op) };

    /// As `reduce_scatter`, with equal blocks.
    reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init = ReduceScatterBlock
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None, op: Op = SUM)
        from Some(input), to out, with { op: Some(op) };

    /// Combines the inputs of ranks 0 to r on each rank r.
    scan, iscan, scan_init = Scan
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None, op: Op = SUM)
        from Some(input), to out, with { op: Some(op) };

    /// Combines the inputs of ranks 0 to r − 1 on each rank r. Rank 0 gets zeros, or keeps its output.
    exscan, iexscan, exscan_init = Exscan
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None, op: Op = SUM)
        from Some(input), to out, with { op: Some(op) };
}
