# What `homenode balance`, `top`, `why` and `doctor` must do on four NUMA nodes, for VMs that plain QEMU started. Runs inside the lab:
# scripts/lab --run crates/cli/tests/lab/balance.sh. Every check of a place is by the kernel's own words.
. /lab/functions

# vm NAME CPUS NODE: a paused VM of 2 vCPUs; its threads may use CPUS (a mask), its 256 MiB are filled on NODE, and nobody bound them there.
vm() {
    taskset "$2" qemu-system-x86_64 -S -accel kvm -cpu host -machine q35,memory-backend=m -m 256 -smp 2 \
        -object "memory-backend-ram,id=m,size=256M,prealloc=on,host-nodes=$3,policy=preferred" \
        -display none -nodefaults -no-user-config -name "$1,debug-threads=on" -daemonize -pidfile "/tmp/$1.pid" || echo "FAIL $1 starts"
}
# Where the kernel lets its vCPUs run, each set once.
affinity() {
    for task in /proc/"$(cat "/tmp/$1.pid")"/task/*; do
        case $(cat "$task/comm") in CPU*) grep Cpus_allowed_list "$task/status" ;; esac
    done | sort -u >/tmp/said
}
# Where the kernel has its 256 MiB.
pages() { grep -E 'anon=65536' "/proc/$(cat "/tmp/$1.pid")/numa_maps" >/tmp/said; }
# bind NAME MASK: what another program does to its vCPUs.
bind() {
    for task in /proc/"$(cat "/tmp/$1.pid")"/task/*; do
        case $(cat "$task/comm") in CPU*) taskset -p "$2" "${task##*/}" >/dev/null ;; esac
    done
}
# code WANTED: the exit code of the last command, in $code, was this.
code() { echo "exit code $code" >/tmp/said; check "$2" "^exit code $1\$"; }

vm stale 3 3      # CPUs of node 0, memory on node 3
vm floats ff 2    # all CPUs, memory on node 2
vm stays ff 1     # opted out below
# Node 2 is then the least loaded: both reasons for a home speak for it.
vm late c 3       # CPUs of node 1, memory on node 3
vm guard c0 2     # CPUs of node 3, memory on node 2

cat >/tmp/still.toml <<'EOF'
[balance]
period_ms = 500
move_memory = false
[[vm]]
name = "sta?s"
opt_out = true
EOF
sed 's/^move_memory.*//' /tmp/still.toml >/tmp/moving.toml

homenode balance --once --dry-run --policy /tmp/still.toml >/tmp/said 2>&1
cat /tmp/said
check "a dry run says where the VM that floats would go" 'VM floats: would do: gets a home, nodes 0-3 -> node 2: '
affinity floats; check "a dry run binds nothing" '^Cpus_allowed_list:[[:space:]]+0-7$'

homenode balance --once --policy /tmp/still.toml >/tmp/said 2>&1
check "one period gives a home" 'VM floats: gets a home, nodes 0-3 -> node 2: '
affinity floats; check "the kernel lets it run on node 2 alone" '^Cpus_allowed_list:[[:space:]]+4-5$'
affinity stale; check "a VM that was at one node stays there" '^Cpus_allowed_list:[[:space:]]+0-1$'
affinity stays; check "a VM that opted out is left alone" '^Cpus_allowed_list:[[:space:]]+0-7$'
pages stale; check "without move_memory no page moved" ' N3=65536 '

homenode top --interval 0.5 >/tmp/said 2>&1
cat /tmp/said
check "top shows memory at home" '^floats +[0-9]+ +2 +2 +256 MiB .* 100 '
check "top shows that a VM without a home floats" '^stays +[0-9]+ +floats '
check "top shows memory away" '^stale +[0-9]+ +0 +2 +256 MiB +25[0-9] MiB +[0-9]+ MiB +25[0-9] MiB +[0-9] '
homenode why floats --interval 0.5 >/tmp/said 2>&1
cat /tmp/said
check "why says the decision in its first sentence" '^It stays at home on node 2: '
check "why has a row for each node" '^3 +[0-9]+ % .* refused$'
check "why names what refuses a move, with what it saw and its limit" '^0-1,3 +gain_percent +-?[0-9.]+ % +2 %$'
if grep -Eq -e '-0(\.0+)?( |$)' /tmp/said; then echo "FAIL why has no negative zero"; else echo "PASS why has no negative zero"; fi

