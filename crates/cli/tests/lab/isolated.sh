# Isolated CPUs: what the kernel does with them, and where homenode puts VMs, on two NUMA nodes of 4
# CPUs of which 2 and 3 are isolated. Runs inside the lab (scripts/lab --nodes 2 --cpus-per-cache 4
# --isolated 2-3 --run).
. /lab/functions

# used MASK: CPUs that three busy tasks are seen on which may use those of a hexadecimal mask.
used() {
    busy=""
    for _ in 1 2 3; do
        taskset "$1" sh -c 'while :; do :; done' &
        busy="$busy $!"
    done
    for _ in 1 2 3 4 5 6; do
        sleep 0.5
        for task in $busy; do cut -d ' ' -f 39 "/proc/$task/stat"; done
    done | sort -u | tr '\n' ' '
    kill $busy
    wait $busy 2>/dev/null
}

homenode topology >/tmp/said 2>&1
check "the topology says which CPUs are isolated" '^isolated: CPUs 2-3'
echo "used: $(used f)" >/tmp/said
check "tasks that may use isolated CPUs and others use the others" '^used: (0 1|0|1) $'
echo "used: $(used c)" >/tmp/said
check "tasks that may use isolated CPUs alone stay on one" '^used: [23] $'

# vm NAME LINES: /tmp/NAME.toml of 2 vCPUs and 128 MiB on node 0.
vm() {
    printf 'name = "%s"\nvcpus = 2\nmemory = "128 MiB"\n[policy]\nnode_affinity = "0"\n%s\n' "$1" "$2" >"/tmp/$1.toml"
}

vm rt 'latency_sensitive = true
vcpu_binding = "core"'
run rt
check "a latency-sensitive VM starts" '^exit code: 0$'
affinity "$pid" >/tmp/said
check "its vCPU 0 has an isolated CPU" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+2$'
check "its vCPU 1 has the other" '^CPU 1/KVM Cpus_allowed_list:[[:space:]]+3$'
grep Cpus_allowed_list "/proc/$pid/status" >/tmp/said
check "QEMU's main thread is on CPUs that the kernel balances" 'Cpus_allowed_list:[[:space:]]+0-1$'
homenode doctor rt >/tmp/said 2>&1
echo "exit code: $?" >>/tmp/said
check "doctor finds nothing that is wrong" '^exit code: 0$'
vm floats ''
run floats
affinity "$pid" >/tmp/said
check "a VM that floats has the others" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+0-1$'
end floats
end rt

start heap -smp 2 -m 64
for task in /proc/$vm/task/*; do
    taskset -p c "${task##*/}" >/dev/null
done
homenode doctor heap >/tmp/said 2>&1
check "doctor finds vCPUs that may use several isolated CPUs" 'CPUs 2-3, which are isolated: the kernel spreads nothing'
homenode doctor heap --fix >/tmp/said 2>&1
affinity "$vm" >/tmp/said
check "doctor --fix gives vCPU 0 one" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+2$'
check "and vCPU 1 the other" '^CPU 1/KVM Cpus_allowed_list:[[:space:]]+3$'
homenode balance --once >/tmp/said 2>&1
affinity "$vm" >/tmp/said
check "a balancer leaves them there" '^CPU 1/KVM Cpus_allowed_list:[[:space:]]+3$'
stop
