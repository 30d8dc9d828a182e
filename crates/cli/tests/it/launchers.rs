//! Ranks on several nodes, started by launchers other than MPICH's.

mod fabric;
mod faults;
mod loops;
mod reachable;
mod run;
mod slurm;
mod table;
