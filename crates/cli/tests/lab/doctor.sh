# What `homenode doctor` finds on four NUMA nodes about real VMs and their host, and that neither `doctor --fix` nor `balance --once` makes a VM
# worse that a cpuset holds. Runs inside the lab: scripts/lab --bring chrt --run crates/cli/tests/lab/doctor.sh
. /lab/functions
echo never >/sys/kernel/mm/transparent_hugepage/enabled
scopes=/sys/fs/cgroup/machine.slice

# vm NAME NODE MORE...: a paused VM of 2 vCPUs whose 32 MiB were filled on NODE; its number is in $vm and in /tmp/NAME.pid.
vm() {
    vm_name=$1 vm_node=$2
    shift 2
    filled "$vm_name" "$vm_node" 32 -smp 2 "$@"
    for turn in $(seq 100); do [ "$(affinity "$vm" | wc -l)" = 2 ] && break; sleep 0.1; done
}
# bind MASK: what another program does to the vCPUs of $vm.
bind() {
    for task in /proc/"$vm"/task/*; do
        case $(cat "$task/comm") in CPU*) taskset -p "$1" "${task##*/}" >/dev/null ;; esac
    done
}
# lives CPUS NODE WHAT: the kernel lets both vCPUs of $vm use CPUS alone, and has all its memory on NODE.
lives() {
    { affinity "$vm" | sed 's/^[^ ]* [^ ]* //' | sort | uniq -c; region "$vm" 32; } >/tmp/said
    check "$3: vCPUs" "^ +2 Cpus_allowed_list:[[:space:]]+$1\$"
    check "$3: memory" " N$2=8192 "
}
# ends NAME: the VM, and the cgroup that it had.
ends() {
    vm=$(cat "/tmp/$1.pid")
    stop
    rmdir "$scopes/$1.scope" 2>/dev/null
    homenode balance --release >/dev/null 2>&1
}
# finds WHAT PATTERN [VM]: a finding of doctor.
finds() {
    homenode doctor ${3:+"$3"} >/tmp/said 2>&1
    check "$1" "$2"
}
# silent WHAT PATTERN [VM]: no such finding.
silent() {
    homenode doctor ${3:+"$3"} >/tmp/said 2>&1
    if grep -Eq -- "$2" /tmp/said; then echo "FAIL $1: there is a line '$2'"; cat /tmp/said; else echo "PASS $1"; fi
}

# --- Cpusets. Each VM got home 0 from a balancer, where its memory is; then its owner wrote a cpuset.
homed() {
    vm "$1" 0
    homenode balance --once >/tmp/said 2>&1
    lives 0-1 0 "$1 is at home on node 0"
    own "$1" "$vm"
}
# The cpuset allows CPUs and memory of node 1 alone: the kernel took both there.
homed both
echo 2-3 >$scopes/both.scope/cpuset.cpus
echo 1 >$scopes/both.scope/cpuset.mems
lives 2-3 1 "a cpuset takes a VM to node 1"
homenode doctor both --fix >/tmp/fixed 2>&1
lives 2-3 1 "doctor --fix leaves it there"
homenode balance --once >/tmp/balanced 2>&1
lives 2-3 1 "balance leaves it there"
silent "and the home of before is no fault of it" 'PROBLEM|not repaired' both
ends both

# It allows the CPUs of node 1, and memory everywhere: the vCPUs are away from their memory, and cannot come back.
homed cpus
echo 2-3 >$scopes/cpus.scope/cpuset.cpus
lives 2-3 0 "a cpuset takes the vCPUs to node 1"
homenode doctor cpus --fix >/tmp/fixed 2>&1
lives 2-3 1 "doctor --fix brings the memory to the vCPUs, since these cannot leave"
cp /tmp/fixed /tmp/said
if grep -Eq 'PROBLEM|not repaired' /tmp/said; then echo "FAIL and then nothing is a problem"; cat /tmp/said; else echo "PASS and then nothing is a problem"; fi
homenode balance --once >/tmp/balanced 2>&1
lives 2-3 1 "balance leaves it there too"
ends cpus

# It allows memory of node 1 alone; the vCPUs may still use node 0.
homed mems
echo 1 >$scopes/mems.scope/cpuset.mems
bind 3
lives 0-1 1 "a cpuset takes the memory to node 1"
homenode doctor mems --fix >/tmp/fixed 2>&1
lives 2-3 1 "doctor --fix binds the vCPUs to their memory, not to the home of before"
bind ff
homenode balance --once >/tmp/balanced 2>&1
lives 2-3 1 "balance does so too"
ends mems

# It allows CPUs of node 3 and memory of node 1: there is no home, and nothing is done.
homed torn
echo 6-7 >$scopes/torn.scope/cpuset.cpus
echo 1 >$scopes/torn.scope/cpuset.mems
lives 6-7 1 "a cpuset tears a VM apart"
finds "doctor says that the cpuset has memory where it has no CPU" 'cpuset allows .*(where it has no CPU|apart)' torn
homenode doctor torn --fix >/tmp/fixed 2>&1
lives 6-7 1 "doctor --fix does nothing about it"
homenode balance --once >/tmp/balanced 2>&1
lives 6-7 1 "and balance does nothing"
ends torn

