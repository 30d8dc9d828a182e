"""Objects of Python as messages and in collectives, by pickle.

Long buffers, such as the elements of an array, are messages of their own, without a copy in the pickle.
"""

import itertools
import pickle
import struct

# Bytes of the first message of an object, at most: a short object is one message.
FIRST = 4096

# First byte of the first message. Behind it is the object, or the lengths of its pickle and its buffers.
WHOLE, PARTS = b"\0", b"\1"

# Buffers that are messages of their own, at most.
MOST_BUFFERS = 256


def pack(value, takes=None):
    """The pickle of a value, without the buffers that `takes` returns false for."""
    return pickle.dumps(value, protocol=5, buffer_callback=takes)


def pack_numbers(numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def unpack_numbers(data):
    return [number for (number,) in struct.iter_unpack("<Q", data)]


def pack_for_ranks(communicator, values, call):
    """The pickles of a value for each rank, one behind the other, and their lengths."""
    if len(values) != communicator.size:
        text = f"{call} has {len(values)} values for {communicator.size} ranks: pass one for each"
        raise ValueError(text)
    parts = [pack(value) for value in values]
    return b"".join(parts), [len(part) for part in parts]


def space_for(lengths):
    """The lengths of pickles, which are packed, and space for all of them."""
    counts = unpack_numbers(lengths)
    return counts, bytearray(sum(counts))


def unpack_all(data, counts):
    """The values of pickles that lie one behind the other."""
    view = memoryview(data)
    ends = itertools.accumulate(counts)
    return [pickle.loads(view[end - count : end]) for count, end in zip(counts, ends)]


def split(value):
    """The pickle of a value, and the buffers that it lacks."""
    buffers = []

    def takes(buffer):
        # True keeps it in the pickle.
        if len(buffers) == MOST_BUFFERS or buffer.raw().nbytes < FIRST:
            return True
        buffers.append(buffer.raw())
        return False

    return pack(value, takes), buffers


def send_object(self, value, to, tag=0):
    """Sends an object that pickle takes to rank `to`."""
    data, buffers = split(value)
    if not buffers and len(data) < FIRST:
        return self.send(WHOLE + data, to, tag)
    lengths = [len(data), *(buffer.nbytes for buffer in buffers)]
    self.send(PARTS + pack_numbers(lengths), to, tag)
    requests = [self.isend(part, to, tag) for part in (data, *buffers)]
    for request in requests:
        request.wait()


def recv_object(self, source=None, tag=None):
    """Receives an object, and returns it with its `Status`, of any rank or tag if none is given.

    Threads that receive from one rank with one tag take turns: a long object has several messages.
    """
    first = bytearray(FIRST)
    status = self.recv(first, source, tag)
    content = memoryview(first)[1 : status.bytes]
    if first[:1] == WHOLE:
        return pickle.loads(content), status
    parts = [bytearray(length) for length in unpack_numbers(content)]
    requests = [self.irecv(part, status.source, status.tag) for part in parts]
    for request in requests:
        request.wait()
    return pickle.loads(parts[0], buffers=parts[1:]), status


def bcast_object(self, value, root=0):
    """Sends the root's object to all ranks, and returns it."""
    is_root = self.rank == root
    data = pack(value) if is_root else b""
    length = bytearray(pack_numbers([len(data)]))
    self.bcast(length, root)
    if not is_root:
        _, data = space_for(length)
    self.bcast(data, root)
    return value if is_root else pickle.loads(data)


def alltoall_object(self, values):
    """Sends value r of a sequence to rank r, and returns the values that all ranks have sent to this one."""
    data, counts = pack_for_ranks(self, values, "alltoall_object")
    lengths = bytearray(8 * self.size)
    self.alltoall(pack_numbers(counts), lengths)
    received, whole = space_for(lengths)
    self.alltoallv(data, counts, received, whole)
    return unpack_all(whole, received)


def allgather_object(self, value):
    """Returns the values of all ranks, in a list."""
    data = pack(value)
    lengths = bytearray(8 * self.size)
    self.allgather(pack_numbers([len(data)]), lengths)
    counts, whole = space_for(lengths)
    self.allgatherv(data, counts, whole)
    return unpack_all(whole, counts)


def gather_object(self, value, root=0):
    """Returns the values of all ranks at the root, in a list, and `None` elsewhere."""
    data = pack(value)
    is_root = self.rank == root
    lengths = bytearray(8 * self.size) if is_root else None
    self.gather(pack_numbers([len(data)]), lengths, root)
    counts, whole = space_for(lengths) if is_root else (None, None)
    self.gatherv(data, counts, whole, root)
    return unpack_all(whole, counts) if is_root else None


def scatter_object(self, values, root=0):
    """Sends value r of the root's sequence to rank r, and returns it there."""
    data = counts = None
    if self.rank == root:
        data, counts = pack_for_ranks(self, values, "scatter_object")
    length = bytearray(8)
    self.scatter(pack_numbers(counts) if counts else None, length, root)
    _, space = space_for(length)
    self.scatterv(data, counts, space, root)
    return pickle.loads(space)


METHODS = [
    send_object,
    recv_object,
    bcast_object,
    alltoall_object,
    allgather_object,
    gather_object,
    scatter_object,
]
