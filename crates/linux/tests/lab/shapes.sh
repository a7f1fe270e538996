# VMs of odd shapes with KVM on four NUMA nodes: another name, a cpuset that forbids a home, memory and vCPUs that are plugged in while a balancer
# runs, and the kernel's vhost threads. Runs inside the lab:
#
#   cargo build -p linux --example linux_host
#   scripts/lab --homenode target/debug/homenode --bring target/debug/examples/linux_host --run crates/linux/tests/lab/shapes.sh
. /lab/functions
echo never >/sys/kernel/mm/transparent_hugepage/enabled

# --- A cpuset that forbids the home's memory: the binding is refused, and nothing is changed.
start confined -m 64 -smp 1
own confined $vm
echo 1 >/sys/fs/cgroup/machine.slice/confined.scope/cpuset.mems
linux_host bind $vm 0 0 >/tmp/said 2>&1
check "a home whose memory the cpuset forbids is refused with the reason" 'ERROR .*cpuset allows memory of nodes 1 only, and its home would be 0'
affinity $vm >/tmp/said
check "nothing was bound" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+0-7$'
linux_host bind $vm 0 1 >/dev/null 2>&1
affinity $vm >/tmp/said
check "the home that it allows is taken" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+2-3$'
stop
rmdir /sys/fs/cgroup/machine.slice/confined.scope

# --- QEMU of another name is found by the descriptors that KVM gave it.
ln -s "$(command -v qemu-system-x86_64)" /tmp/webserver
/tmp/webserver -S -display none -nodefaults -no-user-config -machine q35 -accel kvm -cpu host -m 64 \
    -name renamed,debug-threads=on -monitor none -serial none &
vm=$!
sleep 3
homenode top --once >/tmp/said 2>&1
check "a QEMU of another name is seen" 'renamed'
stop

# bound VCPU CPUS: waits until the balancer has bound a vCPU of $vm to these CPUs.
bound() {
    for _ in $(seq 60); do
        affinity $vm | grep "^CPU $1/KVM" | grep -q "[[:space:]]$2\$" && break
        sleep 0.2
    done
}

# plugged VCPU CPUS NODE WHERE: a vCPU and 128 MiB that were plugged in come home. Of 32768 pages a few
# may stay: where memory is, is an estimate.
plugged() {
    local at_home=" N$3=32[67][0-9][0-9] "
    for _ in $(seq 200); do
        affinity $vm | grep "^CPU $1/KVM" | grep -q "[[:space:]]$2\$" && region $vm 128 | grep -q "$at_home" && break
        sleep 0.2
    done
    affinity $vm >/tmp/said
    cat /tmp/balance.said
    check "a vCPU that was plugged $4 is bound to the home" "^CPU $1/KVM Cpus_allowed_list:[[:space:]]+$2\$"
    region $vm 128 >/tmp/said
    check "memory that was plugged $4 is brought home" "$at_home"
}

# --- Memory and a vCPU that are plugged in while a balancer runs.
printf '[balance]\nperiod_ms = 200\n' >/tmp/quick.toml
mkfifo /tmp/monitor
qemu-system-x86_64 -S -accel kvm -cpu host -machine q35,memory-backend=m -m 64,slots=2,maxmem=512M -smp 1,maxcpus=2 \
    -object memory-backend-ram,id=m,size=64M,prealloc=on,host-nodes=2,policy=preferred \
    -display none -nodefaults -no-user-config -name growing,debug-threads=on -monitor stdio </tmp/monitor >/tmp/monitor.said 2>&1 &
vm=$!
exec 7>/tmp/monitor
sleep 3
homenode balance --policy /tmp/quick.toml >/tmp/balance.said 2>&1 &
balancer=$!
bound 0 4-5
affinity $vm >/tmp/said
check "the balancer takes it to its memory" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+4-5$'
echo 'object_add memory-backend-ram,id=late,size=128M,prealloc=on,host-nodes.0=0,policy=preferred' >&7
echo 'device_add pc-dimm,id=dimm9,memdev=late' >&7
echo 'device_add host-x86_64-cpu,id=cpu9,socket-id=0,core-id=1,thread-id=0' >&7
plugged 1 4-5 2 in
kill $balancer
wait $balancer 2>/dev/null
exec 7>&-
stop

# --- The same in a VM of two virtual nodes: block and vCPU go to the client of their virtual node, which its monitor says of the block.
rm /tmp/monitor
mkfifo /tmp/monitor
qemu-system-x86_64 -S -accel kvm -cpu host -machine q35 -m 128,slots=2,maxmem=1G -smp 3,maxcpus=4,sockets=2,cores=2 \
    -object memory-backend-ram,id=a,size=64M,prealloc=on,host-nodes=2,policy=preferred \
    -object memory-backend-ram,id=b,size=64M,prealloc=on,host-nodes=3,policy=preferred \
    -numa node,nodeid=0,cpus=0-1,memdev=a -numa node,nodeid=1,cpus=2-3,memdev=b -qmp unix:/tmp/wide.qmp,server=on,wait=off \
    -display none -nodefaults -no-user-config -name wide,debug-threads=on -monitor stdio </tmp/monitor >/tmp/monitor.said 2>&1 &
vm=$!
exec 7>/tmp/monitor
sleep 3
homenode balance --policy /tmp/quick.toml >/tmp/balance.said 2>&1 &
balancer=$!
bound 2 6-7
echo 'object_add memory-backend-ram,id=late,size=128M,prealloc=on,host-nodes.0=0,policy=preferred' >&7
echo 'device_add pc-dimm,id=dimm9,memdev=late,node=1' >&7
echo 'device_add host-x86_64-cpu,id=cpu9,socket-id=1,core-id=1,thread-id=0,node-id=1' >&7
plugged 3 6-7 3 "into virtual node 1"
kill $balancer
wait $balancer 2>/dev/null
homenode top --once >/tmp/said 2>&1
check "top sees by its monitor that it is paused" '^wide .*paused'
echo 'cont' >&7
sleep 2
homenode top --once >/tmp/said 2>&1
check "and that it runs" '^wide '
if grep -q 'paused' /tmp/said; then echo "FAIL a VM that runs is not paused"; cat /tmp/said; else echo "PASS a VM that runs is not paused"; fi
exec 7>&-
stop

# --- The kernel's vhost threads follow their VM.
if [ -e /dev/vhost-net ] && [ -e /dev/net/tun ]; then
    start packets -m 64 -smp 1 -netdev tap,id=n,script=no,downscript=no,vhost=on -device virtio-net-pci,netdev=n,romfile=
    linux_host bind $vm 0 3 >/tmp/said 2>&1
    for thread in $(grep -l "^vhost-$vm$" /proc/[0-9]*/comm /proc/$vm/task/*/comm 2>/dev/null); do
        grep Cpus_allowed_list "${thread%comm}status"
    done >/tmp/said
    check "vhost threads follow" '^Cpus_allowed_list:[[:space:]]+6-7$'
    stop
else
    echo "SKIPPED vhost threads follow: this kernel came without vhost_net or tun"
fi