# --- Limits of a cgroup, and weight.
vm limited 2
own limited "$vm"
silent "no limit, no finding" 'memory_|cgroup' limited
echo 16M >$scopes/limited.scope/memory.high
finds "memory.high below the VM" 'PROBLEM .*limited: it may have 32 MiB of memory, and its cgroup is slowed down above 16 MiB' limited
echo 24M >$scopes/limited.scope/memory.max
echo max >$scopes/limited.scope/memory.high
finds "memory.max below the VM" 'PROBLEM .*limited: it may have 32 MiB of memory, and its cgroup allows 24 MiB' limited
echo max >$scopes/limited.scope/memory.max
echo "150000 100000" >$scopes/limited.scope/cpu.max
finds "cpu.max below the vCPUs" 'limited: it has 2 vCPUs, and its cgroup may use 1.5 CPUs' limited
echo "max 100000" >$scopes/limited.scope/cpu.max
for task in /proc/"$vm"/task/*; do renice -n 5 -p "${task##*/}" >/dev/null 2>&1; done
finds "a nice value" 'limited: its vCPUs run with nice 5' limited
for task in /proc/"$vm"/task/*; do chrt -i -p 0 "${task##*/}" >/dev/null 2>&1; done
finds "the idle class" 'limited: its vCPUs run with the idle class' limited
ends limited

# --- Threads that run no vCPU, and one that is pinned.
vm pinned 1
for task in /proc/"$vm"/task/*; do
    case $(cat "$task/comm") in "CPU 1/"*) taskset -p 8 "${task##*/}" >/dev/null ;; esac
done
finds "one pinned vCPU of a VM that floats" 'pinned: vCPU 1 may use one CPU only, and the others any' pinned
ends pinned

vm helped 0 -object iothread,id=disks
bind 3
taskset -p c0 "$vm" >/dev/null
for task in /proc/"$vm"/task/*; do
    case $(cat "$task/comm") in "IO disks"*) taskset -p 30 "${task##*/}" >/dev/null ;; esac
done
finds "the main thread far away" "emulator's threads: CPUs 6-7 of node 3" helped
check "an I/O thread elsewhere" 'iothread [^:]*: CPUs 4-5 of node 2'
ends helped

if [ -e /dev/vhost-net ] && [ -e /dev/net/tun ]; then
    vm packets 0 -netdev tap,id=n,script=no,downscript=no,vhost=on -device virtio-net-pci,netdev=n,romfile=
    bind 3
    for thread in $(grep -l "^vhost-$vm$" /proc/[0-9]*/comm "/proc/$vm/task"/*/comm 2>/dev/null); do
        thread=${thread%/comm}
        taskset -p c0 "${thread##*/}" >/dev/null
    done
    finds "a vhost thread elsewhere" 'packets: .*a vhost thread.* may run only away from' packets
    ends packets
else
    echo "SKIPPED a vhost thread elsewhere: this kernel came without vhost_net or tun"
fi

# --- Settings of the host.
vm tenant 1
silent "small VMs need no huge pages" 'no_transparent_huge_pages|pages of 4 KiB'
start large -m 1024 -smp 1
large=$vm
finds "transparent huge pages that are never given" 'WARNING .*VMs get their memory in pages of 4 KiB only'
vm=$large
stop
echo 1 >/sys/kernel/mm/ksm/run
finds "KSM that merges across nodes" 'WARNING .*merges equal pages of VMs on different nodes'
echo 2 >/sys/kernel/mm/ksm/run
echo 0 >/sys/kernel/mm/ksm/merge_across_nodes
echo 1 >/sys/kernel/mm/ksm/run
silent "KSM within nodes" 'KSM'
echo 0 >/sys/kernel/mm/ksm/run
echo 1 >/proc/sys/vm/zone_reclaim_mode
finds "zone_reclaim_mode" 'WARNING .*gives up its file cache before it asks another node'
echo 0 >/proc/sys/vm/zone_reclaim_mode
if [ -e /sys/kernel/mm/numa/demotion_enabled ]; then
    silent "demotion is off" 'moves cold memory'
    echo 1 >/sys/kernel/mm/numa/demotion_enabled
    silent "where every node has CPUs there is nothing to demote to" 'moves cold memory'
    for cpu in 6 7; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done
    finds "demotion to a node without CPUs" 'WARNING .*moves cold memory to nodes without CPUs'
    echo 0 >/sys/kernel/mm/numa/demotion_enabled
    echo 2 >/proc/sys/kernel/numa_balancing
    finds "numa_balancing=2 beside a node without CPUs" 'WARNING .*moves cold memory to nodes without CPUs'
    check "and its value" 'kernel.numa_balancing 2'
else
    echo "SKIPPED memory tiers: this kernel has no demotion_enabled"
fi
