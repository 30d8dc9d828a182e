// A symbol of Open MPI, as a process has beside the standard ABI of a library that offers both.
char ompi_mpi_comm_world[8];
