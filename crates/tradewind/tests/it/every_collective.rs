//! Every collective in every form, by every algorithm, against a plain reference: any number of
//! ranks and any root, odd and zero sizes, in place and not, private and shared buffers mixed
//! between the ranks, every kind of job.

#[macro_use]
mod harness;
mod blocks;
mod neighbours;
mod own_operations;
mod reductions;
