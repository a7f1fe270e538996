# The traps of moving VMs of others, one check for each and little memory; moving.sh has the rest. Runs inside the lab, like moving.sh:
#
#   scripts/lab --homenode target/debug/homenode --bring target/debug/examples/linux_host --run crates/linux/tests/lab/quick.sh
. /lab/functions
echo never >/sys/kernel/mm/transparent_hugepage/enabled

# --- Two virtual nodes: stale policies, a cpuset that must be narrowed late and never widened, a node that it forbids.
start wide -m 256 -smp 2 -object memory-backend-ram,id=m0,size=128M,prealloc=on,host-nodes=0,policy=bind \
    -object memory-backend-ram,id=m1,size=128M,prealloc=on,host-nodes=1,policy=bind \
    -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1
own wide $vm
linux_host bind $vm 0 2 >/tmp/said 2>&1
affinity $vm >/tmp/said
check "a client's threads are bound to node 2, and no others" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+4-5$'
linux_host move $vm 0 0 2 1000 >/tmp/said 2>&1
check "the stale policy is said" '"moved":134217728,"left":0.*bind:0'
linux_host confine $vm 2-3 >/tmp/said 2>&1
check "nothing is confined before its memory is there" 'ERROR .*move them first'
linux_host move $vm 1 1 3 1000 >/dev/null 2>&1
region $vm 128 >/tmp/said
check "the kernel has client 0 on node 2, and its policy is still that of node 0" ' bind:0 anon=32768 .* N2=32768 '
check "the kernel has client 1 on node 3" ' bind:1 anon=32768 .* N3=32768 '
linux_host drift 3,2 >/tmp/said 2>&1
check "where the kernel would rebind wrongly, a restart is advised" '"what":"policy_elsewhere".*bind:0.*the kernel would make'
linux_host confine $vm 2-3 >/dev/null 2>&1
region $vm 128 >/tmp/said
check "confined, the kernel binds client 1 to node 3" ' bind:3 anon=32768 .* N3=32768 '
linux_host confine $vm 0-3 >/tmp/said 2>&1
check "a cpuset is never widened" 'ERROR .*widening it sends bound memory elsewhere'
linux_host move $vm 0 2 0 1000 >/tmp/said 2>&1
check "a node that the cpuset forbids is refused by name" 'ERROR .*cpuset allows memory of nodes 2-3 only'
stop
rmdir /sys/fs/cgroup/machine.slice/wide.scope

# --- A memory file that was not filled faults to the old node for ever.
start file -m 32 -smp 1 -object memory-backend-memfd,id=m0,size=32M,share=on,host-nodes=0,policy=bind -machine memory-backend=m0
linux_host drift 2 >/tmp/said 2>&1
check "a memory file that will fault elsewhere is named" '"what":"policy_elsewhere".*bind:0, and its home is node 2'
stop

# --- Huge pages of a pool move only where the target has free ones; a target that is full stops a move.
echo 16 >/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
start huge -m 32 -smp 1 -object memory-backend-memfd,id=m0,size=32M,hugetlb=on,hugetlbsize=2M,prealloc=on,host-nodes=0,policy=bind -machine memory-backend=m0
echo 8 >/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
linux_host move $vm 0 0 1 1000 >/tmp/said 2>&1
check "as many huge pages move as are free on the target, and it is said" '"moved":16777216,.*node 1 has only .* free in huge pages'
stop

# --- A VM without a policy.
start bare -m 32 -smp 1
linux_host drift 1 >/tmp/said 2>&1
check "a VM that nothing keeps at a home floats" '"what":"floats"'
stop

# --- Pinned pages stay, and are counted: the crate's own tests, where they were brought.
for tests in /bin/linux-[0-9a-f]*; do
    [ -x "$tests" ] || continue
    "$tests" moving::tests::p moving::tests::a_full moving::tests::what --test-threads=1 >/tmp/said 2>&1
    check "pinned pages and a full target, by the crate's own tests" '^test result: ok\. [0-9]+ passed'
    grep SKIPPED /tmp/said
done
