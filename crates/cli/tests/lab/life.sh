# The life of a VM with a real guest, on one machine with KVM and nodes of 1 GiB and 2 CPUs. Two
# emulated machines at once would be too slow. So three homenodes stand for three hosts, each
# confined by a cgroup to nodes of its own: of 8 nodes host a has 0-3, b 4-5 and c all; of 4 nodes a
# has 0-1, b 2-3 and c all. The guest writes and checks a pattern in each of its virtual nodes all the
# time, on each of its CPUs in turn, and counts the seconds. Runs inside the lab (scripts/lab --run).
. /lab/functions

# host NAME CPUS NODES: homenode on that host is on-NAME.
host() {
    mkdir -p "/sys/fs/cgroup/$1"
    echo "$2" >"/sys/fs/cgroup/$1/cpuset.cpus"
    echo "$3" >"/sys/fs/cgroup/$1/cpuset.mems"
    cat >"/bin/on-$1" <<END
#!/bin/sh
echo \$\$ >/sys/fs/cgroup/$1/cgroup.procs
export HOMENODE_RUNTIME_DIR=/run/host-$1
exec homenode "\$@"
END
    chmod 755 "/bin/on-$1"
}
if [ "$nodes" -eq 8 ]; then
    host a 0-7 0-3
    host b 8-11 4-5
    on_a='[0-3]' on_b='[45]' elsewhere_than_b='[0-367]'
else
    host a 0-3 0-1
    host b 4-7 2-3
    on_a='[01]' on_b='[23]' elsewhere_than_b='[01]'
