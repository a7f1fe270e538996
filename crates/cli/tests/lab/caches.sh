# Groups of vCPUs under one last-level cache each, on two NUMA nodes of two caches of 2 CPUs with KVM.
# Runs inside the lab (scripts/lab --nodes 2 --caches 2 --run).
. /lab/functions

# vm NAME VCPUS LINES: /tmp/NAME.toml.
vm() {
    printf 'name = "%s"\nvcpus = %s\nmemory = "128 MiB"\n%s\n' "$1" "$2" "$3" >"/tmp/$1.toml"
}

homenode topology >/tmp/said 2>&1
check "the machine has two caches a node" '^2 sockets, 2 NUMA nodes, 4 LLCs '

# --- As few caches as hold the vCPUs, and the guest is told.
vm packed 4 'policy = { cache = "pack", node_affinity = "1" }'
homenode plan /tmp/packed.toml >/tmp/said 2>&1
check "the plan lists the groups" '^0-1 +[0-9]+ [(]L3 .*[)] +4-5 +0$'
check "and tells the guest of a socket for each" '2 virtual sockets of 2 vCPUs$'
run packed
check "each group keeps to one cache" '^ +0 +0-3 +4-5 [|] 6-7 +1 +node 1: 128 MiB +bind:1 +yes$'
packed=$pid
affinity "$packed" >/tmp/said
check "the kernel lets vCPU 1 run under the first" '^CPU 1/KVM Cpus_allowed_list:[[:space:]]+4-5$'
check "the kernel lets vCPU 2 run under the second" '^CPU 2/KVM Cpus_allowed_list:[[:space:]]+6-7$'
homenode balance --once >/tmp/said 2>&1
affinity "$packed" >/tmp/said
check "a balancer leaves them there" '^CPU 2/KVM Cpus_allowed_list:[[:space:]]+6-7$'
homenode why packed --interval 0.5 >/tmp/said 2>&1
check "why says how loaded its caches are" '^vCPUs 0-1 keep to the cache of CPUs 4-5, loaded [0-9]+ %; that of CPUs 6-7'
homenode vm move packed --client 0 --to 0 >/tmp/said 2>&1
check "to a node that its spec forbids it is not moved" '[-]-to 0: it may live on nodes 1 only: policy.node_affinity of its spec'
end packed

# --- Groups go along to the other node.
vm free 4 'policy = { cache = "pack" }'
run free
free=$pid
affinity "$free" >/tmp/said
other=1 one_cache='4-5|6-7' both='4-5 6-7|6-7 4-5'
grep -Eq '^CPU 0/KVM .*[[:space:]](4-5|6-7)$' /tmp/said && other=0 one_cache='0-1|2-3' both='0-1 2-3|2-3 0-1'
homenode vm move free --client 0 --to $other >/tmp/said 2>&1
check "it is moved to the other node" "VM free: client 0 lives on node $other"
affinity "$free" >/tmp/said
check "its first group goes along" "^CPU 1/KVM Cpus_allowed_list:[[:space:]]+($one_cache)$"
one=$(sed -n 's,^CPU 0/KVM .*:[[:space:]]*,,p' /tmp/said)
two=$(sed -n 's,^CPU 3/KVM .*:[[:space:]]*,,p' /tmp/said)
echo "apart: $one $two" >/tmp/said
check "the second to the other cache" "^apart: ($both)$"
end free

# --- Who comes second gets the cache with fewer vCPUs, as the kernel shows them.
vm first 2 'policy = { cache = "pack", node_affinity = "1" }'
run first
check "the first has the first cache" '^ +0 +0-1 +4-5 +1 '
vm second 2 'policy = { cache = "pack", node_affinity = "1" }'
homenode plan /tmp/second.toml >/tmp/said 2>&1
check "the second is planned under the other" '^0-1 +[0-9]+ [(]L3 .*[)] +6-7 +0$'
run second
check "the second has the other" '^ +0 +0-1 +6-7 +1 '
end first
end second

