//! Shared memory of one job: segments, arenas, futexes, process handles and the broker