fi
host c "0-$((2 * nodes - 1))" "0-$((nodes - 1))"
# What stands for ssh: HOST, and a command that begins with homenode's name.
cat >/bin/to-host <<'END'
#!/bin/sh
host=${1#root@}
shift
[ $# -gt 1 ] || set -- $1
shift
exec on-$host "$@"
END
chmod 755 /bin/to-host
export HOMENODE_SSH=/bin/to-host

cat >/tmp/g.toml <<'END'
name = "g"
vcpus = 4
max_vcpus = 6
memory = "256 MiB"
max_memory = "1 GiB"
console = { to = "file", path = "/tmp/g.console" }

[policy]
virtual_nodes = [
    { vcpus = 2, memory = "128 MiB", max_vcpus = 3, max_memory = "512 MiB" },
    { vcpus = 2, memory = "128 MiB", max_vcpus = 3, max_memory = "512 MiB" },
]

[boot]
from = "kernel"
kernel = "/guest/vmlinux"
initrd = "/guest/initramfs"
command_line = "maxcpus=1 homenode.pattern=16 quiet"
END

# do_it COMMAND...: what it says, and its exit code, in /tmp/said.
do_it() {
    "$@" >/tmp/said 2>&1
    echo "exit code: $?" >>/tmp/said
}
# give_up: what comes next needs what just failed.
give_up() {
    tail -5 /tmp/g.console | sed 's/^/    /'
    exit
}
# succeeds WHAT: the last command did.
succeeds() {
    check "$1" '^exit code: 0$'
    grep -q '^exit code: 0$' /tmp/said || give_up
}
# round: the last round that the guest told of.
round() {
    sed -n 's/.*pattern: round \([0-9]*\), .*/\1/p' /tmp/g.console 2>/dev/null | tail -1
}
# goes_on WHAT: the guest ends eight more rounds, each on another CPU: all of its CPUs run.
goes_on() {
    local from=$(round)
    local until=$((${from:-0} + 8)) now
    for _ in $(seq 120); do
        now=$(round)
        [ "${now:-0}" -lt $until ] || { echo "PASS $1: the guest goes on"; return; }
        sleep 0.5
    done
    echo "FAIL $1: the guest stands still after round $from"
    give_up
}
# no_word_is_wrong AFTER: no word of the pattern changed, no round is missing.
no_word_is_wrong() {
    sed -n 's/.*pattern: round \([0-9]*\), \([0-9]*\) wrong.*/\1 \2/p' /tmp/g.console |
        awk 'NR > 1 && $1 != last + 1 { gaps++ }
            { last = $1; wrong += $2 }
            END { print "rounds " NR ", gaps " gaps + 0 ", wrong " wrong + 0 }' >/tmp/said
    check "after $1: the pattern is whole, no round is missing" '^rounds [1-9][0-9]*, gaps 0, wrong 0$'
}
# guest_sees HOST: what the guest's own /sys says, in /tmp/said.
guest_sees() {
    local from=$(wc -l </tmp/g.console)
    (echo topology; sleep 60) | "on-$1" vm console g >/dev/null 2>&1 &
    for _ in $(seq 60); do
        tail -n "+$((from + 1))" /tmp/g.console | tr -d '\r' | grep -v pattern: >/tmp/said
        ! grep -q '^node 1:' /tmp/said || break
        sleep 0.5
    done
    kill $!
}
# memory_is_on WHERE NODES [ELSEWHERE]: as numa_maps says, in lines `node 4: 128 MiB`.
memory_is_on() {
    awk '/ (bind|interleave|prefer)/ {
            for (i = 3; i <= NF; i++)
                if ($i ~ /^N[0-9]+=/) { split(substr($i, 2), part, "="); pages[part[1]] += part[2] }
        }
        END { for (node in pages) print "node " node ": " int(pages[node] / 256) " MiB" }' \
        "/proc/$(pidof qemu-system-x86_64)/numa_maps" | sort >/tmp/said
    check "the kernel has its memory on nodes of host $1" "^node $2: [1-9]"
    [ -z "${3-}" ] || ! grep -q "^node $3:" /tmp/said || echo "FAIL memory outside host $1: $(cat /tmp/said)"
}
# all_at_home HOST: both clients are where the plan has them, as the kernel says.
all_at_home() {
    "on-$1" vm show g >/tmp/show 2>&1
    echo "clients at home: $(grep -c ' yes$' /tmp/show), not: $(grep -c ' no$' /tmp/show)" >/tmp/said
    check "on host $1 both clients are at home, vCPUs and memory" '^clients at home: 2, not: 0$'
}
# nothing_left_but HOST: one guest runs, one host knows it, nobody else is at work.
nothing_left_but() {
    echo "QEMUs: $(pidof qemu-system-x86_64 | wc -w), homenodes: $(pidof homenode | wc -w)," \
        "records: $(ls -d /run/host-?/.vms/g)" >/tmp/said
    check "one guest runs, and host $1 alone knows it" "^QEMUs: 1, homenodes: 0, records: /run/host-$1/.vms/g\$"
}

# --- Born on host a.
do_it on-a run /tmp/g.toml --daemonize
succeeds "it starts on host a"
memory_is_on a "$on_a"
goes_on "started"

# --- Grown: a vCPU and memory into each virtual node.
do_it on-a vm set g --vcpus 6 --memory "512 MiB"
succeeds "it grows by a vCPU and 128 MiB in each virtual node"
guest_sees a
check "the guest's kernel has 3 CPUs in virtual node 0, and its memory" '^node 0: CPUs 0-1,4, 2[0-9][0-9] MiB'
check "and in virtual node 1" '^node 1: CPUs 2-3,5, (1[5-9]|2[0-9])[0-9] MiB'
all_at_home a
memory_is_on a "$on_a"
goes_on "grown"
# Given back and taken again here: after a journey the guest's kernel writes to pages for the first
# time as it gives them back, which takes minutes where nested paging is emulated.
do_it on-a vm set g --memory "256 MiB"
succeeds "it gives back the memory that it got"
do_it on-a vm set g --memory "512 MiB"
succeeds "and gets it again"

# --- Into a file on one host, out of it on another.
# to_file_and_back FROM TO
to_file_and_back() {
    do_it "on-$1" vm suspend g --to /tmp/g.memory
    succeeds "it is suspended on host $1"
    mv /tmp/g.memory /tmp/moved.memory
    "on-$1" vm delete g --force >/tmp/said 2>&1
    do_it "on-$2" vm resume /tmp/moved.memory
    succeeds "it goes on on host $2"
    rm /tmp/moved.memory
    goes_on "resumed on host $2"
    all_at_home "$2"
    nothing_left_but "$2"
}
to_file_and_back a c
memory_is_on c '[0-7]'
if [ "$long" = yes ]; then
    to_file_and_back c b
    memory_is_on b "$on_b" "$elsewhere_than_b"
    to_file_and_back b a
    at=a turns=20
else
    at=c turns=1
fi
no_word_is_wrong "it was in files"

# --- Live, to host b and back.
for turn in $(seq $turns); do
    for to in b a; do
        do_it "on-$at" vm migrate g --to $to
        succeeds "turn $turn: live from host $at to $to"
        goes_on "turn $turn, on host $to"
        nothing_left_but $to
        at=$to
        [ $to = a ] || memory_is_on b "$on_b" "$elsewhere_than_b"
    done
done
all_at_home a
memory_is_on a "$on_a"
no_word_is_wrong "$((2 * turns)) migrations"
on-a vm show g >/tmp/said 2>&1
check "its life tells of the growth" 'resized from 4 vCPUs, 256 MiB to 6 vCPUs, 512 MiB$'
check "and of each journey" "arrived from lab"

do_it on-a vm stop g --force
succeeds "it is stopped"
do_it on-a vm delete g
succeeds "it is forgotten"
ls -A /run/host-a/.vms /run/host-b/.vms /run/host-c/.vms 2>/dev/null | grep -v -e '^/run' -e '^$' >/tmp/left
echo "QEMUs: $(pidof qemu-system-x86_64 | wc -w), files: $(wc -l </tmp/left)" >/tmp/said
check "nothing runs and nothing is left on any host" '^QEMUs: 0, files: 0$'
cat /tmp/left
