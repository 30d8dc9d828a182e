"""Exceptions of tradewind."""


class Error(Exception):
    """An operation has failed; the base class of the others."""

    #: The rank that has failed, in errors of a failed rank.
    failed_rank = None


class RankFailedError(Error):
    """A rank has failed, left the job or raised an exception: `failed_rank`."""

    def __init__(self, text, failed_rank=None):
        super().__init__(text)
        self.failed_rank = failed_rank


class NodeUnreachableError(Error):
    """A node cannot be reached: `node` is its number in the job."""

    def __init__(self, text, node=None):
        super().__init__(text)
        self.node = node


class MismatchError(Error):
    """The ranks have called different collectives, or with lengths that do not fit together."""


class WaitTimeoutError(Error, TimeoutError):
    """A wait has reached its time limit. The text names the ranks that are awaited."""


class TruncatedError(Error, ValueError):
    """A message is longer than the array of its receive, which has its beginning."""


class ArgumentError(Error, ValueError):
    """An argument is outside its range, or an array does not fit the call."""


class ArrayError(Error, TypeError):
    """An array cannot be used: its type, its place, or its elements do not follow each other."""


class OutOfMemoryError(Error, MemoryError):
    """The shared memory of the job is full."""
