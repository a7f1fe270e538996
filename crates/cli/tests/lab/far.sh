# Memory on a node without CPUs, on two NUMA nodes of 2 CPUs with KVM and an expander beside node 0.
# Runs inside the lab (scripts/lab --nodes 2 --expander-mib 512 --run).
. /lab/functions

# vm NAME MIB LINES: /tmp/NAME.toml.
vm() {
    printf 'name = "%s"\nvcpus = 2\nmemory = "%s MiB"\n%s\n' "$1" "$2" "$3" >"/tmp/$1.toml"
}

homenode topology >/tmp/said 2>&1
check "the machine has three nodes" ' 3 NUMA nodes'
cat /sys/devices/system/node/node[0-2]/access*/initiators/read_bandwidth >/tmp/said 2>&1
echo "bandwidths: $(tr '\n' ' ' </tmp/said)" >/tmp/said
check "the kernel says what each node gives" '^bandwidths: [0-9]+ '

# --- By default nothing lies there.
vm near 256 'policy = { node_affinity = "0,2" }'
homenode plan /tmp/near.toml >/tmp/said 2>&1
check "an affinity that names it is warned of" 'policy.node_affinity names node 2 without CPUs'
run near
check "all of it is on node 0" '^ +0 +0-1 +0-1 +0 +node 0: 256 MiB +bind:0 +yes$'
end near

# --- What finds no room on nodes with CPUs.
vm huge 2200 ''
homenode plan /tmp/huge.toml >/tmp/said 2>&1
check "a VM that only the expander could hold is told of it" 'node 2 without CPUs has .* more, which policy.far_memory = "when_full" would take'

# --- By bandwidth: node 0 gives 30 GB/s, the expander 10.
vm spread 256 'policy = { far_memory = "by_bandwidth", node_affinity = "0,2" }'
homenode plan /tmp/spread.toml >/tmp/said 2>&1
check "a quarter of it is planned there" 'client 0: 64 MiB on node 2 by bandwidth'
run spread
check "it is there" '^ +0 +0-1 +0-1 +0,2 +node 0: 192 MiB, node 2: 64 MiB +bind:0,2 +yes$'
grep 'bind:0,2' "/proc/$pid/numa_maps" >/tmp/said
# 64 MiB are 16384 pages of 4 KiB, or 32 huge ones of 2 MiB that numa_maps counts in small ones.
check "the kernel has a quarter of the pages on node 2" ' N0=49152 N2=16384 '
tr ' ' '\n' </proc/$pid/cmdline | tr '\0' '\n' >/tmp/said
check "QEMU bears the mark" '^null,id=policy--node_affinity-0_2--far_memory-by_bandwidth$'
for _ in 1 2 3; do homenode balance --once >/tmp/balanced 2>&1; sleep 2; done
grep 'bind:0,2' "/proc/$pid/numa_maps" >/tmp/said
check "a balancer leaves it there" ' N0=49152 N2=16384 '
homenode doctor >/tmp/said 2>&1
if grep -Eq 'memory_away|memory_wider|policy_elsewhere' /tmp/said; then
    echo "FAIL doctor takes it for remote:"
    sed 's/^/    /' /tmp/said
else
    echo "PASS doctor does not take it for remote"
fi
homenode why spread --interval 0.5 >/tmp/said 2>&1
check "why says what its spec says" '^It has node_affinity = "0,2", as its spec says \(policy.node_affinity\)\.$'
check "and that node 1 is none of its nodes" 'node_affinity .* it may not live on node 1, but on nodes 0,2'
end spread

# --- Nobody spread this one: it comes home.
filled accident 2 128 -smp 2
for _ in 1 2 3 4; do homenode balance --once >/tmp/balanced 2>&1; sleep 2; done
homenode top --once >/tmp/said 2>&1
check "memory that lies there by accident has come home" '^accident .* 128 MiB +128 MiB +0 MiB +100 '
stop
