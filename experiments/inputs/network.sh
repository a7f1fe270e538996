#!/bin/sh
# Both ends of a measurement on this system's loopback. `netpipe ARGUMENTS...` runs NetPIPE over
# TCP, `mpi ARGUMENTS...` by MPI through shared memory. `sockperf RATES...` sends so many messages of
# 64 bytes a second over TCP whether or not answers have come (an open loop), and says how long a
# message takes one way. In guests `vm1` and `vm2`, which a switch joins, `netpipe` runs between the two, one
# direction after the other: each says what it saw as the sender.
set -u
what=$1
shift
# A port of this run: others may measure beside it.
port=$((20000 + $$ % 12000))
server=
trap 'kill $server 2>/dev/null' EXIT

# Runs the client, again until the server listens: in another guest that may take long.
client() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        if [ $tries -ge 3000 ] || { [ -n "$server" ] && ! kill -0 "$server" 2>/dev/null; }; then
            echo "network.sh: $1 cannot reach its other end" >&2
            exit 1
        fi
        sleep 0.1
    done
}

# What the other guest receives from this one, and what this one receives.
sends() {
    client NPtcp -h "$1" -P "$2" $arguments -o /dev/null 2>&1
}
receives() {
    if ! NPtcp -P "$1" $arguments -o /dev/null >received 2>&1; then
        tail -n 5 received >&2
        exit 1
    fi
}

# sockperf ends with status 0 too where it cannot connect.
load() {
    sockperf under-load --tcp -i 127.0.0.1 -p $port --mps "$1" --reply-every 10 --msg-size 64 --no-rdtsc \
        -t 2 >said 2>&1
    grep 'dropped messages\|percentile' said
}

arguments=$*
case $what-$(cat /proc/sys/kernel/hostname) in
netpipe-vm1)
    receives 5002
    sends vm2 5003
    exit
    ;;
netpipe-vm2)
    sends vm1 5002
    receives 5003
    exit
    ;;
esac

case $what in
mpi)
    # Its figures are on standard error. What both ranks say on standard output came, in 1 of 100
    # runs, in the midst of one of their lines.
    exec mpirun --oversubscribe -np 2 --mca btl vader,self NPopenmpi "$@" -o /dev/null 2>&1 >/dev/null
    ;;
netpipe)
    NPtcp -P $port "$@" -o /dev/null >/dev/null 2>&1 &
    server=$!
    client NPtcp -h 127.0.0.1 -P $port "$@" -o /dev/null 2>&1
    ;;
sockperf)
    sockperf server --tcp -i 127.0.0.1 -p $port >/dev/null 2>&1 &
    server=$!
    for rate in "$@"; do
        said=$(client load "$rate") || exit 1
        if ! echo "$said" | grep -q '# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0'; then
            echo "$said"
            exit 1
        fi
        half=$(echo "$said" | sed -n 's/.*percentile 50.000 = *\([0-9.]*\).*/\1/p')
        most=$(echo "$said" | sed -n 's/.*percentile 99.000 = *\([0-9.]*\).*/\1/p')
        echo "at $rate messages a second: 50 % within $half us, 99 % within $most us"
    done
    ;;
*)
    echo "network.sh: $what: write netpipe, mpi or sockperf" >&2
    exit 2
    ;;
esac
