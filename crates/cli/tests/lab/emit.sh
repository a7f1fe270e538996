# What `homenode plan --emit` prints must make right VMs on four NUMA nodes with KVM: QEMU's text as it is, and a slice's settings in a cgroup.
# Runs inside the lab (scripts/lab --run).
. /lab/functions

# What the kernel says of a VM's vCPU: its name and where it may run, into /tmp/said.
vcpus() {
    for task in "/proc/$1"/task/*; do
        case $(cat "$task/comm") in CPU*) echo "$(cat "$task/comm") $(grep Cpus_allowed_list "$task/status")" ;; esac
    done >/tmp/said
}
# until_vcpu QEMU PATTERN: waits up to 60 s for a line of `vcpus`.
until_vcpu() {
    for second in $(seq 60); do
        vcpus "$1"
        grep -Eq -- "$2" /tmp/said && return
        sleep 1
    done
}

dd if=/dev/zero of=/tmp/disk.raw bs=1024 count=64 2>/dev/null
cat >/tmp/far.toml <<'END'
name = "far.1"
vcpus = 3
memory = "96 MiB"
[boot]
from = "disk"
[policy]
node_affinity = "1,3"
virtual_nodes = [{ vcpus = 2, memory = "64 MiB" }, { vcpus = 1, memory = "32 MiB" }]
[[disk]]
path = "disk.raw"
format = "raw"
END
homenode plan /tmp/far.toml --emit qemu >/tmp/far.sh 2>/tmp/said
grep -e '-accel' /tmp/far.sh >/tmp/said
check "the text is for KVM" '-accel kvm'
sh /tmp/far.sh </dev/null >/tmp/console 2>&1 &
for second in $(seq 60); do
    qemu=$(pidof qemu-system-x86_64) && break
    sleep 1
done
node=$(sed -n 's/^# Client 0: .* lives on node \([0-3]\), .*/\1/p' /tmp/far.sh)
other=$((4 - node))
# at VCPU NODE: waits until the kernel lets it run there only.
at() {
    until_vcpu "$qemu" "^CPU $1/KVM Cpus_allowed_list:[[:space:]]+$((2 * $2))-$((2 * $2 + 1))\$"
    check "the kernel lets vCPU $1 run on the CPUs of node $2" "^CPU $1/KVM Cpus_allowed_list:[[:space:]]+$((2 * $2))-$((2 * $2 + 1))\$"
}
at 0 "$node"
at 1 "$node"
at 2 "$other"
grep 'bind:' "/proc/$qemu/numa_maps" >/tmp/said
check "the kernel has 64 MiB on node $node alone" "bind:$node anon=16384 .* N$node=16384 "
check "the kernel has 32 MiB on node $other alone" "bind:$other anon=8192 .* N$other=8192 "
grep Cpus_allowed_list "/proc/$qemu/status" >/tmp/said
check "QEMU's first thread has the CPUs of both homes" 'Cpus_allowed_list:[[:space:]]+2-3,6-7$'
homenode doctor >/tmp/said 2>&1
check "doctor finds nothing wrong" 'nothing is wrong'
kill "$qemu"

# systemd writes a slice's settings into these files of its cgroup; there is no systemd here.
sed 's/1,3/2/; s/far.1/slice/; s/"96 MiB"/"64 MiB"/; s/vcpus = 3/vcpus = 2/; /virtual_nodes/d' /tmp/far.toml >/tmp/slice.toml
homenode plan /tmp/slice.toml --emit systemd >/tmp/slice 2>/tmp/said
mkdir -p /sys/fs/cgroup/homenode.slice
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
sed -n 's/^AllowedCPUs=//p' /tmp/slice >/sys/fs/cgroup/homenode.slice/cpuset.cpus
sed -n 's/^AllowedMemoryNodes=//p' /tmp/slice >/sys/fs/cgroup/homenode.slice/cpuset.mems
sh -c 'echo $$ >/sys/fs/cgroup/homenode.slice/cgroup.procs
exec qemu-system-x86_64 -S -accel kvm -nodefaults -display none -smp 2 -name slice,debug-threads=on -machine q35,memory-backend=ram \
    -m 64 -object memory-backend-ram,id=ram,size=64M,prealloc=on' >/tmp/slice.console 2>&1 &
qemu=$!
until_vcpu "$qemu" '^CPU 1/KVM'
check "in the slice a vCPU runs on the CPUs of node 2" '^CPU 1/KVM Cpus_allowed_list:[[:space:]]+4-5$'
grep 'anon=16384' "/proc/$qemu/numa_maps" >/tmp/said
check "in the slice memory without a policy is on node 2 alone" 'default anon=16384 .* N2=16384 '
kill "$qemu"
