# Huge pages of each node's pool, memory that is promised and taken on touch, one hardware thread for
# each vCPU, and room for a VM that grows, on four NUMA nodes of 1 GiB and 2 CPUs with KVM. Runs
# inside the lab (scripts/lab --run).
. /lab/functions

# vm NAME VCPUS MIB LINES: /tmp/NAME.toml.
vm() {
    printf 'name = "%s"\nvcpus = %s\nmemory = "%s MiB"\n%s\n' "$1" "$2" "$3" "$4" >"/tmp/$1.toml"
}
# free NODE: free huge pages of its pool.
free() {
    cat "/sys/devices/system/node/node$1/hugepages/hugepages-2048kB/free_hugepages"
}

# --- Huge pages: 256 MiB in two virtual nodes are 64 pages of 2 MiB on each of two nodes.
vm huge 4 256 '[backing]
huge_pages = "2 MiB"
[policy]
node_affinity = "2-3"'
run huge
check "a pool that lacks pages is refused" \
    'needs 128 huge pages of 2 MiB; .* has 0 free \(node 2: 0 of 0, node 3: 0 of 0\)'
check "and that is no bad input" '^exit code: 1$'
sed -n 's/.*: as root, \(echo .*nr_hugepages\), or make it smaller.*/\1/p' /tmp/said >/tmp/more.sh
sh /tmp/more.sh
echo "free: $(free 1) $(free 2) $(free 3)" >/tmp/said
check "the command that is named makes as many as it takes" '^free: 0 64 64$'
run huge
check "then it runs, with virtual node 0 on node 2" '^ +0 +0-1 +4-5 +2 +node 2: 128 MiB +bind:2 +yes$'
check "and virtual node 1 on node 3" '^ +1 +2-3 +6-7 +3 +node 3: 128 MiB +bind:3 +yes$'
qemu=$(pidof qemu-system-x86_64)
grep ' huge ' "/proc/$qemu/numa_maps" >/tmp/said
check "the kernel has 64 huge pages on node 2 alone" ' bind:2 .*huge .* N2=64 kernelpagesize_kB=2048'
check "the kernel has 64 huge pages on node 3 alone" ' bind:3 .*huge .* N3=64 kernelpagesize_kB=2048'
grep -E '^(Uid|CapEff):' "/proc/$qemu/status" | tr -s '\t' ' ' >/tmp/said
check "QEMU needs no right for it" '^CapEff: 0+$'
sed 's/"huge"/"more"/' /tmp/huge.toml >/tmp/more.toml
run more
check "a second one finds the pools empty" 'has 0 free \(node 2: 0 of 64, node 3: 0 of 64\): as root, echo 128 >'
end huge
echo "free: $(free 2) $(free 3)" >/tmp/said
check "its pages are given back" '^free: 64 64$'
for node in 2 3; do
    echo 0 >"/sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages"
done

# --- Memory that is promised and taken on touch: node 1 has less than 1 GiB, of which 300 MiB are
# taken.
vm base 1 300 'policy.node_affinity = "1"'
run base
check "a VM takes its memory at the start" 'node 1: 300 MiB +bind:1 +yes$'
vm lazy 1 800 'policy.node_affinity = "1"'
run lazy
check "a second one that does not fit beside it is refused" 'VM `lazy` needs 800 MiB of memory'
cat >>/tmp/lazy.toml <<'END'
[backing]
fill = "on_touch"
END
run lazy
check "with on_touch it starts, and the plan says what is promised and what is free" \
    'node 1: 800 MiB promised, [0-9.]+ MiB free; overcommitted by [0-9.]+ MiB'
check "it prefers its home" 'prefer:1 +yes$'
check "it did start" '^exit code: 0$'
grep ' prefer:1 ' "/proc/$pid/numa_maps" | grep -o 'N[0-9]=[0-9]*' | sort | head -1 >/tmp/said
check "what it touched is at home" '^N1='
awk '/ prefer:1 / { for (i = 3; i <= NF; i++) if ($i ~ /^N[0-9]=/) { split($i, part, "="); pages += part[2] } }
    END { print "MiB: " int(pages / 256) }' "/proc/$pid/numa_maps" >/tmp/said
check "and it touched a part of what it was promised" '^MiB: [1-9][0-9]?[0-9]?$'
homenode vm show lazy >/tmp/said 2>&1
check "vm show says how much of it is taken" 'touches it: [0-9.]+ MiB of 800 MiB so far'
homenode vm list >/tmp/said 2>&1
check "vm list says so too" '^lazy +running .* KVM +[0-9.]+ MiB of 800 MiB$'
homenode top --once >/tmp/said 2>&1
check "top says what the node promised" '^1 +2-3 .* 1[.][01] GiB '
homenode doctor >/tmp/said 2>&1
check "doctor names the node that promised more than it has" 'node 1 has .* and 1.* of it are promised to VMs'
check "and who may still take it" 'still to be taken: lazy [0-9.]+ MiB'
vm third 1 64 'policy.node_affinity = "1"'
run third
check "what is promised is promised to nobody else" 'VM `third` needs 64 MiB of memory; .* has 0 B to give'
vm giant 1 4200 '[backing]
fill = "on_touch"'
run giant
check "more than the machine has is promised to nobody" 'memory = ".*" is more than .* has \('
grep '^oom_kill ' /proc/vmstat >/tmp/said
check "the kernel killed nobody for lack of memory" '^oom_kill 0$'
end lazy
end base

