"""A backend of torch.distributed for tensors in the memory of the processor.

    import torch
    import tradewind.torch

    torch.distributed.init_process_group("tradewind")

It runs under torchrun and any other way to start processes that `init_process_group` knows: the ranks find
each other by its store. Operations go on while the program computes, and a `Work` only waits for them.
Half-precision numbers are combined in single precision and rounded once.
"""

import functools
import itertools
import threading
import zlib

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _Backend
from torch._C._distributed_c10d import Work as _Work

import tradewind
from tradewind import IN_PLACE
from tradewind._tensors import Output, Reduction, beside, contiguous, flattened, memory_of, rows_of

__all__ = ["Backend", "Work"]

# Groups are made with tags from here on. Programs use small ones.
_GROUP_TAGS = 1 << 31


def _failure(error):
    """The exception of torch for an error of tradewind."""
    failure = dist.DistBackendError(str(error))
    failure.failed_rank = error.failed_rank
    return failure


class _Completion:
    """The requests of a work, and a function that finishes it once they are complete: once, by any thread."""

    def __init__(self, requests, finish):
        self.requests, self.finish = requests, finish
        self.error = None
        self.lock = threading.Lock()

    def wait(self, timeout):
        """Waits for the requests, finishes the work, and raises the first error."""
        try:
            # Without the lock: another thread may wait for a shorter time.
            for request in self.requests:
                request.wait(timeout)
        except tradewind.WaitTimeoutError as error:
            raise _failure(error) from error
        except tradewind.Error as error:
            with self.lock:
                self.error = self.error or _failure(error)
        with self.lock:
            if self.error is None and self.finish is not None:
                try:
                    self.finish()
                except Exception as error:
                    self.error = error
            if self.error is not None:
                raise self.error
            self.finish = None

    def when_over(self, function, timeout):
        """Calls a function when all requests have ended, or after the time, in another thread."""
        left = itertools.count(1)

        def ended(_request):
            # The threads that call this have the lock of the interpreter.
            if next(left) == len(self.requests):
                function()

        for request in self.requests:
            request.on_complete(ended, timeout)


class Work(_Work):
    """A started operation. torch calls its `wait` and `get_future`."""

    def __init__(self, requests, result, finish=None, timeout=None):
        super().__init__()
        self._completion = _Completion(requests, finish)
        self._result, self._timeout = result, timeout
        self._future, self._is_waited_for = None, False

    def wait(self, timeout=None):
        seconds = timeout.total_seconds() if timeout is not None else 0
        self._completion.wait(seconds if seconds > 0 else self._timeout)
        self._is_waited_for = True
        return True

    def get_future(self):
        if self._future is None:
            ended = torch.futures.Future()
            # A function that raises gives its future an error. The parts of torch in C++ would take an
            # exception that is set for a result.
            self._future = ended.then(lambda _: self._value())
            self._completion.when_over(lambda: ended.set_result(None), self._timeout)
        return self._future

    def _value(self):
        """The result for the future. Requests that have not ended are late."""
        try:
            self._completion.wait(0)
        except dist.DistBackendError as error:
            late = error.__cause__
            if isinstance(late, tradewind.WaitTimeoutError):
                awaited = str(late).partition(": ")[2]
                text = f"not complete after {self._timeout} seconds: {awaited}"
                raise dist.DistBackendError(text) from late
            raise
        return self._result

    def __del__(self):
        # Only a wait or a future writes to the tensors, but a program may know by a barrier that the
        # operation is complete.
        if getattr(self, "_is_waited_for", True) or self._future is not None:
            return
        try:
            self._completion.when_over(functools.partial(_complete_quietly, self._completion), None)
        except tradewind.Error:
            # This process is a fork, or has left the job.
            pass


def _complete_quietly(completion):
    try:
        completion.wait(None)
    except Exception:
        # The program has dropped the work, and with it its error.
        pass


def _raises(method):
    """A method that raises the exceptions of torch."""

    @functools.wraps(method)
    def call(*arguments, **named):
        try:
            return method(*arguments, **named)
        except tradewind.Error as error:
            raise _failure(error) from error

    return call


