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
from torch.distributed import ReduceOp

import tradewind
from tradewind import IN_PLACE, Memory

__all__ = ["Backend", "Work"]

_NAMES = {
    torch.bool: "bool8",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}

_OPS = {
    ReduceOp.SUM: tradewind.SUM,
    ReduceOp.AVG: tradewind.SUM,
    ReduceOp.PREMUL_SUM: tradewind.SUM,
    ReduceOp.PRODUCT: tradewind.PRODUCT,
    ReduceOp.MIN: tradewind.MIN,
    ReduceOp.MAX: tradewind.MAX,
    ReduceOp.BAND: tradewind.AND,
    ReduceOp.BOR: tradewind.OR,
    ReduceOp.BXOR: tradewind.XOR,
}

# Types that older versions lack.
for _bits in (16, 32, 64):
    if hasattr(torch, f"uint{_bits}"):
        _NAMES[getattr(torch, f"uint{_bits}")] = f"uint{_bits}"

# A sum of booleans is whether one of them is true.
_OPS_ON_BOOL = {tradewind.SUM: tradewind.OR, tradewind.PRODUCT: tradewind.AND}

# Types that are combined in single precision.
_HALF = (torch.float16, torch.bfloat16)

# Groups are made with tags from here on. Programs use small ones.
_GROUP_TAGS = 1 << 31


def _memory(tensor):
    """The memory of a contiguous tensor."""
    size = tensor.element_size()
    name = _NAMES.get(tensor.dtype) or f"bytes{8 * size}"
    return Memory(tensor.data_ptr(), tensor.numel() * size, name, tensor)


def _check(tensor):
    if tensor.device.type != "cpu":
        text = f"tradewind has no operations on tensors of {tensor.device}: copy them to the processor"
        raise ValueError(text)
    if tensor.layout != torch.strided:
        raise ValueError(f"tradewind has no operations on {tensor.layout} tensors: make them dense")
    return tensor


def _input(tensor):
    """The tensor, or a contiguous copy."""
    return _check(tensor).detach().contiguous()


def _beside(tensor, output):
    """A contiguous tensor that shares no memory with an output."""
    tensor = _input(tensor)
    begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    other = output.flat.data_ptr(), output.flat.data_ptr() + output.flat.nbytes
    return tensor.clone() if begin < other[1] and other[0] < end else tensor


def _failure(error):
    """The exception of torch for an error of tradewind."""
    failure = dist.DistBackendError(str(error))
    failure.failed_rank = error.failed_rank
    return failure


class _Completion:
    """The requests of a work, and what remains to be done when they are complete: once, by any thread."""

    def __init__(self, requests, finish):
        self.requests, self.finish = requests, finish
        self.error = None
        self.lock = threading.Lock()

    def wait(self, timeout):
        """Waits for the requests, and raises the error of one of them or of what remained to be done."""
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
            # The exception of a function is an error of its future also for the parts of torch in C++, which
            # take one that is set for a result.
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
        # Without a wait nothing is written to the tensors, and programs may know by a barrier that the
        # operation is complete. A future does the same.
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


class _Output:
    """Contiguous memory for the results of some tensors, which are copied to them if it is not theirs."""

    def __init__(self, tensors, dtype=None):
        self.tensors = [_check(tensor).detach() for tensor in tensors]
        first = self.tensors[0]
        dtype = dtype or first.dtype
        self.is_own = len(self.tensors) == 1 and first.is_contiguous() and dtype == first.dtype
        count = sum(tensor.numel() for tensor in self.tensors)
        self.flat = first if self.is_own else torch.empty(count, dtype=dtype)
        self.memory = _memory(self.flat)

    def fill(self):
        """Copies the tensors into the memory."""
        if not self.is_own:
            for tensor, part in self._parts():
                part.copy_(tensor)
        return self

    def finish(self):
        """Copies the results to the tensors."""
        if not self.is_own:
            for tensor, part in self._parts():
                tensor.copy_(part)

    def _parts(self):
        sizes = [tensor.numel() for tensor in self.tensors]
        return [(tensor, part.view_as(tensor)) for tensor, part in zip(self.tensors, self.flat.split(sizes))]


class _Reduction:
    """The operation of a reduction on tensors of a type."""

    def __init__(self, op, dtype, size):
        kind = op.op if hasattr(op, "op") else op
        kind = next((known for known in _OPS if known == kind), None)
        if kind is None:
            raise ValueError(f"tradewind has no operation {op}")
        self.op = _OPS[kind]
        if dtype == torch.bool:
            self.op = _OPS_ON_BOOL.get(self.op, self.op)
        self.dtype = torch.float32 if dtype in _HALF else dtype
        self.divisor = size if kind == ReduceOp.AVG else None
        self.factor = op.__getstate__()[1] if kind == ReduceOp.PREMUL_SUM else None
        is_integer = not (dtype.is_floating_point or dtype.is_complex)
        if (self.divisor and dtype == torch.bool) or (self.factor is not None and is_integer):
            raise ValueError(f"{kind} does not apply to {dtype}: convert the tensor to a floating-point type")

    def input(self, tensor):
        """A contiguous tensor with what is combined."""
        tensor = _input(tensor).to(self.dtype)
        return tensor if self.factor is None else tensor * self.factor

    def finish(self, output):
        """Finishes a result."""
        if self.divisor is not None:
            rounding = None if output.flat.is_floating_point() or output.flat.is_complex() else "trunc"
            output.flat.div_(self.divisor, rounding_mode=rounding)
        output.finish()


