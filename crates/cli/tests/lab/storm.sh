# A power-on storm: 20 VMs started at once on 8 NUMA nodes of 2 CPUs, each by a homenode of its own.
# Runs inside the lab (scripts/lab --nodes 8 --run).
. /lab/functions

vms=20 nodes=8
# Nothing that boots: the firmware waits for ever, and no guest ends before it is looked at. A Linux
# in 32 MiB does.
head -c 1048576 /dev/zero >/tmp/empty.img
for number in $(seq $vms); do
    # Latency-sensitive every second one; one vCPU each, and memory that all nodes have.
    sensitive=false
    [ $((number % 2)) = 0 ] || sensitive=true
    cat >"/tmp/s$number.toml" <<END
name = "s$number"
vcpus = 1
memory = "32 MiB"
policy = { latency_sensitive = $sensitive }
boot.from = "disk"
[[disk]]
path = "/tmp/empty.img"
format = "raw"
read_only = true
END
done
started=
for number in $(seq $vms); do
    homenode run "/tmp/s$number.toml" --daemonize >"/tmp/out$number" 2>&1 &
    started="$started $!"
done
failed=0
for one in $started; do
    wait "$one" || failed=$((failed + 1))
done
echo "failed: $failed" >/tmp/said
cat /tmp/out* >>/tmp/said
check "all of them start" '^failed: 0$'

# Homes by the kernel's word: the CPUs of each vCPU thread, and the node of each VM's memory.
: >/tmp/homes
for pid in $(pidof qemu-system-x86_64); do
    for task in /proc/$pid/task/*; do
        case $(cat "$task/comm" 2>/dev/null) in
            "CPU "*) sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "$task/status" >>/tmp/homes ;;
        esac
    done
done
sort /tmp/homes | uniq -c >/tmp/said
sed 's/^/    /' /tmp/said
most=$(sort /tmp/homes | uniq -c | sort -n | sed -n '$s/^ *\([0-9]*\) .*/\1/p')
least=$(sort /tmp/homes | uniq -c | sort -n | sed -n '1s/^ *\([0-9]*\) .*/\1/p')
there=$(sort -u /tmp/homes | wc -l)
echo "VMs: $(wc -l </tmp/homes), nodes: $there, most: $most, least: $least" >/tmp/said
# Each goes to a node with the fewest vCPUs: 20 on 8 nodes are 2 or 3 on each.
check "20 vCPUs on 8 nodes are 2 or 3 on each" "^VMs: $vms, nodes: $nodes, most: 3, least: 2$"
local_vms=0
for pid in $(pidof qemu-system-x86_64); do
    line=$(grep ' bind:[0-7] ' "/proc/$pid/numa_maps" | head -n 1)
    node=$(echo "$line" | sed 's/.* bind:\([0-7]\) .*/\1/')
    case " $line " in *" N$node=8192 "*) local_vms=$((local_vms + 1)) ;; esac
done
echo "all memory at home: $local_vms" >/tmp/said
check "each has its 32 MiB on the node that it is bound to" "^all memory at home: $vms$"
ls -A /run/homenode 2>/dev/null | grep starting >/tmp/left
echo "reservations: $(wc -l </tmp/left)" >/tmp/said
check "no reservation is left" '^reservations: 0$'
homenode why s1 --interval 0.5 >/tmp/said 2>&1
check "why says that its vCPUs count" '^All of its vCPUs count as busy: it was started so \(policy.latency_sensitive\)\.$'
homenode why s2 --interval 0.5 >/tmp/said 2>&1
if grep -q 'count as busy' /tmp/said; then echo "FAIL why says it of an ordinary one"; else echo "PASS and not of an ordinary one"; fi
for number in $(seq $vms); do end "s$number"; done
