# What the linux crate does to VMs of others on four NUMA nodes, by the kernel's own words: everything. quick.sh has one
# check for each trap. Runs inside the lab:
#
#   cargo build -p linux --example linux_host
#   ln -sf "$(command -v setpriv)" target/as-user      (the setpriv of util-linux: busybox has one that can do less)
#   scripts/lab --homenode target/debug/homenode --bring target/as-user --bring target/debug/examples/linux_host --run crates/linux/tests/lab/moving.sh
#
# With the crate's own test program beside it (--bring target/debug/deps/linux-0123456789abcdef), also those of its tests that need two nodes.
. /lab/functions

# --- The crate's own tests of moves: part by part, huge pages, pinned pages, a full target, a limit.
for tests in /bin/linux-[0-9a-f]*; do
    [ -x "$tests" ] || continue
    echo always >/sys/kernel/mm/transparent_hugepage/enabled
    "$tests" moving:: --test-threads=1 >/tmp/said 2>&1
    check "the crate's tests of moves pass on four nodes" '^test result: ok\. [0-9]+ passed'
    grep SKIPPED /tmp/said
done
echo never >/sys/kernel/mm/transparent_hugepage/enabled

# --- Binding, and moving anonymous memory that is bound: the policy goes stale, and that is said.
start plain -m 256 -smp 2 -object memory-backend-ram,id=m0,size=256M,prealloc=on,host-nodes=0,policy=bind -machine memory-backend=m0
linux_host bind $vm 0 2 >/tmp/said 2>&1
affinity $vm >/tmp/said
check "a VM's threads are bound to node 2" '^CPU 1/KVM Cpus_allowed_list:[[:space:]]+4-5$'
linux_host move $vm 0 0 2 100 >/tmp/said 2>&1
check "at most 100 MiB are moved" '"moved":104857600,"left":0'
region $vm 256 >/tmp/said
check "the kernel has 100 MiB on node 2 and the rest on node 0" ' N0=39936 N2=25600 '
linux_host move $vm 0 0 2 1000 >/tmp/said 2>&1
check "the rest follows" '"moved":163577856,"left":0'
check "the stale policy is said" 'bind:0'
region $vm 256 >/tmp/said
check "the kernel has all of it on node 2, and its policy is still that of node 0" ' bind:0 anon=65536 .* N2=65536 '
linux_host move $vm 0 2 3 100 10 >/tmp/said 2>&1
check "a limit of 10 MiB a second is kept within 5 %" '^took (9\.[5-9]|10\.[0-4])'
linux_host move $vm 0 2 3 1000 >/tmp/said 2>&1
linux_host drift 3 >/tmp/said 2>&1
check "the judge names the stale policy" '"what":"policy_elsewhere".*bind:0.*on node 3'
stop

# --- Locked memory moves; a node that is full stops a move.
start locked -m 256 -smp 1 -overcommit mem-lock=on -object memory-backend-ram,id=m0,size=256M,prealloc=on,host-nodes=1,policy=bind -machine memory-backend=m0
linux_host move $vm 0 1 2 1000 >/tmp/said 2>&1
check "locked memory moves" '"moved":268435456,"left":0'
locked=$vm
# All of node 3 but 160 MiB.
most=$(($(sed -n 's/.*MemFree: *\([0-9]*\) kB/\1/p' /sys/devices/system/node/node3/meminfo) / 1024 - 160))
start large -m $most -smp 1 -object memory-backend-ram,id=m0,size=${most}M,prealloc=on,host-nodes=3,policy=bind -machine memory-backend=m0
large=$vm
vm=$locked
linux_host move $vm 0 2 3 1000 >/tmp/said 2>&1
check "a node that has no room left stops the move, and says so" 'node 3 can take only .* more'
grep ' anon=65536 ' /proc/$vm/numa_maps >/tmp/said
check "a part is there, and the rest where it was" ' N2=[0-9]+ N3=[0-9]+ '
stop
vm=$large
stop

# --- Two virtual nodes, moved client by client; the policy follows where the VM has a cgroup for itself.
wide="-m 256 -smp 4 -object memory-backend-ram,id=m0,size=128M,prealloc=on,host-nodes=0,policy=bind
    -object memory-backend-ram,id=m1,size=128M,prealloc=on,host-nodes=1,policy=bind
    -numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-3,memdev=m1"
