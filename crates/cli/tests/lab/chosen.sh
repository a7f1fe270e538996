# What somebody chose of memory and threads stays, whoever set it: memory policies of processes and files, and what runs
# beside the vCPUs goes along with them. On four NUMA nodes, for VMs that plain QEMU started. Runs inside the lab:
#   gcc -static -o /tmp/policy crates/cli/tests/lab/policy.c
#   scripts/lab --bring /tmp/policy --run crates/cli/tests/lab/chosen.sh
. /lab/functions
echo never >/sys/kernel/mm/transparent_hugepage/enabled
printf '[balance]\nperiod_ms = 500\nmove_bytes_per_second = "1 GiB"\n' >/tmp/eager.toml

# vm NAME MASK MORE...: a paused VM of 2 vCPUs with 32 MiB of filled memory m, of whatever object MORE says; its threads may
# use the CPUs of MASK. POLICY: mode and nodes for the process.
vm() {
    vm_name=$1 vm_mask=$2
    shift 2
    # shellcheck disable=SC2086
    taskset "$vm_mask" ${POLICY:+policy $POLICY} qemu-system-x86_64 -S -display none -nodefaults -no-user-config -accel kvm -cpu host \
        -machine q35,memory-backend=m -m 32 -smp 2 -name "$vm_name,debug-threads=on" -monitor none -serial none \
        -daemonize -pidfile "/tmp/$vm_name.pid" "$@" || echo "FAIL $vm_name starts"
}
pid() { cat "/tmp/$1.pid"; }
# lies NAME: the kernel's words about its 32 MiB.
lies() { grep -E ' (anon|mapped|dirty)=8192 ' "/proc/$(pid "$1")/numa_maps" | head -1 >/tmp/said; }
# cpus NAME: where each of its threads may run.
cpus() {
    for task in /proc/"$(pid "$1")"/task/*; do
        echo "$(tr ' /' '__' <"$task/comm") $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "$task/status")"
    done >/tmp/said
}
ends() { kill -9 "$(pid "$1")"; rm -f "/tmp/$1.pid"; }
balances() { timeout 25 homenode balance --policy /tmp/eager.toml >/tmp/log 2>&1; }
none() { if grep -Eq -- "$2" /tmp/said; then echo "FAIL $1: there is a line '$2'"; cat /tmp/said; else echo "PASS $1"; fi; }
ram='memory-backend-ram,id=m,size=32M,prealloc=on'

# --- Policies, each of a VM that floats, and of one that somebody pinned elsewhere.
POLICY="bind 8" vm member ff -object "$ram"
POLICY="bind 8" vm pinned 3 -object "$ram"
POLICY="bind-static 4" vm static ff -object "$ram"
POLICY="bind 12" vm both ff -object "$ram"
POLICY="interleave 15" vm spread ff -object "$ram"
POLICY="preferred 8" vm prefers 3 -object "$ram"
POLICY="preferred-many 12" vm many 3 -object "$ram"
POLICY= vm pair ff -object "$ram,policy=interleave,host-nodes=2-3"
POLICY= vm pairpin 10 -object "$ram,policy=interleave,host-nodes=2-3"
policy bind 8 file /dev/shm/bound 33554432
POLICY= vm file ff -object "memory-backend-file,id=m,size=32M,mem-path=/dev/shm/bound,share=on,prealloc=on"
sleep 2
homenode top --interval 0.5 >/tmp/said 2>&1
cat /tmp/said
balances
cat /tmp/log
cp /tmp/log /tmp/said
none "the balancer moves no memory that somebody bound or interleaved" 'VM (member|pinned|static|both|spread|pair|pairpin|file): memory follows'
settled() {
    lies member; check "$1: --membind=3 keeps its memory" 'bind:3 .* N3=8192 '
    cpus member; check "$1: and has its vCPUs there" '^CPU_1_KVM 6-7$'
    lies pinned; check "$1: memory that is bound elsewhere than its pins stays" 'bind:3 .* N3=8192 '
    cpus pinned; check "$1: and so do the pins, which nothing is won by leaving" '^CPU_0_KVM 0-1$'
    lies static; check "$1: MPOL_F_STATIC_NODES is a binding too" 'bind=static:2 .* N2=8192 '
    cpus static; check "$1: with its vCPUs" '^CPU_0_KVM 4-5$'
    lies both; check "$1: memory bound to two nodes is on these" 'bind:2-3 .* N[23]='
    none "$1: and nowhere else" ' N[01]='
    lies spread; check "$1: --interleave=0-3 stays" 'interleave:0-3 .* N0=20[0-9][0-9] N1=20[0-9][0-9] N2=20[0-9][0-9] N3=20[0-9][0-9] '
    lies pair; check "$1: policy=interleave,host-nodes=2-3 stays" 'interleave:2-3 .* N2=40[0-9][0-9] N3=40[0-9][0-9] '
    cpus pair; check "$1: its vCPUs have both nodes" '^CPU_0_KVM 4-7$'
    lies pairpin; check "$1: pinned to one CPU it stays too" 'interleave:2-3 .* N2=40[0-9][0-9] N3=40[0-9][0-9] '
    cpus pairpin; check "$1: and its pin" '^CPU_0_KVM 4$'
    lies file; check "$1: the policy of a file binds" 'bind:3 .* N3=8192 '
}
settled "after balance"
lies prefers; check "preferred memory follows" 'prefer:3 .* N0=8192 '
lies many; check "so does that of preferred-many" 'prefer .many.:2-3 .* N0=8192 '
homenode doctor >/tmp/said 2>&1
cat /tmp/said
none "doctor finds nothing wrong with what was kept" '(PROBLEM|WARNING) .*VM (member|static|both|spread|pair|file):'
homenode doctor --fix >/tmp/log 2>&1
tail -40 /tmp/log
lies member; check "after doctor --fix: memory" 'bind:3 .* N3=8192 '
lies pinned; check "after doctor --fix: bound memory is where it was" 'bind:3 .* N3=8192 '
lies spread; check "after doctor --fix: interleaved memory" 'interleave:0-3 .* N0=20[0-9][0-9] N1=20[0-9][0-9] N2=20[0-9][0-9] N3=20[0-9][0-9] '
lies pair; check "after doctor --fix: interleaved memory of two nodes" 'interleave:2-3 .* N2=40[0-9][0-9] N3=40[0-9][0-9] '
lies file; check "after doctor --fix: the file" 'bind:3 .* N3=8192 '
for name in member pinned static both spread prefers many pair pairpin file; do ends $name; done

# --- What runs beside the vCPUs goes along with them: main thread, workers, I/O threads, and a process that serves the VM.
# all CPUS WHAT: no thread of the VM may use other CPUs; threads of KVM's own are not QEMU's.
all() {
    cpus "$1"
    for process in $(pidof policy); do echo "helper $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/"$process"/status)"; done >>/tmp/said
    grep -v '^kvm-' /tmp/said | grep -v " $2\$" >/tmp/others
    if [ -s /tmp/others ]; then echo "FAIL $3: these may not use CPUs $2:"; cat /tmp/others; else echo "PASS $3"; fi
}
policy serve /tmp/served.sock &
# A device that waits for nobody, named so that it looks like one of vhost-user's.
share='memory-backend-memfd,id=m,size=32M,share=on,prealloc=on,host-nodes=1,policy=preferred'
POLICY= vm served ff -object "$share" -object iothread,id=io1 -chardev socket,id=h,path=/tmp/served.sock,server=on,wait=off \
    -device virtio-serial-pci -device virtconsole,chardev=h,name=vhost-user
homenode balance --once --policy /tmp/eager.toml >/tmp/log 2>&1
cat /tmp/log
all served 2-3 "a first home takes all threads along"
homenode balance --release >/tmp/log 2>&1
all served 0-7 "and a release gives all of them what they had"
for process in $(pidof policy) $(pid served); do for task in /proc/"$process"/task/*; do taskset -p c0 "${task##*/}" >/dev/null; done; done
for task in /proc/"$(pid served)"/task/*; do case $(cat "$task/comm") in CPU*) taskset -p 3 "${task##*/}" >/dev/null ;; esac; done
homenode doctor served >/tmp/said 2>&1
cat /tmp/said
check "doctor finds threads away from the vCPUs" 'PROBLEM .*VM served: the emulator.s threads, iothread 1, policy'
check "the process that serves it is one of them" 'policy \(process [0-9]+\)'
homenode doctor served --fix >/tmp/log 2>&1
cat /tmp/log
cpus served
home=$(sed -n 's/^CPU_0_KVM //p' /tmp/said)
all served "$home" "doctor --fix brings all of them to the vCPUs"
homenode doctor served >/tmp/said 2>&1
none "and finds no thread away any more" 'may run only away'
ends served
for process in $(pidof policy); do kill -9 "$process"; done

printf 'name = "own"\nvcpus = 2\nmemory = "128 MiB"\n' >/tmp/own.toml
run own
cpus_of_own() { echo "$pid" >/tmp/own.pid; cpus own; }
cpus_of_own
cat /tmp/said
to=3
grep -q ' 6-7$' /tmp/said && to=0
homenode vm move own --client 0 --to $to >/tmp/log 2>&1
cat /tmp/log
cpus_of_own
grep -v '^kvm-' /tmp/said | grep -v " $((2 * to))-$((2 * to + 1))\$" >/tmp/others
if [ -s /tmp/others ]; then echo "FAIL vm move takes all threads along:"; cat /tmp/others; else echo "PASS vm move takes all threads along"; fi
end own
