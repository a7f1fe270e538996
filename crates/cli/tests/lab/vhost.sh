# Two KVM guests on different nodes that talk over a switch of homenode's, their packets moved by the
# kernel (vhost-net): where those threads are, after the start and after the balancer moved a guest.
# Four NUMA nodes of 1 GiB and 2 CPUs; `ip` and `tc` are those of iproute2. Runs inside the lab
# (scripts/lab --run).
. /lab/functions
ip link set lo up

homenode doctor --network >/tmp/said 2>&1
cat /tmp/said
for kind in 'kind = "switch"' 'switch --rate' 'switch --delay' 'kind = "macvtap"' 'vhost'; do
    check "doctor says that this works here: $kind" "^$kind +yes"
done

# A guest that serves 2 MiB, or fetches them from the other one over and over and says their checksum.
mkdir -p /tmp/guest/bin /tmp/guest/modules
cp /bin/busybox /tmp/guest/bin/
cp /modules/guest/* /tmp/guest/modules/
cat >/tmp/guest/init <<'END'
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /www
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "/modules/$module"; done </modules/order
for word in $(cat /proc/cmdline); do
    case $word in own=*) own=${word#own=} ;; other=*) other=${word#other=} ;; esac
done
ip link set lo up
ip link set eth0 up
ip addr add "$own/24" dev eth0
yes "what a guest sends over a switch" | head -c 2097152 >/www/file
httpd -h /www
echo "serves $(md5sum </www/file)"
round=0
while [ -n "$other" ]; do
    round=$((round + 1))
    echo "round $round: $(wget -q -O - "http://$other/file" | md5sum)"
done
while sleep 3600; do :; done
END
chmod 755 /tmp/guest/init
(cd /tmp/guest && find . | cpio --quiet -o -H newc >/tmp/guest.cpio)

# guest NAME NODE WORDS MORE: /tmp/NAME.toml, a guest of one vCPU whose home is that node.
guest() {
    cat >"/tmp/$1.toml" <<END
name = "$1"
vcpus = 1
memory = "128 MiB"
console = { to = "file", path = "/tmp/$1.console" }
policy.node_affinity = "$2"
[boot]
from = "kernel"
kernel = "/guest/vmlinux"
initrd = "/tmp/guest.cpio"
command_line = "quiet $3"
[[network]]
kind = "switch"
switch = "lan"
vhost = "$4"
END
    homenode run "/tmp/$1.toml" --daemonize >/tmp/said 2>&1
    cat /tmp/said
    pid=$(sed -n 's/^VM .*, process \([0-9]*\), .*/\1/p' /tmp/said)
    echo "$pid" >"/tmp/$1.pid"
}
# workers NAME: the threads that move its packets, by the kernel's word: processes of the kernel's own
# that are called after QEMU's process or, since Linux 6.4, threads of QEMU.
workers() {
    local of comm
    of=$(cat "/tmp/$1.pid")
    for comm in /proc/[0-9]*/comm /proc/"$of"/task/*/comm; do
        case $(cat "$comm" 2>/dev/null) in
            "vhost-$of") echo "${comm%/comm}" ;;
        esac
    done
}
# shown NAME: of each of them the CPUs that it may use, the one that it used last, and its ticks.
shown() {
    for thread in $(workers "$1"); do
        # Field 14 and 15: ticks; 39: the CPU. Its name has no blank.
        set -- "$1" $(cat "$thread/stat")
        echo "vhost allowed $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "$thread/status") last ${40} ticks $((${15} + ${16}))"
    done >/tmp/said
    cat /tmp/said
}
rounds() { grep -c '^round ' "/tmp/$1.console"; }
# fetched NAME MORE: waits until the guest fetched so many files more.
fetched() {
    local until=$(($(rounds "$1") + $2))
    for _ in $(seq 240); do
        [ "$(rounds "$1")" -lt $until ] || return 0
        sleep 0.5
    done
    echo "FAIL $1 fetched no file; its last words:"
    tail -3 "/tmp/$1.console" | sed 's/^/    /'
    return 1
}

homenode switch create lan >/tmp/said 2>&1
cat /tmp/said
guest server 1 "own=10.9.0.1" on
check "the server is at home on node 1" ' yes$'
check "and runs under KVM" '^VM server: .*, KVM; read back:'
guest client 2 "own=10.9.0.2 other=10.9.0.1" on
check "the client is at home on node 2" ' yes$'
shown server
check "the kernel lets the server's vhost thread run on node 1 alone" '^vhost allowed 2-3 '
shown client
check "the kernel lets the client's vhost thread run on node 2 alone" '^vhost allowed 4-5 '
fetched client 3 || { cat /tmp/server.console | tail -3; exit; }
shown server
check "the server's packets were moved on a CPU of node 1" '^vhost allowed 2-3 last [23] ticks [1-9]'
shown client
check "the client's packets were moved on a CPU of node 2" '^vhost allowed 4-5 last [45] ticks [1-9]'
tr -d '\r' </tmp/client.console | sed -n 's/^round [0-9]*: //p' | sort -u >/tmp/said
tr -d '\r' </tmp/server.console | sed -n 's/^serves //p' | sort -u >>/tmp/said
sort /tmp/said | uniq -c >/tmp/sums
cat /tmp/sums >/tmp/said
cat /tmp/said
check "each file that came is the one that was sent" '^ +2 [0-9a-f]{32} '
echo "different: $(wc -l </tmp/sums)" >/tmp/said
check "and no other came" '^different: 1$'
homenode switch show lan >/tmp/said 2>&1
cat /tmp/said
check "the switch counted what went through" 'MiB'
for vm in server client; do homenode doctor $vm; done >/tmp/said 2>&1
cat /tmp/said
echo "problems: $(grep -c '^PROBLEM' /tmp/said)" >/tmp/said
check "doctor finds no problem" '^problems: 0$'

# --- The balancer moves the client: it may live on node 3 only.
printf '[balance]\nperiod_ms = 500\n[[vm]]\nname = "client"\nnode_affinity = "3"\n' >/tmp/balance.toml
homenode balance --once --policy /tmp/balance.toml >/tmp/said 2>&1
cat /tmp/said
check "the balancer moves the client to node 3" 'VM client: .*-> node 3'
affinity "$(cat /tmp/client.pid)" >/tmp/said
check "the kernel lets its vCPU run on node 3 alone" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+6-7$'
shown client
check "and its vhost thread" '^vhost allowed 6-7 '
before=$(sed -n 's/.* ticks //p' /tmp/said)
fetched client 3 || exit
shown client
check "its packets are moved on a CPU of node 3" '^vhost allowed 6-7 last [67] '
echo "more ticks: $(($(sed -n 's/.* ticks //p' /tmp/said) - before))" >/tmp/said
check "by that thread" '^more ticks: [1-9]'
shown server
check "the server's stays on node 1" '^vhost allowed 2-3 last [23] '

# --- Somebody puts the thread elsewhere.
taskset -p 1 "$(workers client | sed 's/.*\///')" >/dev/null
homenode doctor client >/tmp/said 2>&1
cat /tmp/said
check "doctor finds a vhost thread away from its client" 'vhost'
cure=$(sed -n 's/^    \(taskset -cp 6-7 [0-9]*\)$/\1/p' /tmp/said | grep " $(workers client | sed 's/.*\///')$")
$cure >/dev/null
shown client
check "and its cure brings it back" '^vhost allowed 6-7 '

homenode balance --release >/tmp/said 2>&1
cat /tmp/said
shown client
check "release gives the thread what it had" '^vhost allowed 4-5 '

# --- Without it, and with one thread for each queue.
homenode vm stop client --force >/dev/null 2>&1
sed 's/"client"/"quiet"/; s/vhost = "on"/vhost = "off"/' /tmp/client.toml >/tmp/quiet.toml
homenode run /tmp/quiet.toml --daemonize >/tmp/said 2>&1
sed -n 's/^VM .*, process \([0-9]*\), .*/\1/p' /tmp/said >/tmp/quiet.pid
echo "threads: $(workers quiet | wc -l)" >/tmp/said
check "with vhost off there is none" '^threads: 0$'
homenode vm stop quiet --force >/dev/null 2>&1
sed 's/"client"/"wide"/; s/vhost = "on"/vhost = "auto"\nqueues = 2/' /tmp/client.toml >/tmp/wide.toml
homenode run /tmp/wide.toml --daemonize >/tmp/said 2>&1
cat /tmp/said
sed -n 's/^VM .*, process \([0-9]*\), .*/\1/p' /tmp/said >/tmp/wide.pid
shown wide
echo "threads at home: $(grep -c '^vhost allowed 4-5 ' /tmp/said) of $(workers wide | wc -l)" >/tmp/said
check "a card of two queues has two, both at home" '^threads at home: 2 of 2$'
homenode vm stop wide --force >/dev/null 2>&1
homenode vm stop server --force >/dev/null 2>&1
homenode switch delete lan >/tmp/said 2>&1
ip -o link >/tmp/said
ps | grep '[v]host-' >>/tmp/said
cat /tmp/said
echo "left: $(wc -l </tmp/said)" >/tmp/said
check "nothing is left: no device but lo, no thread" '^left: 1$'
