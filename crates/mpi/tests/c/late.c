// A program that calls an MPI function, which only the preload library has, before it loads an MPI
// library, one of those that the arguments name. It looks the functions up by their names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int type = 0, request;
    int (*type_free)(int *);
    int (*init)(int *, char ***), (*finalize)(void);
    int (*barrier)(int, void *), (*wait)(void *, void *);
    *(void **)&type_free = dlsym(RTLD_DEFAULT, "MPI_Type_free");
    if (!type_free) return 2;
    type_free(&type);
    if (!dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) && !dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL))
        return fprintf(stderr, "%s\n", dlerror()), 3;
    *(void **)&init = dlsym(RTLD_DEFAULT, "MPI_Init");
    *(void **)&finalize = dlsym(RTLD_DEFAULT, "MPI_Finalize");
    *(void **)&barrier = dlsym(RTLD_DEFAULT, "MPI_Ibarrier");
    *(void **)&wait = dlsym(RTLD_DEFAULT, "MPI_Wait");
    init(&argc, &argv);
    // The handle of MPI_COMM_WORLD, and the address of MPI_STATUS_IGNORE, of MPICH.
    barrier(0x44000000, &request);
    if (wait(&request, (void *)1)) return 4;
    return finalize();
}
