# Groups of vCPUs under one last-level cache each, on two NUMA nodes of two caches of 2 CPUs with KVM.
# Runs inside the lab (scripts/lab --nodes 2 --caches 2 --run).
. /lab/functions

# vm NAME VCPUS LINES: /tmp/NAME.toml.
vm() {
    printf 'name = "%s"\nvcpus = %s\nmemory = "128 MiB"\n%s\n' "$1" "$2" "$3" >"/tmp/$1.toml"
}
run() {
    homenode run "/tmp/$1.toml" --daemonize >/tmp/said 2>&1
    echo "exit code: $?" >>/tmp/said
    pid=$(sed -n 's/^VM .*, process \([0-9]*\), .*/\1/p' /tmp/said)
}
end() {
    homenode vm stop "$1" --force >/dev/null 2>&1
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
end packed

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

# --- With auto sockets that the policy states are groups; by default they are none.
vm stated 4 'policy = { cores_per_socket = 2, cache = "auto", node_affinity = "0" }'
run stated
check "each socket that is stated keeps to one cache" '^ +0 +0-3 +0-1 [|] 2-3 +0 '
end stated
vm ignored 4 'policy = { cores_per_socket = 2, node_affinity = "0" }'
run ignored
check "by default all CPUs of the home are for all" '^ +0 +0-3 +0-3 +0 '
end ignored
vm both 2 'policy = { cache = "own", vcpu_binding = "core" }'
run both
check "one CPU each and a cache each are refused together" 'policy.cache = "own": it does not go with vcpu_binding'
check "as bad input" '^exit code: 2$'
