#!/usr/bin/env bash
# Builds the wheel as `pip install .` does, installs it in a fresh environment beside numpy, mpi4py and
# MPICH, and runs small programs there: with the module, and one of MPI. The collectives of that must
# run on tradewind.
#
#     python/check.sh [PROFILE]
#
# PROFILE is a profile of cargo: release unless given. Needs the network for packages of Python.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export WHEEL_PROFILE=${1:-release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/environment"
export PATH=$work/environment/bin:$PATH
pip install --quiet numpy mpi4py mpich
pip wheel --quiet --no-deps --wheel-dir "$work" "$root"
wheel=$(echo "$work"/tradewind-*.whl)
pip install --quiet "$wheel"

# The command and the library need no later glibc than the tag says. maturin has checked the module.
tagged=$(basename "$wheel" | sed 's/.*manylinux_\([0-9]*\)_\([0-9]*\)_.*/\1.\2/')
for file in "$(command -v tradewind)" "$(tradewind mpi --library)"; do
    needed=$(objdump -T "$file" | grep --only-matching 'GLIBC_[0-9.]*' |
        sed s/GLIBC_// | sort --version-sort | tail --lines 1)
    [ "$(printf '%s\n' "$needed" "$tagged" | sort --version-sort | tail --lines 1)" = "$tagged" ] || {
        echo "$file needs glibc $needed, but the wheel is tagged $(basename "$wheel")" >&2
        exit 1
    }
done

cat > "$work/module.py" << 'PROGRAM'
import numpy as np
import tradewind as tw

world = tw.world()
request = world.iallreduce(np.full(3, world.rank + 1.0))
total = request.wait()
assert list(total) == [world.size * (world.size + 1) / 2] * 3, total
PROGRAM
(cd "$work" && timeout 60 tradewind run -n 2 -- python module.py)

cat > "$work/program.py" << 'PROGRAM'
from array import array
from mpi4py import MPI

world = MPI.COMM_WORLD
own, total = array("d", [1.0 + world.rank]), array("d", [0.0])
for _ in range(100):
    world.Iallreduce(own, total, MPI.SUM).Wait()
assert total[0] == world.size * (world.size + 1) / 2, total
PROGRAM
cd "$work"
export LD_LIBRARY_PATH=$work/environment/lib
for command in "tradewind mpi --report --only iallreduce -- mpiexec -n 2 python program.py" \
    "mpiexec -n 2 python -m tradewind mpi --report --only iallreduce -- python program.py"; do
    # The words of the command are separate arguments.
    # shellcheck disable=SC2086
    report=$(timeout 60 $command 2>&1) || { echo "$report" >&2; exit 1; }
    echo "$report"
    grep --quiet 'MPI_Iallreduce  *200  *0 ' <<< "$report" || {
        echo "$command: no calls ran on tradewind" >&2
        exit 1
    }
done
echo "$(basename "$wheel"): passed"
