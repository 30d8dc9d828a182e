"""Requests that tasks of asyncio await."""

import asyncio


def iterator(request):
    """The iterator of `await request`."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def complete(request):
        try:
            loop.call_soon_threadsafe(resolve, future, request)
        except RuntimeError:
            # The loop has been closed, and with it the task.
            pass

    request.on_complete(complete)
    return future.__await__()


def resolve(future, request):
    """Gives the result of a request that has ended to a future, unless its task was cancelled."""
    if future.done():
        return
    try:
        future.set_result(request.wait())
    except Exception as error:
        future.set_exception(error)
