// A library in front of the MPI library, in which the publication of names with the end WITHHELD
// fails.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

typedef int Publish(const char *, MPI_Info, const char *);

int PMPI_Publish_name(const char *name, MPI_Info info, const char *port) {
    const char *end = getenv("WITHHELD");
    size_t length = strlen(name);
    if (end && length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0)
        return MPI_ERR_OTHER;
    Publish *publish = (Publish *)dlsym(RTLD_NEXT, "PMPI_Publish_name");
    return publish(name, info, port);
}
