# One policy of bench/compare-in-lab, inside the lab: $policy is set by what comes before this text, /tmp/esxi.toml is there.
# The trace: VMs of 320 MiB; a good policy keeps all of each on one node. Columns: name, start [s], vCPUs, CPU wanted by each [%], life [s].
cat >/tmp/trace <<'END'
a  0 2 60 54
b  3 2 30 19
c  6 1 55 30
d  9 1 55 44
e 12 2 60 40
f 24 1 55 28
g 27 1 55 25
h 38 1 55 15
END
memory_mib=320

say() { echo "LOG $policy $*"; }
# vm NAME VCPUS PERCENT SECONDS COUNT: starts it as the policy says, COUNT VMs came before; returns when it ends.
vm() {
    place=
    case $policy in
        static-pins) place="numactl --cpunodebind=$(($5 % 4))" ;;
        numad-one-shot)
            # libvirt's `placement='auto'`: numad's advice for vCPUs and memory, threads on those nodes, memory bound to them.
            advice=$(numad -w "$2:$memory_mib" 2>/dev/null)
            say "advice for $1: $advice"
            place="numactl --cpunodebind=$advice --membind=$advice"
            ;;
    esac
    LOAD_PERCENT=$3 LOAD_SECONDS=$4 LOAD_FILE=/tmp/samples/$1 \
        $place qemu-system-load -name "$1,debug-threads=on" -accel kvm -smp "$2" -m $memory_mib || say "$1 failed: $?"
}
counters() { grep -E '^(pgmigrate_success|numa_pages_migrated|numa_hint_faults|pgmigrate_fail) ' /proc/vmstat; }

mkdir -p /tmp/samples /var/run /var/log
say "free MiB by node: $(sed -n 's/.*MemFree: *\([0-9]*\) kB/\1/p' /sys/devices/system/node/node*/meminfo | awk '{ printf "%d ", $1 / 1024 }')"
keeper=
case $policy in
    homenode-balance) homenode balance >/tmp/keeper 2>&1 & keeper=$! ;;
    esxi-defaults) homenode balance --policy /tmp/esxi.toml >/tmp/keeper 2>&1 & keeper=$! ;;
    autonuma) echo 1 >/proc/sys/kernel/numa_balancing ;;
    # numad takes every process for bound at the start of its clock and lets it rest for 300 s: on a host that booted just now it does nothing.
    numad) time-apart --time --monotonic 1000 --boottime 1000 --fork numad -i 5:15 || say "numad failed: $?" ;;
esac
sleep 2
counters | sed "s/^/BEFORE $policy /"
loads= count=0
while read -r name start vcpus percent seconds; do
    { sleep "$start"; vm "$name" "$vcpus" "$percent" "$seconds" "$count"; } &
    loads="$loads $!"
    count=$((count + 1))
done </tmp/trace
# shellcheck disable=SC2086 # numbers of processes
wait $loads
counters | sed "s/^/AFTER $policy /"
if [ -n "$keeper" ]; then
    kill "$keeper"
    wait "$keeper"
    awk -v policy="$policy" '{ print "LOG", policy, $0 }' /tmp/keeper
fi
[ "$policy" != numad ] || sed 's/^/LOG numad /' /var/log/numad.log
cat /tmp/samples/* | sed "s/^/RAW $policy /"