class Backend(_Backend):
    """A process group whose operations run on tradewind."""

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

    # torch asks an object of Python for these, and the inherited ones would ask it again, without an end.
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
        output = _Output(tensors)
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

    def _reduce_everywhere(self, tensors, options):
        """The request of an allreduce of tensors of one type, and what remains to be done."""
        reduction = _Reduction(options.reduceOp, tensors[0].dtype, self.size())
        output = _Output(tensors, reduction.dtype).fill()
        if reduction.factor is not None:
            output.flat.mul_(reduction.factor)
        request = self._communicator.iallreduce(IN_PLACE, output.memory, reduction.op)
        return request, functools.partial(reduction.finish, output)

    @_raises
    def reduce(self, tensors, options):
        root = options.rootRank
        reduction = _Reduction(options.reduceOp, tensors[0].dtype, self.size())
        if self.rank() != root:
            own = _memory(reduction.input(tensors[0]))
            return self._work([self._communicator.ireduce(own, None, reduction.op, root)], tensors, None, options)
        output = _Output(tensors, reduction.dtype).fill()
        if reduction.factor is not None:
            output.flat.mul_(reduction.factor)
        request = self._communicator.ireduce(IN_PLACE, output.memory, reduction.op, root)
        return self._work([request], tensors, lambda: reduction.finish(output), options)

    def _gather_everywhere(self, outputs, tensor):
        output, own = _Output(outputs), _input(tensor)
        # The module finds out that a block of the output is this rank's; any other part is copied.
        if own.data_ptr() != output.flat.data_ptr() + self.rank() * own.nbytes:
            own = _beside(own, output)
        return self._communicator.iallgather(_memory(own), output.memory), output.finish

    def _work_of(self, pairs, result, options):
        """One work of several requests, each with what remains to be done."""
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
        own = _memory(_input(inputs[0]))
        if self.rank() != options.rootRank:
            return self._work([self._communicator.igather(own, None, options.rootRank)], [], None, options)
        output = _Output(outputs[0])
        request = self._communicator.igather(own, output.memory, options.rootRank)
        return self._work([request], outputs[0], output.finish, options)

    @_raises
    def scatter(self, outputs, inputs, options):
        output = _Output(outputs)
        is_root = self.rank() == options.rootRank
        own = _memory(torch.cat([_input(tensor).view(-1) for tensor in inputs[0]])) if is_root else None
        request = self._communicator.iscatter(own, output.memory, options.rootRank)
        return self._work([request], outputs, output.finish, options)

    def _reduce_and_scatter(self, output, tensor, op):
        reduction = _Reduction(op, output.dtype, self.size())
        result = _Output([output], reduction.dtype)
        own = _memory(_beside(reduction.input(tensor), result))
        request = self._communicator.ireduce_scatter_block(own, result.memory, reduction.op)
        return request, lambda: reduction.finish(result)

    @_raises
    def reduce_scatter(self, outputs, inputs, options):
        flat = [torch.cat([_input(tensor).view(-1) for tensor in tensors]) for tensors in inputs]
        pairs = [self._reduce_and_scatter(*pair, options.reduceOp) for pair in zip(outputs, flat)]
        return self._work_of(pairs, outputs, options)

    @_raises
    def reduce_scatter_single(self, output, tensor, options):
        return self._work_of([self._reduce_and_scatter(output, tensor, options.reduceOp)], [output], options)

    @_raises
    def reduce_scatter_single_coalesced(self, outputs, inputs, options):
        pairs = [self._reduce_and_scatter(*pair, options.reduceOp) for pair in zip(outputs, inputs)]
        return self._work_of(pairs, outputs, options)

    @_raises
    def all_to_all_single(self, output, tensor, received, sent, options=None):
        result = _Output([output])
        own = _memory(_beside(tensor, result))
        # One call for equal parts and for others, which other ranks may have.
        counts = [_rows(tensor, sent, self.size()), _rows(output, received, self.size())]
        request = self._communicator.ialltoallv(own, *counts, result.memory)
        return self._work([request], [output], result.finish, options)

    @_raises
    def alltoall(self, outputs, inputs, options=None):
        result = _Output(outputs)
        # A copy, so that inputs may be outputs.
        own = torch.cat([_input(tensor).view(-1) for tensor in inputs])
        counts = [[tensor.numel() for tensor in tensors] for tensors in (inputs, outputs)]
        request = self._communicator.ialltoallv(_memory(own), *counts, result.memory)
        return self._work([request], outputs, result.finish, options)

    # Messages.

    @_raises
    def send(self, tensors, to, tag):
        return self._work([self._communicator.isend(_memory(_input(tensors[0])), to, tag)], tensors)

    @_raises
    def recv(self, tensors, source, tag):
        output = _Output(tensors)
        request = self._communicator.irecv(output.memory, source, tag)
        return self._work([request], tensors, output.finish)

    @_raises
    def recv_anysource(self, tensors, tag):
        output = _Output(tensors)
        request = self._communicator.irecv(output.memory, None, tag)
        return self._work([request], tensors, output.finish)


def _rows(tensor, splits, size):
    """Numbers of elements of blocks of rows."""
    rows = tensor.shape[0]
    if not splits and rows % size != 0:
        raise ValueError(f"a tensor of {rows} rows has no equal parts for {size} ranks: pass the sizes of parts")
    row = tensor.numel() // rows if rows else 0
    return [count * row for count in splits or [rows // size] * size]


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
