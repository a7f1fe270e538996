# What the kernel's cache-aware scheduling does with VMs: runs inside the lab (bench/llc-balancing).
#
# The VMs are emulated: a processor that is not the first was seen not to start under KVM in there,
# and to the host's scheduler a vCPU is a thread in either case.
#
# VMs whose vCPUs all spin live on the nodes of a machine with two caches of 4 CPUs a node. Every
# half second the CPU where each vCPU last ran is read from /proc/PID/task/*/stat.
. /lab/functions

knob=/sys/kernel/debug/sched/llc_balancing
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
echo "kernel $(uname -r)"
[ -e $knob/enabled ] || { echo "SKIP this kernel has no $knob"; exit; }
for file in "$knob"/*; do echo "${file##*/} $(cat "$file")"; done
homenode topology | sed -n 3p

samples=20
# hex LIST: 0-7 as a mask for taskset.
hex() { printf "%x" $(((1 << (${1#*-} + 1)) - (1 << ${1%-*}))); }
# spin NAME VCPUS NODES: its number is in $pid. Memory is bound, as homenode binds it.
spin() {
    qemu-system-x86_64 -accel tcg,thread=multi -bios /tmp/busy-vcpus.rom -display none -nodefaults -no-user-config \
        -daemonize -name "$1,debug-threads=on" -pidfile "/tmp/$1.pid" -machine q35,memory-backend=m0 -m 32 \
        -smp "$2" -object "memory-backend-ram,id=m0,size=32M,prealloc=on,host-nodes=$3,policy=bind" ||
        echo "FAIL $1 starts"
    pid=$(cat "/tmp/$1.pid")
}
# bind PID VCPU CPUS
bind() {
    for task in /proc/"$1"/task/*; do
        [ "$(cat "$task/comm")" != "CPU $2/TCG" ] || taskset -p "$(hex "$3")" "${task##*/}" >/dev/null
    done
}
# watch WHAT PID...: per vCPU the part of its samples under each cache, and how often it changed.
watch() {
    what=$1
    shift
    for _ in $(seq $samples); do
        for pid in "$@"; do cat /proc/"$pid"/task/*/stat; done
        read -r up _ </proc/uptime
        echo "end $up"
        sleep 0.5
    done | grep -E 'CPU [0-9]+/TCG|^end' >/tmp/samples
    awk -v what="$what" -v pids="$*" '
        BEGIN { count = split(pids, order, " ") }
        /^end/ { samples++; if (began == "") began = $2; ended = $2; first = ""; same = 1
            for (vcpu in now) { if (first == "") first = now[vcpu]; else if (now[vcpu] != first) same = 0 }
            together += same; delete now; next }
        { match($0, /CPU [0-9]+/); vcpu = $1 "." substr($0, RSTART + 4, RLENGTH - 4)
          sub(/.*\) /, ""); cache = int($37 / 4); now[vcpu] = cache; seen[vcpu, cache]++; all[vcpu]++
          if (all[vcpu] == 1) first_ticks[vcpu] = $12 + $13
          ticks[vcpu] = $12 + $13
          if (all[vcpu] > 1 && cache != last[vcpu]) moves++
          last[vcpu] = cache }
        END { for (vcpu in all) busy += ticks[vcpu] - first_ticks[vcpu]
            printf "%s: all under one cache %d %%, changes of cache %d, CPUs used %.1f;", what, 100 * together / samples, moves, busy / 100 / (ended - began)
            for (vcpu in all) { printf " vCPU %s:", vcpu
                for (cache = 0; cache < 4; cache++) if (seen[vcpu, cache]) printf " %d/%d", cache, 100 * seen[vcpu, cache] / all[vcpu] }
            printf "\n" }' /tmp/samples
}
finish() { for name in "$@"; do kill "$(cat "/tmp/$name.pid")"; done; sleep 1; }

for numa in $(cat /tmp/numa-balancing); do
echo "$numa" >/proc/sys/kernel/numa_balancing
for enabled in 1 0; do
    echo $enabled >$knob/enabled
    now="llc_balancing $enabled, numa_balancing $numa"

    spin floats 2 0
    bind "$pid" 0 0-3; bind "$pid" 1 4-7; sleep 2
    bind "$pid" 0 0-7; bind "$pid" 1 0-7
    watch "$now: 2 vCPUs float on node 0, begun apart" "$pid"
    bind "$pid" 0 0-3; bind "$pid" 1 4-7; sleep 1
    watch "$now: the same, a cache each (own)" "$pid"
    finish floats

    spin wide 4 0-1
    bind "$pid" 0 0-3; bind "$pid" 1 4-7; bind "$pid" 2 8-11; bind "$pid" 3 12-15; sleep 2
    bind "$pid" 0 0-7; bind "$pid" 1 0-7; bind "$pid" 2 8-15; bind "$pid" 3 8-15
    watch "$now: clients of 2 vCPUs on nodes 0 and 1, begun apart" "$pid"
    bind "$pid" 0 0-3; bind "$pid" 1 0-3; bind "$pid" 2 12-15; bind "$pid" 3 12-15; sleep 1
    watch "$now: the same, a cache for each client (auto)" "$pid"
    finish wide

    spin one 2 0; one=$pid
    spin two 2 0; two=$pid
    for vm in $one $two; do bind "$vm" 0 0-3; bind "$vm" 1 4-7; done; sleep 2
    for vm in $one $two; do bind "$vm" 0 0-7; bind "$vm" 1 0-7; done
    watch "$now: two VMs of 2 vCPUs float on node 0, mixed at first" "$one" "$two"
    finish one two
done
done
