! Requests of Fortran's module mpi_f08: in place, with ignored statuses, mixed.
program modern
  use mpi_f08
  implicit none
  integer :: rank, size, own, total, again, received, least
  type(MPI_Request) :: requests(3)
  type(MPI_Status) :: status
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  own = rank + 1
  again = own
  call MPI_Irecv(received, 1, MPI_INTEGER, modulo(rank - 1, size), 5, MPI_COMM_WORLD, requests(1))
  call MPI_Iallreduce(own, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(2))
  call MPI_Isend(rank, 1, MPI_INTEGER, modulo(rank + 1, size), 5, MPI_COMM_WORLD, requests(3))
  call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE)
  call MPI_Iallreduce(MPI_IN_PLACE, again, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
  call MPI_Wait(requests(1), status)
  call MPI_Allreduce(own, least, 1, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD)
  call MPI_Barrier(MPI_COMM_WORLD)
  if (total /= size * (size + 1) / 2 .or. again /= total .or. received /= modulo(rank - 1, size) &
    .or. least /= 1) &
    call MPI_Abort(MPI_COMM_WORLD, 1)
  call MPI_Finalize()
end program