# --- A cache for each vCPU.
vm own 2 'policy = { cache = "own", node_affinity = "0" }'
run own
check "each vCPU has a cache to itself" '^ +0 +0-1 +0-1 [|] 2-3 +0 '
end own

# --- Sockets that the policy states are groups by default; who ignores caches has none.
vm stated 4 'policy = { cores_per_socket = 2, node_affinity = "0" }'
run stated
check "each socket that is stated keeps to one cache" '^ +0 +0-3 +0-1 [|] 2-3 +0 '
end stated
vm ignored 4 'policy = { cores_per_socket = 2, cache = "ignore", node_affinity = "0" }'
run ignored
check "where caches are ignored all CPUs of the home are for all" '^ +0 +0-3 +0-3 +0 '
end ignored
vm both 2 'policy = { cache = "own", vcpu_binding = "core" }'
run both
check "one CPU each and a cache each are refused together" 'policy.cache = "own": it does not go with vcpu_binding'
check "as bad input" '^exit code: 2$'

# --- What a guest sees of them, under the plan's own sockets and as dies of one. A guest in here
# resets itself or hangs in one of some ten boots.
sees() {
    for _ in 1 2 3; do
        timeout 100 homenode run "/tmp/$1.toml" --check >/tmp/said 2>&1
        code=$?
        echo "exit code: $code" >>/tmp/said
        [ $code -eq 0 ] || grep -q 'does not see' /tmp/said || continue
        break
    done
}
vm dies 4 'policy = { cache = "pack", cores_per_socket = 4, node_affinity = "1" }'
for name in packed dies; do
    sees $name
    check "a guest sees the two caches of $name" 'last-level caches of CPUs 0-1 [|] 2-3$'
    check "and all else that was planned" '^VM [a-z]+: the guest sees the planned machine'
done

# --- Two VMs with a busy vCPU each under one cache: a balancer brings one of them under the other,
# and gives back what it had. Their firmware is one jump to itself, where a processor begins; by its
# memory and its monitor each looks like a VM of homenode's.
{ head -c 65520 /dev/zero; printf '\353\376'; head -c 14 /dev/zero; } >/tmp/spin
busy() {
    qemu-system-x86_64 -accel kvm -cpu host -bios /tmp/spin -display none -nodefaults -no-user-config -daemonize \
        -name "$1,debug-threads=on" -pidfile "/tmp/$1.pid" -machine q35,memory-backend=vnode0 -m 16 -smp 1 \
        -object memory-backend-ram,id=vnode0,size=16M,prealloc=on,host-nodes=1,policy=preferred \
        -chardev null,id=monitor || echo "FAIL $1 starts"
    for task in /proc/"$(cat "/tmp/$1.pid")"/task/*; do
        case $(cat "$task/comm") in CPU*) taskset -p 30 "${task##*/}" >/dev/null ;; esac
    done
}
# caches: those that the two may use, in order.
caches() {
    for name in left right; do
        affinity "$(cat /tmp/$name.pid)" | sed -n 's,^CPU 0/KVM .*:[[:space:]]*,,p'
    done | sort | tr '\n' ' ' >/tmp/said
}
busy left
busy right
printf '[balance]\nperiod_ms = 300\n' >/tmp/quick.toml
homenode balance --policy /tmp/quick.toml >/tmp/log 2>&1 &
balancer=$!
for _ in $(seq 60); do
    caches
    grep -q '^4-5 6-7 ' /tmp/said && break
    sleep 0.5
done
check "a balancer brings one of two busy groups under the other cache" '^4-5 6-7 '
cp /tmp/log /tmp/said
check "and says why" 'VM (left|right): cache move on node 1: vCPUs 0 from the cache of CPUs 4-5, loaded [0-9]+ %'
sleep 4
kill "$balancer"
wait "$balancer" 2>/dev/null
caches
check "there they stay" '^4-5 6-7 '
homenode balance --release >/tmp/said 2>&1
caches
check "what was done to them is given back" '^4-5 4-5 '
for name in left right; do kill "$(cat /tmp/$name.pid)"; done