homenode doctor stale >/tmp/said 2>&1; code=$?
cat /tmp/said
check "doctor finds pages away from home" 'PROBLEM [0-9]+ +VM stale.*MiB of its memory are away from home'
code 1 "doctor says that something is wrong"
homenode doctor stale --fix >/tmp/said 2>&1
cat /tmp/said
check "doctor moves them" 'REPAIR +VM stale.*MiB moved'
pages stale; check "the kernel has all of them on node 0" 'prefer:3 anon=65536 .* N0=65536 '
homenode doctor stale >/tmp/said 2>&1
check "doctor finds the policy that was left behind" 'VM stale.*prefer:3'

# Who binds it to one node says that this is its home: so says the balancer, and so does doctor.
bind floats c0
homenode why floats --interval 0.5 >/tmp/said 2>&1
check "why takes the node that somebody bound it to for its home" '^It stays at home on node 3'
homenode doctor floats >/tmp/said 2>&1
check "and doctor would bring its memory there" 'move up to [0-9]+ MiB from node 2 to node 3'
# Two nodes beside its home are none.
bind floats c3
homenode doctor floats >/tmp/said 2>&1; code=$?
cat /tmp/said
check "doctor finds vCPUs away from home" 'PROBLEM [0-9]+ +VM floats.*may run on nodes 0,3'
code 1 "doctor says that vCPUs are wrong"
homenode doctor floats --fix >/tmp/said 2>&1; code=$?
affinity floats; check "doctor binds them again" '^Cpus_allowed_list:[[:space:]]+4-5$'

homenode balance --policy /tmp/moving.toml >/tmp/log 2>&1 &
balancer=$!
for second in $(seq 60); do
    sleep 1
    # Pages are there before the balancer, which works on in its period, says so.
    grep -q 'VM late: memory follows, node 3 -> node 1: ' /tmp/log && break
done
pages late; check "memory follows to node 1" 'prefer:3 anon=65536 .* N1=65536 '
cp /tmp/log /tmp/said
cat /tmp/said
check "the log says that memory followed" 'VM late: memory follows, node 3 -> node 1: '
homenode balance --once >/tmp/said 2>&1; code=$?
check "a second balancer is refused, with the first one's number" "another balancer runs on this host: process $balancer"
code 1 "the refusal is a failure"

kill -9 "$balancer"
wait "$balancer" 2>/dev/null
homenode balance --once --json --policy /tmp/moving.toml >/tmp/said 2>&1
cat /tmp/said
if grep -q '"event":"acted"' /tmp/said; then echo "FAIL a restart moves nothing"; else echo "PASS a restart moves nothing"; fi
affinity guard; check "an idle VM went to its memory: cheaper than moving that" '^Cpus_allowed_list:[[:space:]]+4-5$'
affinity floats; check "a killed balancer leaves VMs as they are" '^Cpus_allowed_list:[[:space:]]+4-5$'

kill "$(cat /tmp/late.pid)"
homenode balance --release >/tmp/said 2>&1; code=$?
cat /tmp/said
check "release says what it undid" 'VM floats, client 0: may run on CPUs 0-7 again'
code 0 "release succeeds"
affinity floats; check "release gives all CPUs back" '^Cpus_allowed_list:[[:space:]]+0-7$'
affinity guard; check "release gives a VM that was bound its old CPUs back" '^Cpus_allowed_list:[[:space:]]+6-7$'
affinity stale; check "release leaves what the balancer did not set" '^Cpus_allowed_list:[[:space:]]+0-1$'
homenode balance --release >/tmp/said 2>&1
check "there is nothing left to release" '^nothing to release'

for name in stale floats stays guard; do kill "$(cat /tmp/$name.pid)"; done