start wide $wide
own wide $vm
linux_host move $vm 0 0 2 1000 >/dev/null 2>&1
linux_host drift 2,3 >/tmp/said 2>&1
check "client 1 is still away" '"what":"vcpus_leave_memory".*"client":1,"from":1,"to":3,"at_most":134217728'
check "threads that may run everywhere are named, with the CPUs of home" '"what":"vcpus_leave_memory".*"client":1,"home":"3","cpus":"6-7"'
check "the cure of a stale policy is foreseen" '"what":"policy_elsewhere".*bind:0.*"repair":"confine".*"nodes":"2-3"'
linux_host confine $vm 2-3 >/tmp/said 2>&1
check "nothing is confined before its memory is there" 'ERROR .*move them first'
linux_host move $vm 1 1 3 1000 >/dev/null 2>&1
region $vm 128 >/tmp/said
check "the kernel has client 0 on node 2" ' bind:0 anon=32768 .* N2=32768 '
check "the kernel has client 1 on node 3" ' bind:1 anon=32768 .* N3=32768 '
linux_host drift 3,2 >/tmp/said 2>&1
check "where the kernel would rebind wrongly, a restart is advised" '"what":"policy_elsewhere".*bind:0.*the kernel would make'
linux_host confine $vm 2-3 >/tmp/said 2>&1
check "it is confined" '"moved":0,"left":0,"because":null'
region $vm 128 >/tmp/said
check "now the kernel binds client 0 to node 2" ' bind:2 anon=32768 .* N2=32768 '
check "now the kernel binds client 1 to node 3" ' bind:3 anon=32768 .* N3=32768 '
linux_host drift 2,3 >/tmp/said 2>&1
grep -c policy_elsewhere /tmp/said >/tmp/count
cp /tmp/count /tmp/said
check "no policy disagrees any more" '^0$'
linux_host confine $vm 0-3 >/tmp/said 2>&1
check "a cpuset is never widened" 'ERROR .*widening it sends bound memory elsewhere'
mems wide >/tmp/said
check "and stays as it was" '^2-3$'
linux_host move $vm 0 2 0 1000 >/tmp/said 2>&1
check "a node that the cpuset forbids is refused by name" 'ERROR .*cpuset allows memory of nodes 2-3 only'
linux_host observe >/tmp/said 2>&1
check "the balancer is told the nodes of the cpuset" '"node_affinity": "2-3"'
stop
rmdir /sys/fs/cgroup/machine.slice/wide.scope

# --- A memory file that was not filled: faults go to the old node, unless the VM is confined.
start file -m 256 -smp 1 -object memory-backend-memfd,id=m0,size=256M,share=on,host-nodes=0,policy=bind -machine memory-backend=m0
linux_host drift 2 >/tmp/said 2>&1
check "a memory file that will fault elsewhere is named" '"what":"policy_elsewhere".*bind:0, and its home is node 2'
check "in a cgroup with others only a restart helps" 'its cgroup holds other processes too'
own file $vm
linux_host drift 2 >/tmp/said 2>&1
check "with a cgroup of its own it can be confined" '"what":"policy_elsewhere".*"repair":"confine".*"nodes":"2"'
stop
rmdir /sys/fs/cgroup/machine.slice/file.scope
start filled -m 128 -smp 1 -object memory-backend-memfd,id=m0,size=128M,share=on,prealloc=on,host-nodes=0,policy=bind -machine memory-backend=m0
linux_host move $vm 0 0 2 1000 >/tmp/said 2>&1
check "a memory file that is filled moves" '"moved":134217728,"left":0'
stop

# --- Rights: what each capability is good for.
# as CAPABILITY COMMAND...: as a user of its own with this capability alone.
as() {
    capability=$1
    shift
    as-user --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all,+"$capability" --ambient-caps=-all,+"$capability" --bounding-set=-all,+"$capability" "$@"
}
if command -v as-user >/dev/null; then
    start others -m 64 -smp 1 -object memory-backend-ram,id=m0,size=64M,prealloc=on -machine memory-backend=m0
    from=$(grep ' anon=16384 ' /proc/$vm/numa_maps | sed 's/.* N\([0-9]\)=.*/\1/')
    to=$(((from + 1) % 4))
    as sys_nice linux_host bind $vm 0 1 >/tmp/said 2>&1
    check "with CAP_SYS_NICE alone threads of others are bound" '^\{"moved":0'
    as sys_nice linux_host move $vm 0 "$from" $to 1000 >/tmp/said 2>&1
    check "and their memory is refused, by name" 'ERROR .*CAP_SYS_PTRACE'
    as sys_ptrace linux_host move $vm 0 "$from" $to 1000 >/tmp/said 2>&1
    check "with CAP_SYS_PTRACE alone memory of others moves" '"moved":67108864,"left":0'
    as sys_ptrace linux_host bind $vm 0 2 >/tmp/said 2>&1
    check "and their threads are refused, by name" 'ERROR .*CAP_SYS_NICE'
    stop
fi

# --- Huge pages of a pool move only where the target has free ones.
echo 32 >/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
start huge -m 64 -smp 1 -object memory-backend-memfd,id=m0,size=64M,hugetlb=on,hugetlbsize=2M,prealloc=on,host-nodes=0,policy=bind -machine memory-backend=m0
linux_host drift 1 >/tmp/said 2>&1
check "missing huge pages are named" '"what":"no_free_huge_pages".*64 MiB needed, 0 B free.*add 32 pages'
linux_host move $vm 0 0 1 1000 >/tmp/said 2>&1
check "without free huge pages nothing moves" '"moved":0,"left":0,"because":"node 1 has only 0 B free in huge pages'
echo 32 >/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
linux_host move $vm 0 0 1 1000 >/tmp/said 2>&1
check "with them they move" '"moved":67108864,"left":0'
grep ' huge ' /proc/$vm/numa_maps >/tmp/said
check "the kernel has the huge pages on node 1" ' N1=32 kernelpagesize_kB=2048'
stop

# --- A VM without a policy.
start bare -m 128 -smp 1
linux_host drift 1 >/tmp/said 2>&1
check "a VM that nothing keeps at a home floats" '"what":"floats"'
stop
