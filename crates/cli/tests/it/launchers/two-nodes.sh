#!/bin/bash
# Runs a command beside a Slurm of two nodes on this machine: one controller and two slurmd, each in
# a network namespace of its own, joined by a bridge.
#
#   two-nodes.sh PROCTRACK SECONDS COMMAND...
#   two-nodes.sh cgroup 60 srun --mpi=pmi2 -N2 -n4 ./program
#
# Everything lives in a process, a mount and a network namespace of its own, which end with the
# command or after the time. The exit status is that of the command.
set -euo pipefail
proctrack=$1 limit=$2
shift 2
export PATH=$PATH:/usr/sbin:/sbin

if [ -z "${INSIDE:-}" ]; then
    work=$(mktemp -d /tmp/slurm-two-nodes.XXXXXX)
    chmod 755 "$work"
    before=$(ls -d /sys/fs/cgroup/freezer/slurm* 2>/dev/null || true)
    status=0
    # --kill-child: the end of unshare ends the first process of the namespace, and with it all others.
    INSIDE=$work timeout --foreground --kill-after=5 "$limit" \
        unshare --net --mount --pid --fork --kill-child --mount-proc -- \
        bash "$0" "$proctrack" "$limit" "$@" || status=$?
    # The directories of proctrack/cgroup, deepest first; their processes have ended. Without
    # proctrack/cgroup there is none, and one that is there belongs to a Slurm that still runs.
    if [ "$proctrack" = cgroup ]; then
        for cgroup in $(ls -d /sys/fs/cgroup/freezer/slurm* 2>/dev/null || true); do
            grep -qxF "$cgroup" <<<"$before" ||
                find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
        done
    fi
    rm -rf "$work"
    exit $status
fi

work=$INSIDE
unset INSIDE
export SLURM_CONF=$work/slurm.conf
host=$(hostname -s)

# This namespace has the controller and srun; the nodes are behind a bridge.
ip link set lo up
ip link add hub type bridge
ip addr add 10.93.0.254/24 dev hub
ip link set hub up
cp /etc/hosts "$work/hosts"
for node in 1 2; do
    touch "$work/net$node"
    unshare --net="$work/net$node" true
    ip link add "port$node" master hub type veth peer name eth0 netns "$work/net$node"
    ip link set "port$node" up
    nsenter --net="$work/net$node" ip link set lo up
    nsenter --net="$work/net$node" ip addr add "10.93.0.$node/24" dev eth0
    nsenter --net="$work/net$node" ip link set eth0 up
done
printf '10.93.0.1 left\n10.93.0.2 right\n' >>"$work/hosts"
mount --bind "$work/hosts" /etc/hosts

(umask 077; head -c 1024 /dev/urandom >"$work/munge.key")
mkdir -m 755 "$work/munge" "$work/state" "$work/spool"
mkdir -p "$work"/{spool,tmp}/{left,right}
munged --foreground --force --num-threads=2 --key-file="$work/munge.key" \
    --socket="$work/munge/socket" --pid-file="$work/munge/pid" --log-file="$work/munge/log" \
    --seed-file="$work/munge/seed" >"$work/munged.out" 2>&1 &

cat >"$SLURM_CONF" <<END
ClusterName=two
SlurmctldHost=$host(10.93.0.254)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
TmpFS=$work/tmp/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.%n.log
ProctrackType=proctrack/$proctrack
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
KillWait=5
ReturnToService=2
NodeName=left NodeHostname=$host NodeAddr=10.93.0.1 Port=16821 CPUs=8 State=UNKNOWN
NodeName=right NodeHostname=$host NodeAddr=10.93.0.2 Port=16822 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=left,right Default=YES State=UP OverSubscribe=FORCE
END
cat >"$work/cgroup.conf" <<END
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
END

for _ in $(seq 50); do [ -S "$work/munge/socket" ] && break; sleep 0.1; done
slurmctld -D -c -f "$SLURM_CONF" >"$work/slurmctld.out" 2>&1 &
# nsenter and not «ip netns exec», which would hide the cgroup file systems under a new /sys.
nsenter --net="$work/net1" slurmd -D -N left -f "$SLURM_CONF" >"$work/left.out" 2>&1 &
nsenter --net="$work/net2" slurmd -D -N right -f "$SLURM_CONF" >"$work/right.out" 2>&1 &

up() { [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; }
for _ in $(seq 100); do up && break; sleep 0.1; done
if ! up; then
    echo "the two nodes did not come up:" >&2
    tail -n 5 "$work"/*.out "$work"/*.log >&2
    exit 1
fi
status=0
"$@" || status=$?
exit $status