# Two virtual nodes, their memory on nodes 3 and 2, the vCPUs anywhere: each client goes to its own memory.
qemu-system-x86_64 -S -accel kvm -cpu host -machine q35 -m 256 -smp 4,sockets=2 \
    -object memory-backend-ram,id=a,size=128M,prealloc=on,host-nodes=3,policy=bind \
    -object memory-backend-ram,id=b,size=128M,prealloc=on,host-nodes=2,policy=bind \
    -numa node,nodeid=0,cpus=0-1,memdev=a -numa node,nodeid=1,cpus=2-3,memdev=b -numa dist,src=0,dst=1,val=12 \
    -display none -nodefaults -no-user-config -name wide,debug-threads=on -daemonize -pidfile /tmp/wide.pid
homenode balance --once >/tmp/said 2>&1
cat /tmp/said
for task in /proc/"$(cat /tmp/wide.pid)"/task/*; do
    echo "$(cat "$task/comm") $(grep Cpus_allowed_list "$task/status")"
done >/tmp/said
check "the first client is bound to node 3" '^CPU 1/KVM Cpus_allowed_list:[[:space:]]+6-7$'
check "the second client is bound to node 2" '^CPU 2/KVM Cpus_allowed_list:[[:space:]]+4-5$'
homenode doctor wide >/tmp/said 2>&1; code=$?
cat /tmp/said
code 0 "doctor finds nothing wrong with a wide VM at home"
kill "$(cat /tmp/wide.pid)"

# A VM whose threads have no names, 2 vCPUs, its memory on node 2: its monitor says which threads are vCPUs.
qemu-system-x86_64 -S -accel kvm -cpu host -machine q35,memory-backend=m -m 128 -smp 2 \
    -object memory-backend-ram,id=m,size=128M,prealloc=on,host-nodes=2,policy=bind \
    -display none -nodefaults -no-user-config -name mute -qmp unix:/tmp/mute.qmp,server=on,wait=off -daemonize -pidfile /tmp/mute.pid
homenode balance --once >/tmp/said 2>&1
cat /tmp/said
check "a VM without thread names gets a home" 'VM mute: gets a home, nodes 0-3 -> node 2: '
grep -h Cpus_allowed_list /proc/"$(cat /tmp/mute.pid)"/task/*/status | sort | uniq -c >/tmp/said
check "its vCPU threads are bound, and what shared their CPUs goes along" '^ +[2-9] Cpus_allowed_list:[[:space:]]+4-5$'
kill "$(cat /tmp/mute.pid)"

# Two wide VMs start at the same time, beside a balancer: each gets two nodes of its own, and the balancer gives none of them another home, also not
# for the load of the guest that boots: what appeared rests.
spec one ''
spec two ''
touch /tmp/before
sleep 1
homenode balance >/tmp/log 2>&1 &
balancer=$!
# It writes its state after its first look: what it sees later has just started.
for second in $(seq 60); do
    [ /run/homenode/balance.json -nt /tmp/before ] && break
    sleep 1
done
homenode run /tmp/one.toml --daemonize >/tmp/one.said 2>&1 &
first=$!
homenode run /tmp/two.toml --daemonize >/tmp/two.said 2>&1 &
second=$!
wait $first; code=$?
code 0 "the first of two parallel starts succeeds"
wait $second; code=$?
code 0 "the second of two parallel starts succeeds"
homenode vm list >/tmp/said 2>&1
cat /tmp/said
check "one of them is at home on nodes 0-1" ' 2 x 256 MiB +0-1 '
check "the other one is at home on nodes 2-3" ' 2 x 256 MiB +2-3 '
sleep 2
for qemu in $(pidof qemu-system-x86_64); do
    for task in "/proc/$qemu"/task/*; do
        case $(cat "$task/comm") in CPU*) grep Cpus_allowed_list "$task/status" ;; esac
    done
done | sort | uniq -c >/tmp/said
for cpus in 0-1 2-3 4-5 6-7; do check "two vCPUs run on CPUs $cpus" "^ +2 Cpus_allowed_list:[[:space:]]+$cpus\$"; done
kill "$balancer"
wait "$balancer" 2>/dev/null
cp /tmp/log /tmp/said
cat /tmp/said
check "the balancer saw both" 'VM (one|two) appeared'
if grep -q 'VM \(one\|two\).*->' /tmp/said; then echo "FAIL the balancer moved none of them"; else echo "PASS the balancer moved none of them"; fi
homenode vm stop one --force >/tmp/said 2>&1
homenode vm stop two --force >/tmp/said 2>&1