class Backend(_Backend):
    """A process group with its operations on tradewind."""

    def __init__(self, communicator, timeout, is_world):
        super().__init__(communicator.rank, communicator.size)
        self._communicator, self._seconds, self._is_world = communicator, timeout, is_world
        self._sequence = 0

    def getBackendName(self):
        return "tradewind"

    def name(self):
        return "tradewind"

    def set_timeout(self, timeout):
        self._seconds = timeout.total_seconds()

    def shutdown(self):
        _release(self)

    abort = shutdown

    def _set_sequence_number_for_group(self):
        self._sequence = 0

    def _get_sequence_number_for_group(self):
        return self._sequence

    def _work(self, requests, result, finish=None, options=None):
        self._sequence += 1
        seconds = options.timeout.total_seconds() if options is not None else 0
        timeout = seconds if seconds > 0 else self._seconds
        return Work(requests, result, finish, timeout)

    # torch asks objects of Python for these. The inherited properties would ask again, without an end.
    supports_splitting = property(lambda self: False)
    supports_coalescing = property(lambda self: False)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    # Collectives.

    @_raises
    def barrier(self, options=None):
        return self._work([self._communicator.ibarrier()], [], options=options)

    @_raises
    def broadcast(self, tensors, options):
        output = Output(tensors)
        if options.rootRank == self.rank():
            output.fill()
        request = self._communicator.ibcast(output.memory, options.rootRank)
        return self._work([request], tensors, output.finish, options)

    @_raises
    def allreduce(self, tensors, options):
        request, finish = self._reduce_everywhere(tensors, options)
        return self._work([request], tensors, finish, options)

    @_raises
    def allreduce_coalesced(self, tensors, options):
        dtypes = dict.fromkeys(tensor.dtype for tensor in tensors)
        groups = [[tensor for tensor in tensors if tensor.dtype == dtype] for dtype in dtypes]
        return self._work_of([self._reduce_everywhere(group, options) for group in groups], tensors, options)

    def _reduction(self, tensor, options):
        return Reduction(options.reduceOp, tensor.dtype, self.size())

    def _reduce_everywhere(self, tensors, options):
        """The request of an allreduce of tensors of one type, and the function that finishes it."""
        reduction = self._reduction(tensors[0], options)
        output = reduction.output(tensors)
        request = self._communicator.iallreduce(IN_PLACE, output.memory, reduction.op)
        return request, functools.partial(reduction.finish, output)

    @_raises
    def reduce(self, tensors, options):
        root = options.rootRank
        reduction = self._reduction(tensors[0], options)
        if self.rank() != root:
            own = memory_of(reduction.input(tensors[0]))
            request = self._communicator.ireduce(own, None, reduction.op, root)
            return self._work([request], tensors, None, options)
        output = reduction.output(tensors)
        request = self._communicator.ireduce(IN_PLACE, output.memory, reduction.op, root)
        return self._work([request], tensors, functools.partial(reduction.finish, output), options)

    def _gather_everywhere(self, outputs, tensor):
        output, own = Output(outputs), contiguous(tensor)
        # The module finds out that a block of the output is this rank's; any other part is copied.
        if own.data_ptr() != output.flat.data_ptr() + self.rank() * own.nbytes:
            own = beside(own, output)
        return self._communicator.iallgather(memory_of(own), output.memory), output.finish

    def _work_of(self, pairs, result, options):
        """One work of several requests, each with the function that finishes it."""
        requests, finishes = zip(*pairs)

        def finish():
            for one in finishes:
                one()

        return self._work(list(requests), result, finish, options)

    @_raises
    def allgather(self, outputs, inputs, options=None):
        pairs = [self._gather_everywhere(*pair) for pair in zip(outputs, inputs)]
        return self._work_of(pairs, outputs[0], options)

    @_raises
    def allgather_coalesced(self, outputs, inputs, options=None):
        # By rank, and then by tensor.
        pairs = [self._gather_everywhere(*pair) for pair in zip(map(list, zip(*outputs)), inputs)]
        return self._work_of(pairs, outputs, options)

    @_raises
    def all_gather_single(self, output, tensor, options=None):
        return self._work_of([self._gather_everywhere([output], tensor)], [output], options)

    @_raises
    def all_gather_single_coalesced(self, outputs, inputs, options=None):
        pairs = [self._gather_everywhere([output], tensor) for output, tensor in zip(outputs, inputs)]
        return self._work_of(pairs, outputs, options)

    @_raises
    def gather(self, outputs, inputs, options):
        own = memory_of(contiguous(inputs[0]))
        if self.rank() != options.rootRank:
            return self._work([self._communicator.igather(own, None, options.rootRank)], [], None, options)
        output = Output(outputs[0])
        request = self._communicator.igather(own, output.memory, options.rootRank)
        return self._work([request], outputs[0], output.finish, options)

    @_raises
    def scatter(self, outputs, inputs, options):
        output = Output(outputs)
        is_root = self.rank() == options.rootRank
        own = memory_of(flattened(inputs[0])) if is_root else None
        request = self._communicator.iscatter(own, output.memory, options.rootRank)
        return self._work([request], outputs, output.finish, options)

    def _reduce_and_scatter(self, output, tensor, options):
        reduction = self._reduction(output, options)
        result = Output([output], reduction.dtype)
        own = memory_of(beside(reduction.input(tensor), result))
        request = self._communicator.ireduce_scatter_block(own, result.memory, reduction.op)
        return request, functools.partial(reduction.finish, result)

    @_raises
    def reduce_scatter(self, outputs, inputs, options):
        flat = map(flattened, inputs)
        pairs = [self._reduce_and_scatter(*pair, options) for pair in zip(outputs, flat)]
        return self._work_of(pairs, outputs, options)

    @_raises
    def reduce_scatter_single(self, output, tensor, options):
        return self._work_of([self._reduce_and_scatter(output, tensor, options)], [output], options)

    @_raises
    def reduce_scatter_single_coalesced(self, outputs, inputs, options):
        pairs = [self._reduce_and_scatter(*pair, options) for pair in zip(outputs, inputs)]
        return self._work_of(pairs, outputs, options)

    @_raises
    def all_to_all_single(self, output, tensor, received, sent, options=None):
        result = Output([output])
        own = memory_of(beside(tensor, result))
        # One call for equal parts and for others, which other ranks may have.
        counts = [rows_of(tensor, sent, self.size()), rows_of(output, received, self.size())]
        request = self._communicator.ialltoallv(own, *counts, result.memory)
        return self._work([request], [output], result.finish, options)

    @_raises
    def alltoall(self, outputs, inputs, options=None):
        result = Output(outputs)
        # A copy, so that inputs may be outputs.
        own = flattened(inputs)
        counts = [[tensor.numel() for tensor in tensors] for tensors in (inputs, outputs)]
        request = self._communicator.ialltoallv(memory_of(own), *counts, result.memory)
        return self._work([request], outputs, result.finish, options)

    # Messages.

    @_raises
    def send(self, tensors, to, tag):
        return self._work([self._communicator.isend(memory_of(contiguous(tensors[0])), to, tag)], tensors)

    @_raises
    def recv(self, tensors, source, tag):
        output = Output(tensors)
        request = self._communicator.irecv(output.memory, source, tag)
        return self._work([request], tensors, output.finish)

    def recv_anysource(self, tensors, tag):
        return self.recv(tensors, None, tag)


