# Pages of 1 GiB, on three NUMA nodes of 3 GiB and 2 CPUs with KVM: a node gives such a page only
# where a whole GiB of it is free. Runs inside the lab (scripts/lab --nodes 3 --node-gib 3 --run).
. /lab/functions

pool() {
    echo "/sys/devices/system/node/node$1/hugepages/hugepages-1048576kB"
}
grep -q -w pdpe1gb /proc/cpuinfo || { echo "SKIP the lab's CPU has no pages of 1 GiB"; exit; }
cat >/tmp/wide.toml <<'END'
name = "wide"
vcpus = 2
memory = "2 GiB"
[policy]
virtual_nodes = [{ vcpus = 1, memory = "1 GiB" }, { vcpus = 1, memory = "1 GiB" }]
[backing]
huge_pages = "1 GiB"
END
homenode run /tmp/wide.toml --daemonize >/tmp/said 2>&1
check "without a pool it is refused, with the command for one" \
    'needs 2 huge pages of 1 GiB; .* has 0 free .* as root, echo [12] > .*/hugepages-1048576kB/nr_hugepages'
for node in 1 2; do
    echo 1 >"$(pool $node)/nr_hugepages"
done
echo "free: $(cat "$(pool 1)/free_hugepages") $(cat "$(pool 2)/free_hugepages")" >/tmp/said
check "the kernel finds a page on each of two nodes" '^free: 1 1$'
homenode run /tmp/wide.toml --daemonize >/tmp/said 2>&1
check "virtual node 0 is a page of node 1" '^ +0 +0 +2-3 +1 +node 1: 1 GiB +bind:1 +yes$'
check "virtual node 1 is a page of node 2" '^ +1 +1 +4-5 +2 +node 2: 1 GiB +bind:2 +yes$'
grep ' huge ' "/proc/$(pidof qemu-system-x86_64)/numa_maps" >/tmp/said
check "the kernel has one page of 1 GiB on node 1" ' bind:1 .*huge .* N1=1 kernelpagesize_kB=1048576'
check "the kernel has one page of 1 GiB on node 2" ' bind:2 .*huge .* N2=1 kernelpagesize_kB=1048576'
homenode top --once >/tmp/said 2>&1
check "top has it at home" '^wide .* 1-2 .* 2 GiB +2048 MiB +2048 MiB +0 MiB +100 '
sed 's/"wide"/"more"/' /tmp/wide.toml >/tmp/more.toml
homenode run /tmp/more.toml --daemonize >/tmp/said 2>&1
check "a second one finds the pools empty" 'has 0 free \(node 0: 0 of 0, node 1: 0 of 1, node 2: 0 of 1\)'
homenode vm stop wide --force >/tmp/said 2>&1
echo "free: $(cat "$(pool 1)/free_hugepages") $(cat "$(pool 2)/free_hugepages")" >/tmp/said
check "its pages are given back" '^free: 1 1$'
