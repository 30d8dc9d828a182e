//! Ranks on several nodes, started by launchers other than MPICH's.

mod faults;
mod loops;
mod run;
mod slurm;
