// A short job in a process with settings of its own, which tradewind must neither need nor change.
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static volatile sig_atomic_t ended, reaped;

static void count(int signal) { ended++; }

static void reap(int signal) {
    while (waitpid(-1, NULL, WNOHANG) > 0) reaped++;
}

static void on_end_of_child(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
}

// The system refuses this call from now on, or where `domain` is not negative those calls that have
// it as their first argument.
static void forbid(int call, int domain) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | (domain < 0 ? BPF_JGE : BPF_JEQ) | BPF_K, domain < 0 ? 0 : domain, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void set(const char *setting) {
    static const struct {
        const char *name;
        int call, domain;
    } refused[] = {
        {"no-local-sockets", __NR_socket, AF_UNIX}, {"no-processes", __NR_clone, -1},
        {"no-programs", __NR_execve, -1},           {"no-handles", __NR_pidfd_open, -1},
        {"no-barriers", __NR_membarrier, -1},       {"no-memory-files", __NR_memfd_create, -1},
        {"no-events", __NR_epoll_create1, -1},      {"no-signals", __NR_kill, -1},
    };
    if (!strcmp(setting, "handled")) on_end_of_child(count, 0);
    if (!strcmp(setting, "reaped")) on_end_of_child(reap, 0);
    if (!strcmp(setting, "not-waited-for")) on_end_of_child(SIG_DFL, SA_NOCLDWAIT);
    if (!strcmp(setting, "not-dumpable")) CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    if (!strcmp(setting, "reaper-of-orphans")) CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strcmp(setting, refused[i].name)) forbid(refused[i].call, refused[i].domain);
}

int main(int argc, char **argv) {
    const char *setting = argc > 1 ? argv[1] : "";
    set(setting);
    start(&argc, &argv, MPI_THREAD_SINGLE);
    for (int i = 0; i < 20; i++) {
        int value = rank + i, sum = -1;
        MPI_Request request;
        MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == size * (size - 1) / 2 + i * size);
    }
    enum { LONG = 1 << 18 };
    char *part = malloc(LONG), *all = malloc((size_t)LONG * size);
    memset(part, rank + 1, LONG);
    for (int i = 0; i < 2; i++) {
        MPI_Comm same;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &same);
        MPI_Iallgather(part, LONG, MPI_CHAR, all, LONG, MPI_CHAR, same, &request);
        MPI_Comm_free(&same);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int r = 0; r < size; r++) CHECK(all[(size_t)r * LONG + 77] == r + 1);
    }
    free(part);
    free(all);
    // The program has no child, and has heard of none. The first process of a namespace is the parent
    // of all orphans.
    CHECK(getpid() == 1 || (waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD));
    CHECK(!ended && !reaped);
    if (rank == 0) printf("%d ranks\n", size);
    MPI_Finalize();
    return 0;
}
