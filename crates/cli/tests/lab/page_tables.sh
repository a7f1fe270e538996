# Where KVM's page tables are after a guest's vCPU and memory went to another node, and what brings them along
# (docs/balancing.md). By hand, since it takes a kernel that counts them (Linux 6.2 and later, `nr_sec_page_table_pages`):
#   scripts/newer-kernel
#   scripts/lab --kernel target/newer-kernel --run crates/cli/tests/lab/page_tables.sh
. /lab/functions
grep -q '^nr_sec_page_table_pages' /sys/devices/system/node/node0/vmstat || { echo "SKIP this kernel does not count KVM's page tables"; exit; }
echo never >/sys/kernel/mm/transparent_hugepage/enabled

# The guest's firmware: writes one word in each page from 2 to 190 MiB, again and again.
{
    printf '\372\056\146\017\001\026\120\000\017\040\300\014\001\017\042\300\146\352\030\000\017\000\010\000\146\270\020\000\216\330\216\300'
    printf '\277\000\000\040\000\211\077\201\307\000\020\000\000\201\377\000\000\340\013\162\360\353\351\220\000\000\000\000\000\000\000\000'
    printf '\377\377\000\000\000\233\317\000\377\377\000\000\000\223\317\000\027\000\070\000\017\000\000\000'
    head -c $((65520 - 88)) /dev/zero
    printf '\352\000\000\000\360'
    head -c 11 /dev/zero
} >/tmp/writes

# tables WHAT: page tables of KVM and of processes, by node; those of KVM are in /tmp/said too.
tables() {
    : >/tmp/said
    for node in 0 1 2 3; do
        set -- "$1" "$(sed -n 's/^nr_sec_page_table_pages //p' /sys/devices/system/node/node$node/vmstat)"
        echo "node $node: $2 of KVM, $(sed -n 's/^nr_page_table_pages //p' /sys/devices/system/node/node$node/vmstat) of processes" >>/tmp/said
    done
    echo "== $1"
    cat /tmp/said
}
monitor() { echo "$1" >/tmp/monitor.in; sleep "$2"; }
threads() { for task in /proc/"$vm"/task/*; do taskset -p "$1" "${task##*/}" >/dev/null; done; }

mkfifo /tmp/monitor.in /tmp/monitor.out
cat /tmp/monitor.out >/dev/null &
sleep 100000 >/tmp/monitor.in &
taskset 3 qemu-system-x86_64 -accel kvm -cpu host -bios /tmp/writes -machine q35,memory-backend=m -m 192,slots=2,maxmem=1G -smp 1 \
    -object memory-backend-ram,id=m,size=192M,prealloc=on,host-nodes=0,policy=preferred -display none -nodefaults -no-user-config \
    -name writes,debug-threads=on -chardev pipe,id=c,path=/tmp/monitor -mon chardev=c &
vm=$!
sleep 10
tables "it runs on node 0"
check "KVM's tables are on the node of the vCPU" '^node 0: (9[0-9]|10[0-9]) of KVM'
threads c0
sleep 1
homenode doctor writes --fix >/tmp/log 2>&1
tail -3 /tmp/log
sleep 20
region "$vm" 192 >/tmp/said
check "its memory went to node 3" ' N3=49152 '
tables "20 s after vCPU and memory went to node 3"
check "KVM's tables stay" '^node 0: (9[0-9]|10[0-9]) of KVM'
monitor 'migrate -d "exec:sleep 1000"' 8
monitor migrate_cancel 5
tables "dirty logging was on and is off again"
check "dirty logging does not bring them along" '^node 0: (9[0-9]|10[0-9]) of KVM'
monitor stop 1
monitor cont 4
monitor 'object_add memory-backend-ram,id=d,size=128M' 1
monitor 'device_add pc-dimm,id=dimm,memdev=d' 4
monitor system_reset 5
tables "stopped and continued, a DIMM plugged in, reset"
check "nor does anything of these" '^node 0: (9[0-9]|10[0-9]) of KVM'
switch=/sys/module/kvm/parameters/nx_huge_pages
echo force >$switch
sleep 4
echo off >$switch
sleep 6
tables "nx_huge_pages was forced and is off again"
check "KVM drops all tables and makes them where the vCPU runs" '^node 3: (9[0-9]|10[0-9]) of KVM'
kill -9 "$vm"