# The group that uses the communicator of all ranks itself.
_world_group = None


def _exchange(store, rank, size):
    """An allgather by the store of torch, for ranks that have no job yet."""
    rounds = itertools.count()

    def exchange(own):
        number = next(rounds)
        store.set(f"tradewind/{number}/{rank}", own)
        return [bytes(store.get(f"tradewind/{number}/{other}")) for other in range(size)]

    return exchange


def _create(options, _backend_options=None):
    """Makes a group. Its members call it."""
    global _world_group
    rank, size = options.group_rank, options.group_size
    ranks = list(options.global_ranks_in_group) or list(range(size))
    world = tradewind._native._joined()
    if world is None:
        # The first group has all ranks.
        world = tradewind._native._join(rank, size, tradewind.command(), _exchange(options.store, rank, size))
    seconds = options.timeout.total_seconds()
    if ranks == list(range(world.size)) and _world_group is None:
        _world_group = Backend(world, seconds, True)
        return _world_group
    tag = _GROUP_TAGS | zlib.crc32(options.group_id.encode())
    return Backend(world.create_from_group(ranks, tag), seconds, False)


def _release(group):
    """Lets the next group of all ranks use the communicator of all ranks."""
    global _world_group
    if group is _world_group:
        _world_group = None


dist.Backend.register_backend("tradewind", _create, extended_api=True, devices=["cpu"])
