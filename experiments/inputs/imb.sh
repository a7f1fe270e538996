#!/bin/sh
# Intel MPI Benchmarks out of `imb.tar` (scripts/fetch-benchmark imb): `imb.sh RANKS LARGEST` measures
# ping-pong, exchange in both directions and sums over all ranks, for messages of up to 2^LARGEST
# bytes. By shared memory; in guests `vm1`, `vm2`, ... that a switch joins over TCP, a rank in each.
set -eu
ranks=$1 largest=$2
here=$PWD
tar xf imb.tar
export LD_LIBRARY_PATH="$here" I_MPI_ROOT="$here" I_MPI_PIN=off
hosts=$(sed -n 's/^\(vm[0-9]*\) .*/\1/p' /run/homenode-logins/hosts 2>/dev/null | tr '\n' ',')
if [ -n "$hosts" ]; then
    # Intel's MPI starts its own program there, by the logins that homenode made.
    for host in $(echo "$hosts" | tr ',' ' '); do
        [ "$host" = "$(cat /proc/sys/kernel/hostname)" ] ||
            ssh -F /run/homenode-logins/ssh.conf "$host" "cd '$here' && tar xf imb.tar"
    done
    export I_MPI_FABRICS=ofi I_MPI_OFI_LIBRARY_INTERNAL=0 FI_PROVIDER=tcp FI_TCP_IFACE=eth0
    set -- -hosts "${hosts%,}" -ppn 1 -bootstrap ssh -bootstrap-exec-args "-F /run/homenode-logins/ssh.conf"
else
    export I_MPI_FABRICS=shm
    set --
fi
./mpiexec.hydra "$@" -n "$ranks" ./IMB-MPI1 -npmin "$ranks" -msglog "$largest" -iter 200,20 -time 60 \
    PingPong Sendrecv Allreduce >said
# A line says which benchmark it is of.
awk '/^# Benchmarking/ { of = $3 } /^ +[0-9]+ / { print of, $0; next } 1' said
