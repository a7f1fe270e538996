# A VM that prefers hardware threads stays on the core that its two busy vCPUs share, whatever node idles: for ten minutes with
# --long. Runs inside the lab, on two nodes of one core of two threads:
#   scripts/lab --nodes 2 --threads-per-core 2 --run crates/cli/tests/lab/prefer_ht.sh
. /lab/functions
seconds=60
[ "$long" = no ] || seconds=600

# The firmware is one jump to itself, where a processor begins: each vCPU is busy.
{ head -c 65520 /dev/zero; printf '\353\376'; head -c 14 /dev/zero; } >/tmp/spin
printf '[balance]\nperiod_ms = 500\n' >/tmp/policy.toml
# busy NAME MORE...: a VM of 2 busy vCPUs on node 1, of which something is stated.
busy() {
    busy_name=$1
    shift
    taskset c qemu-system-x86_64 -accel kvm -cpu host -bios /tmp/spin -display none -nodefaults -no-user-config \
        -machine q35,memory-backend=m -m 32 -smp 2,sockets=2 -name "$busy_name,debug-threads=on" -daemonize -pidfile "/tmp/$busy_name.pid" \
        -object memory-backend-ram,id=m,size=32M,prealloc=on,host-nodes=1,policy=preferred "$@" || echo "FAIL $busy_name starts"
}
lives() {
    affinity "$(cat "/tmp/$1.pid")" | sed 's/.*Cpus_allowed_list:[[:space:]]*//' | sort -u >/tmp/said
}
spec first 'policy.prefer_ht = true'
homenode run /tmp/first.toml --dry-run >/tmp/said 2>&1
check "the mark on the command line has it" 'policy--prefer_ht'

busy prefers -chardev null,id=policy--prefer_ht
homenode balance --policy /tmp/policy.toml >/tmp/log 2>&1 &
balancer=$!
sleep $seconds
cp /tmp/log /tmp/said
cat /tmp/said
if grep -q 'load move' /tmp/said; then echo "FAIL it is moved for no load"; else echo "PASS it is moved for no load"; fi
lives prefers; check "it has the threads of its node alone" '^2-3$'
homenode why prefers --interval 1 >/tmp/said 2>&1
cat /tmp/said
check "why says that its spec wants it so" 'prefer_ht = true, as its spec says'
kill $balancer
wait $balancer 2>/dev/null
kill -9 "$(cat /tmp/prefers.pid)"

# The same by a rule, and without either.
printf '[[vm]]\nname = "ruled"\nprefer_ht = true\n' | cat /tmp/policy.toml - >/tmp/rule.toml
busy ruled
timeout 40 homenode balance --policy /tmp/rule.toml >/tmp/said 2>&1
cat /tmp/said
lives ruled; check "a rule of the policy says the same" '^2-3$'
timeout 40 homenode balance --policy /tmp/policy.toml >/tmp/said 2>&1
cat /tmp/said
lives ruled; check "one that does not prefer it gets both nodes" '^0-3$'
kill -9 "$(cat /tmp/ruled.pid)"
