! Requests of the older interface of Fortran: in place, with ignored statuses, mixed.
program older
  implicit none
  include 'mpif.h'
  integer :: rank, size, own, total, again, received, least
  integer :: requests(3), ierror
  integer :: status(MPI_STATUS_SIZE)
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  own = rank + 1
  again = own
  call MPI_Irecv(received, 1, MPI_INTEGER, modulo(rank - 1, size), 5, MPI_COMM_WORLD, requests(1), ierror)
  call MPI_Iallreduce(own, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(2), ierror)
  call MPI_Isend(rank, 1, MPI_INTEGER, modulo(rank + 1, size), 5, MPI_COMM_WORLD, requests(3), ierror)
  call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, ierror)
  call MPI_Iallreduce(MPI_IN_PLACE, again, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1), ierror)
  call MPI_Wait(requests(1), status, ierror)
  call MPI_Allreduce(own, least, 1, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, ierror)
  call MPI_Barrier(MPI_COMM_WORLD, ierror)
  if (total /= size * (size + 1) / 2 .or. again /= total .or. received /= modulo(rank - 1, size) &
    .or. least /= 1) &
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  call MPI_Finalize(ierror)
end program
