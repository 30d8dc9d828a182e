"""Objects of Python as messages and in collectives, by pickle.

Long buffers, such as the elements of an array, are messages of their own, without a copy in the pickle.
"""

import pickle
import struct

# Bytes of the first message of an object, at most: a short object is one message.
FIRST = 4096

# First byte of the first message. Behind it is the object, or the lengths of its pickle and its buffers.
WHOLE, PARTS = b"\0", b"\1"

# Buffers that are messages of their own, at most.
MOST_BUFFERS = 256


def split(value):
    """The pickle of a value, and the buffers that it lacks."""
    buffers = []

    def takes(buffer):
        # True keeps it in the pickle.
        if len(buffers) == MOST_BUFFERS or buffer.raw().nbytes < FIRST:
            return True
        buffers.append(buffer.raw())
        return False

    return pickle.dumps(value, protocol=5, buffer_callback=takes), buffers


def send_object(self, value, to, tag=0):
    """Sends an object that pickle takes to rank `to`."""
    data, buffers = split(value)
    if not buffers and len(data) < FIRST:
        return self.send(WHOLE + data, to, tag)
    lengths = [len(data), *(buffer.nbytes for buffer in buffers)]
    self.send(PARTS + struct.pack(f"<{len(lengths)}Q", *lengths), to, tag)
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
    parts = [bytearray(length) for (length,) in struct.iter_unpack("<Q", content)]
    requests = [self.irecv(part, status.source, status.tag) for part in parts]
    for request in requests:
        request.wait()
    return pickle.loads(parts[0], buffers=parts[1:]), status


def bcast_object(self, value, root=0):
    """Sends the root's object to all ranks, and returns it."""
    data = pickle.dumps(value, protocol=5) if self.rank == root else b""
    length = bytearray(struct.pack("<Q", len(data)))
    self.bcast(length, root)
    data = data or bytearray(struct.unpack("<Q", length)[0])
    self.bcast(data, root)
    return value if self.rank == root else pickle.loads(data)


def unpacked(data, counts, received, run):
    """Runs a collective of blocks of bytes, and returns the values of the received ones."""
    whole = bytearray(sum(received))
    run(data, counts, received, whole)
    values, view, begin = [], memoryview(whole), 0
    for length in received:
        values.append(pickle.loads(view[begin : begin + length]))
        begin += length
    return values


def alltoall_object(self, values):
    """Sends value r of a sequence to rank r, and returns those of all ranks for this one."""
    if len(values) != self.size:
        raise ValueError(f"alltoall_object has {len(values)} values for {self.size} ranks: pass one for each")
    parts = [pickle.dumps(value, protocol=5) for value in values]
    counts = [len(part) for part in parts]
    lengths = bytearray(8 * self.size)
    self.alltoall(struct.pack(f"<{self.size}Q", *counts), lengths)
    received = list(struct.unpack(f"<{self.size}Q", lengths))
    return unpacked(b"".join(parts), counts, received, self.alltoallv)


def allgather_object(self, value):
    """Returns the values of all ranks, in a list."""
    data = pickle.dumps(value, protocol=5)
    lengths = bytearray(8 * self.size)
    self.allgather(struct.pack("<Q", len(data)), lengths)
    counts = list(struct.unpack(f"<{self.size}Q", lengths))

    def gather(data, _counts, received, whole):
        self.allgatherv(data, received, whole)

    return unpacked(data, [], counts, gather)


def gather_object(self, value, root=0):
    """Returns the values of all ranks at the root, in a list, and `None` elsewhere."""
    data = pickle.dumps(value, protocol=5)
    is_root = self.rank == root
    lengths = bytearray(8 * self.size) if is_root else None
    self.gather(struct.pack("<Q", len(data)), lengths, root)
    if not is_root:
        self.gatherv(data, root=root)
        return None

    def gather(data, _counts, received, whole):
        self.gatherv(data, received, whole, root)

    return unpacked(data, [], list(struct.unpack(f"<{self.size}Q", lengths)), gather)


def scatter_object(self, values, root=0):
    """Sends value r of the root's sequence to rank r, and returns it there."""
    parts = counts = None
    if self.rank == root:
        if len(values) != self.size:
            text = f"scatter_object has {len(values)} values for {self.size} ranks: pass one for each"
            raise ValueError(text)
        parts = [pickle.dumps(value, protocol=5) for value in values]
        counts = [len(part) for part in parts]
    length = bytearray(8)
    packed = struct.pack(f"<{self.size}Q", *counts) if counts else None
    self.scatter(packed, length, root)
    own = bytearray(struct.unpack("<Q", length)[0])
    self.scatterv(b"".join(parts) if parts else None, counts, own, root)
    return pickle.loads(own)


METHODS = [
    send_object,
    recv_object,
    bcast_object,
    alltoall_object,
    allgather_object,
    gather_object,
    scatter_object,
]
