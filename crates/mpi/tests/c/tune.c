// Measures the blocking collectives for the table whose file is the argument; it keeps rows that other
// processes disturb, for tests run beside others.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static void show(const char *text) {
    fputs(text, stdout);
}

int main(int argc, char **argv) {
    int (*tune)(const char *, double, int, void (*)(const char *)) =
        (int (*)(const char *, double, int, void (*)(const char *)))dlsym(RTLD_DEFAULT,
                                                                          "tradewind_mpi_tune");
    // The name makes the linker keep the MPI library.
    return argc == 2 && tune ? tune(argv[1], 1, 1, show) : MPI_Abort(MPI_COMM_WORLD, 1);
}
