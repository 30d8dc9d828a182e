// Prints the version of the MPI library.
#include "check.h"

int main(int argc, char **argv) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Init(&argc, &argv);
    MPI_Get_library_version(version, &length);
    puts(version);
    MPI_Finalize();
    return 0;
}
