// Thousands of outstanding collectives, completed in four orders, with checked sums.
#include "../../../../bench/mpi/outstanding.c"