# --- One hardware thread for each vCPU.
vm bound 2 256 'policy = { vcpu_binding = "core", node_affinity = "3" }'
run bound
check "each vCPU has a CPU of its own" '^ +0 +0-1 +6 \| 7 +3 +node 3: 256 MiB +bind:3 +yes$'
bound=$pid
affinity "$bound" >/tmp/said
check "the kernel lets vCPU 0 run on CPU 6 alone" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+6$'
check "the kernel lets vCPU 1 run on CPU 7 alone" '^CPU 1/KVM Cpus_allowed_list:[[:space:]]+7$'
homenode balance --once >/tmp/said 2>&1
affinity "$bound" >/tmp/said
check "a balancer leaves them there" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+6$'
sed 's/"bound"/"beside"/' /tmp/bound.toml >/tmp/beside.toml
run beside
check "a second one finds no CPU there" 'other VMs have each CPU of the nodes "3" to themselves'
vm floats 2 256 'policy.node_affinity = "3"'
run floats
check "one that floats may live beside it" '^exit code: 0$'
end floats
homenode vm list >/tmp/said 2>&1
check "it is listed with its home" "^bound +running .* 3 +KVM"
end bound
homenode vm list >/tmp/said 2>&1
check "and it is stopped as others are" "^bound +stopped"

# --- A home without room: what is said makes room, typed as it stands. Node 1 has less than 1 GiB, of
# which the kernel and QEMU take a part.
vm grows 1 128 'max_memory = "1 GiB"
max_vcpus = 2
policy.vnuma = false
boot = { from = "kernel", kernel = "/guest/vmlinux", initrd = "/guest/initramfs" }'
# Moved there by hand: what is to move again must have no affinity of its own.
run grows
homenode vm move grows --client 0 --to 1 >/dev/null 2>&1
homenode vm show grows >/tmp/said 2>&1
check "a VM that may grow lives on node 1" 'node 1: 128 MiB +(bind|interleave):[0-3-]+ +yes$'
grows=$pid
vm beside 1 450 ''
run beside
homenode vm move beside --client 0 --to 1 >/dev/null 2>&1
homenode vm show beside >/tmp/said 2>&1
check "another one lives beside it" 'node 1: 450 MiB +bind:[0-3] +yes$'
beside=$pid
# Until its guest has booted it has no driver.
for second in $(seq 60); do
    homenode vm set grows --memory "528 MiB" >/tmp/said 2>&1
    echo "exit code: $?" >>/tmp/said
    grep -q 'no driver' /tmp/said || break
    sleep 1
done
check "a home without room is refused" 'virtual node 0 is to get 400 MiB on node 1, which has .* free; this makes room'
check "and nothing was changed" '^exit code: 1$'
grep -o 'homenode vm move beside [^`]*' /tmp/said >/tmp/move.sh
homenode vm move beside --client 0 --to 9 >/tmp/said 2>&1
echo "exit code: $?" >>/tmp/said
check "a node that is not there is refused" '--to 9: no node .* this host has 0-3'
check "as bad input" '^exit code: 2$'
sh /tmp/move.sh >/tmp/said 2>&1
check "the command that is named moves the other VM" '^VM beside: client 0 lives on node [023]; [45][0-9.]+ MiB of its memory came with it$'
homenode vm show beside >/tmp/said 2>&1
check "its record says where it lives" 'client 0 moved from node 1 to node [023]$'
check "and so does the kernel" ' +node [023]: 450 MiB +bind:[0-3] +yes$'
homenode vm set grows --memory "528 MiB" >/tmp/said 2>&1
echo "exit code: $?" >>/tmp/said
check "then there is room" '^exit code: 0$'

# --- What was plugged in goes along, moved by hand and by the balancer.
# on_nodes: MiB of guest memory of VM `grows` on each node.
on_nodes() {
    awk '/ (bind|interleave|prefer)/ {
            for (i = 3; i <= NF; i++) if ($i ~ /^N[0-9]=/) { split(substr($i, 2), part, "="); pages[part[1]] += part[2] }
        }
        END { for (node in pages) print "node " node ": " int(pages[node] / 256) " MiB" }' "/proc/$grows/numa_maps" |
        sort >/tmp/said
}
on_nodes
check "what was plugged in is at home" '^node 1: (5[23])[0-9] MiB$'
homenode vm move grows --client 0 --to 3 >/tmp/moved 2>&1
on_nodes
check "memory that was plugged in moves with its client" '^node 3: (5[23])[0-9] MiB$'
homenode vm set grows --memory "628 MiB" >/tmp/moved 2>&1
on_nodes
check "what comes later is bound to the new home" '^node 3: 6[23][0-9] MiB$'
homenode vm show grows >/tmp/said 2>&1
check "its record knows both" 'client 0 moved from node 1 to node 3$'
printf '[[vm]]\nname = "grows"\nnode_affinity = "2"\n' >/tmp/policy.toml
for period in $(seq 20); do
    homenode balance --once --policy /tmp/policy.toml >/tmp/balanced 2>&1
    on_nodes
    ! grep -q '^node 2: 6[23]' /tmp/said || break
done
check "the balancer brings it all to another home" '^node 2: 6[23][0-9] MiB$'
homenode vm show grows >/tmp/said 2>&1
check "and its record says so" 'client 0 moved from node 3 to node 2$'
end grows
end beside
