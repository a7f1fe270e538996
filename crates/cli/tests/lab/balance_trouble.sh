# What `homenode balance` must leave behind on four NUMA nodes when it is killed, stopped or fought, and what it must leave alone: VMs whose
# memory somebody bound. Runs inside the lab: scripts/lab --run crates/cli/tests/lab/balance_trouble.sh
. /lab/functions

# vm NAME NODE: a paused VM of 2 vCPUs that floats; its 128 MiB are filled on NODE, and nobody bound them there.
vm() {
    qemu-system-x86_64 -S -accel kvm -cpu host -machine q35,memory-backend=m -m 128 -smp 2 \
        -object "memory-backend-ram,id=m,size=128M,prealloc=on,host-nodes=$2,policy=preferred" \
        -display none -nodefaults -no-user-config -name "$1,debug-threads=on" -daemonize -pidfile "/tmp/$1.pid" || echo "FAIL $1 starts"
}
# Where the kernel lets the vCPUs of these VMs run, each set with how many.
affinities() {
    for name; do
        for task in /proc/"$(cat "/tmp/$name.pid")"/task/*; do
            case $(cat "$task/comm") in CPU*) grep Cpus_allowed_list "$task/status" ;; esac
        done
    done | sort | uniq -c >/tmp/said
}
# none WHAT PATTERN: what was said last has no such line.
none() { if grep -Eq "$2" /tmp/said; then echo "FAIL $1"; cat /tmp/said; else echo "PASS $1"; fi; }
journal=/run/homenode/balance.json.journal

# Two virtual nodes that somebody bound, one on a node whose CPUs are busy: they get those homes, and keep them.
qemu-system-x86_64 -S -accel kvm -cpu host -machine q35 -m 96 -smp 4,sockets=2 \
    -object memory-backend-ram,id=a,size=48M,prealloc=on,host-nodes=0,policy=bind \
    -object memory-backend-ram,id=b,size=48M,prealloc=on,host-nodes=1,policy=bind \
    -numa node,nodeid=0,cpus=0-1,memdev=a -numa node,nodeid=1,cpus=2-3,memdev=b \
    -display none -nodefaults -no-user-config -name wide,debug-threads=on -daemonize -pidfile /tmp/wide.pid
taskset 3 sh -c 'while :; do :; done' &
load=$!
homenode balance --once >/tmp/said 2>&1
cat /tmp/said
homenode balance --once >/tmp/again 2>&1
affinity "$(cat /tmp/wide.pid)" >/tmp/said
check "a virtual node is at home where somebody bound it, busy or not" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+0-1$'
check "and so is the other" '^CPU 2/KVM Cpus_allowed_list:[[:space:]]+2-3$'
grep -E 'bind:[01] anon=12288' "/proc/$(cat /tmp/wide.pid)/numa_maps" >/tmp/said
check "memory that somebody bound to node 0 is there" 'bind:0 anon=12288 .*N0=12288 '
check "memory that somebody bound to node 1 is there" 'bind:1 anon=12288 .*N1=12288 '
cp /tmp/again /tmp/said
none "no memory of it moved" 'memory follows'
kill "$load" "$(cat /tmp/wide.pid)"
homenode balance --release >/dev/null 2>&1

# The same with guests that run: a wide VM with a busy vCPU, three busy VMs beside it that float, many periods. Their firmware is one jump to
# itself, where a processor begins.
{ head -c 65520 /dev/zero; printf '\353\376'; head -c 14 /dev/zero; } >/tmp/spin
printf '[balance]\nperiod_ms = 300\nrest_periods = 1\nleast_gain_cpus = 0.0\n' >/tmp/eager.toml
busy() {
    name=$1
    shift
    qemu-system-x86_64 -accel kvm -cpu host -bios /tmp/spin -display none -nodefaults -no-user-config \
        -name "$name,debug-threads=on" -daemonize -pidfile "/tmp/$name.pid" "$@" || echo "FAIL $name starts"
}
busy wide -machine q35 -m 64 -smp 4,sockets=2 \
    -object memory-backend-ram,id=a,size=32M,prealloc=on,host-nodes=0,policy=bind \
    -object memory-backend-ram,id=b,size=32M,prealloc=on,host-nodes=1,policy=bind \
    -numa node,nodeid=0,cpus=0-1,memdev=a -numa node,nodeid=1,cpus=2-3,memdev=b
for name in first second third; do
    busy $name -machine q35,memory-backend=m -m 16 -smp 1 -object memory-backend-ram,id=m,size=16M,prealloc=on,host-nodes=0,policy=preferred
done
homenode balance --policy /tmp/eager.toml >/tmp/log 2>&1 &
balancer=$!
sleep 8
kill "$balancer"
wait "$balancer" 2>/dev/null
affinity "$(cat /tmp/wide.pid)" >/tmp/said
check "under load a virtual node stays where somebody bound it" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+0-1$'
check "and the other one does too" '^CPU 2/KVM Cpus_allowed_list:[[:space:]]+2-3$'
grep -E 'bind:[01] anon=8192' "/proc/$(cat /tmp/wide.pid)/numa_maps" >/tmp/said
check "under load memory stays on node 0" 'bind:0 anon=8192 .*N0=8192 '
check "under load memory stays on node 1" 'bind:1 anon=8192 .*N1=8192 '
cp /tmp/log /tmp/said
check "the VMs beside it were looked after" 'VM (first|second|third): gets a home'
none "nothing of it was moved" 'VM wide: (memory follows|.*, node [01] -> )'
cat /tmp/log
for name in wide first second third; do kill "$(cat /tmp/$name.pid)"; done
homenode balance --release >/dev/null 2>&1

# Killed in the midst of a period, again and again: whatever was bound by then is undone.
cat >/tmp/quick.toml <<'EOF'
[balance]
period_ms = 300
EOF
for name in one two three four; do vm $name 2; done
kills="1 3 5" moments="4 10"
[ "${long:-no}" = no ] || { kills="1 2 3 4 5" moments="2 4 6 8 10 13 17"; }
for lines in $kills; do
    rm -f "$journal"
    homenode balance --policy /tmp/quick.toml >/tmp/log 2>&1 &
    balancer=$!
    # So many actions have begun.
    for turn in $(seq 2000); do
        [ "$(wc -l 2>/dev/null <"$journal" || echo 0)" -ge "$lines" ] && break
        kill -0 "$balancer" 2>/dev/null || break
    done
    kill -9 "$balancer"
    wait "$balancer" 2>/dev/null
    homenode balance --release >/tmp/released 2>&1
    affinities one two three four
    check "killed when $lines actions had begun: release gives all vCPUs all CPUs back" '^ +8 Cpus_allowed_list:[[:space:]]+0-7$'
done
for tenths in $moments; do
    homenode balance --policy /tmp/quick.toml >/tmp/log 2>&1 &
    balancer=$!
    usleep "${tenths}00000"
    kill -9 "$balancer"
    wait "$balancer" 2>/dev/null
    homenode balance --release >/tmp/released 2>&1
    affinities one two three four
    check "killed after $tenths tenths of a second: all is undone" '^ +8 Cpus_allowed_list:[[:space:]]+0-7$'
done
cp /tmp/released /tmp/said
cat /tmp/said

# Killed while memory moves: 64 MiB at 8 MiB a second.
printf '[balance]\nperiod_ms = 300\nmove_bytes_per_second = "8 MiB"\n[[vm]]\nname = "mover"\nnode_affinity = "0"\n' >/tmp/slow.toml
qemu-system-x86_64 -S -accel kvm -cpu host -machine q35,memory-backend=m -m 64 -smp 2 \
    -object memory-backend-ram,id=m,size=64M,prealloc=on,host-nodes=3,policy=preferred \
    -display none -nodefaults -no-user-config -name mover,debug-threads=on -daemonize -pidfile /tmp/mover.pid
homenode balance --policy /tmp/slow.toml >/tmp/log 2>&1 &
balancer=$!
where() { grep -E 'prefer:3 anon=16384' "/proc/$(cat /tmp/mover.pid)/numa_maps" >/tmp/said; }
for turn in $(seq 300); do
    where
    grep -q ' N0=' /tmp/said && break
    usleep 100000
done
kill -9 "$balancer"
wait "$balancer" 2>/dev/null
where
check "killed while memory moved: a part is there" ' N0=[0-9]+ N3=[0-9]+ '
homenode top --once >/tmp/said 2>&1
check "top says that the last balancer was killed at it" 'no balancer runs: the last one ended in the middle of: .*mover'
homenode balance --release >/tmp/said 2>&1
affinities mover
check "killed while memory moved: release gives its CPUs back" '^ +2 Cpus_allowed_list:[[:space:]]+0-7$'
homenode balance --release >/tmp/said 2>&1
check "killed while memory moved: nothing is left to release" '^nothing to release'
kill "$(cat /tmp/mover.pid)"

# Somebody without rights: cannot hold the lock, cannot start a second one, cannot keep one from starting.
mkdir -p /etc
echo 'root:x:0:0::/:/bin/sh' >/etc/passwd
echo 'mallory:x:1000:1000::/tmp:/bin/sh' >>/etc/passwd
mkdir -p /tmp/mallory && chown 1000 /tmp/mallory
as_mallory() { su mallory -s /bin/sh -c "XDG_RUNTIME_DIR=/tmp/mallory $1"; }
as_mallory 'homenode balance >/tmp/mallory/log 2>&1 & echo $! >/tmp/mallory/pid'
for second in $(seq 30); do [ -s /tmp/mallory/homenode/balance.json ] && break; sleep 1; done
homenode balance --policy /tmp/quick.toml >/tmp/log 2>&1 &
balancer=$!
for second in $(seq 30); do sleep 1; grep -q 'VM four: gets a home' /tmp/log && break; done
cp /tmp/log /tmp/said
check "one of the system starts beside that of a user" 'VM four: gets a home'
cat /tmp/mallory/log >/tmp/said
check "the one of the user ran by then" 'balancing 4 VMs on 4 NUMA nodes'
kill "$(cat /tmp/mallory/pid)"
as_mallory 'homenode balance --once --state /tmp/mallory/mine.json' >/tmp/said 2>&1
check "a user's is refused beside one of the system, wherever its state is" "another balancer runs on this host: process $balancer"
homenode balance --once --state /tmp/elsewhere.json >/tmp/said 2>&1
check "root's second one is refused, wherever its state is" "another balancer runs on this host: process $balancer"
as_mallory 'cat /run/homenode-balance/balance.lock' >/tmp/said 2>&1
check "nobody else can open the lock" 'ermission denied'
kill -STOP "$balancer"
homenode top --once >/tmp/said 2>&1
check "top says that the balancer is stopped" "STOPPED: process $balancer"
kill -CONT "$balancer"
kill "$balancer"
wait "$balancer" 2>/dev/null
homenode balance --release >/tmp/said 2>&1
affinities one two three four
check "all is undone at the end" '^ +8 Cpus_allowed_list:[[:space:]]+0-7$'
for name in one two three four; do kill "$(cat /tmp/$name.pid)"; done

# A thread of the kernel that moves a VM's packets goes along, and gets back what it had itself.
if [ -e /dev/vhost-net ] && [ -e /dev/net/tun ]; then
    qemu-system-x86_64 -S -accel kvm -cpu host -machine q35,memory-backend=m -m 64 -smp 2 \
        -object memory-backend-ram,id=m,size=64M,prealloc=on,host-nodes=1,policy=preferred \
        -netdev tap,id=n,script=no,downscript=no,vhost=on -device virtio-net-pci,netdev=n,romfile= \
        -display none -nodefaults -no-user-config -name packets,debug-threads=on -daemonize -pidfile /tmp/packets.pid
    packets=$(cat /tmp/packets.pid)
    vhost=$(grep -l "^vhost-$packets$" /proc/[0-9]*/comm "/proc/$packets/task"/*/comm 2>/dev/null | head -n 1)
    vhost=${vhost%/comm}
    taskset -p f0 "${vhost##*/}" >/dev/null
    homenode balance --once >/tmp/said 2>&1
    cat /tmp/said
    grep Cpus_allowed_list "$vhost/status" >/tmp/said
    check "a vhost thread goes along with its VM" '^Cpus_allowed_list:[[:space:]]+2-3$'
    homenode balance --release >/tmp/said 2>&1
    cat /tmp/said
    grep Cpus_allowed_list "$vhost/status" >/tmp/said
    check "released, a vhost thread has its own old CPUs, not those of the vCPUs" '^Cpus_allowed_list:[[:space:]]+4-7$'
    affinities packets
    check "and the vCPUs have theirs" '^ +2 Cpus_allowed_list:[[:space:]]+0-7$'
    kill "$packets"
else
    echo "SKIPPED a vhost thread that goes along: this kernel came without vhost_net or tun"
fi
