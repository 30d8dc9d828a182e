"""Memory of tensors, and reductions of them."""

import torch
from torch.distributed import ReduceOp

import tradewind
from tradewind import Memory

NAMES = {
    torch.bool: "bool8",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
    torch.uint64: "uint64",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}

OPS = {
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

# The sum of booleans is true if one of them is.
OPS_ON_BOOL = {tradewind.SUM: tradewind.OR, tradewind.PRODUCT: tradewind.AND}

# Types that are combined in single precision.
HALF = (torch.float16, torch.bfloat16)


def memory_of(tensor):
    """The memory of a contiguous tensor."""
    size = tensor.element_size()
    name = NAMES.get(tensor.dtype) or f"bytes{8 * size}"
    return Memory(tensor.data_ptr(), tensor.numel() * size, name, tensor)


def checked(tensor):
    if tensor.device.type != "cpu":
        text = f"tradewind has no operations on tensors of {tensor.device}: copy them to the processor"
        raise ValueError(text)
    if tensor.layout != torch.strided:
        raise ValueError(f"tradewind has no operations on {tensor.layout} tensors: make them dense")
    return tensor


def contiguous(tensor):
    """The tensor, or a contiguous copy."""
    return checked(tensor).detach().contiguous()


def flattened(tensors):
    """The elements of all tensors in a new one."""
    return torch.cat([contiguous(tensor).view(-1) for tensor in tensors])


def beside(tensor, output):
    """A contiguous tensor that shares no memory with an output."""
    tensor = contiguous(tensor)
    begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    other = output.flat.data_ptr(), output.flat.data_ptr() + output.flat.nbytes
    return tensor.clone() if begin < other[1] and other[0] < end else tensor


def rows_of(tensor, splits, size):
    """Numbers of elements of blocks of rows."""
    rows = tensor.shape[0]
    if not splits and rows % size != 0:
        raise ValueError(f"a tensor of {rows} rows has no equal parts for {size} ranks: pass the sizes of parts")
    row = tensor.numel() // rows if rows else 0
    return [count * row for count in splits or [rows // size] * size]


class Output:
    """Contiguous memory for the results of some tensors, which are copied to them if it is not theirs."""

    def __init__(self, tensors, dtype=None):
        self.tensors = [checked(tensor).detach() for tensor in tensors]
        first = self.tensors[0]
        dtype = dtype or first.dtype
        self.is_own = len(self.tensors) == 1 and first.is_contiguous() and dtype == first.dtype
        count = sum(tensor.numel() for tensor in self.tensors)
        self.flat = first if self.is_own else torch.empty(count, dtype=dtype)
        self.memory = memory_of(self.flat)

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


class Reduction:
    """The operation of a reduction on tensors of a type."""

    def __init__(self, op, dtype, size):
        kind = op.op if hasattr(op, "op") else op
        kind = next((known for known in OPS if known == kind), None)
        if kind is None:
            raise ValueError(f"tradewind has no operation {op}")
        self.op = OPS[kind]
        if dtype == torch.bool:
            self.op = OPS_ON_BOOL.get(self.op, self.op)
        self.dtype = torch.float32 if dtype in HALF else dtype
        self.divisor = size if kind == ReduceOp.AVG else None
        self.factor = op.__getstate__()[1] if kind == ReduceOp.PREMUL_SUM else None
        is_integer = not (dtype.is_floating_point or dtype.is_complex)
        if (self.divisor and dtype == torch.bool) or (self.factor is not None and is_integer):
            raise ValueError(f"{kind} does not apply to {dtype}: convert the tensor to a floating-point type")

    def input(self, tensor):
        """A contiguous tensor of the operands."""
        tensor = contiguous(tensor).to(self.dtype)
        return tensor if self.factor is None else tensor * self.factor

    def output(self, tensors):
        """The memory for the results of tensors, filled with the operands."""
        output = Output(tensors, self.dtype).fill()
        if self.factor is not None:
            output.flat.mul_(self.factor)
        return output

    def finish(self, output):
        """Finishes a result."""
        if self.divisor is not None:
            rounding = None if output.flat.is_floating_point() or output.flat.is_complex() else "trunc"
            output.flat.div_(self.divisor, rounding_mode=rounding)
        output.finish()
