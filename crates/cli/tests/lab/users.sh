# The balancer beside other users on four NUMA nodes: one that claims VMs that are none, the service's own user and those who look at what it
# decided; and a host whose memory changes. Runs inside the lab, with the setpriv of util-linux as as-user (busybox has one that can do less):
#
#   ln -sf "$(command -v setpriv)" target/as-user
#   scripts/lab --bring target/as-user --run crates/cli/tests/lab/users.sh
. /lab/functions
mkdir -m 0700 /tmp/mallory && chown 1000 /tmp/mallory
mallory="as-user --reuid=1000 --regid=1000 --clear-groups --bounding-set=-all env XDG_RUNTIME_DIR=/tmp/mallory"
# victim NAME NODE MORE...: a paused VM of root's; its 64 MiB are filled on NODE.
victim() {
    victim=$1 node=$2
    shift 2
    filled "$victim" "$node" 64 -smp 1 "$@"
}
# at_home NAME CPUS NODE WHAT
at_home() {
    { affinity "$(cat "/tmp/$1.pid")"; region "$(cat "/tmp/$1.pid")" 64; } >/tmp/said
    check "$4: vCPU" "^CPU 0/KVM Cpus_allowed_list:[[:space:]]+$2\$"
    check "$4: memory" " N$3=16384 "
}
none() { if grep -Eq "$2" /tmp/said; then echo "FAIL $1"; cat /tmp/said; else echo "PASS $1"; fi; }

# --- A user whose processes claim to be VMs: larger than the host, with the name, the UUID and the monitor of somebody else's, and one whose
# monitor takes connections and never answers.
uuid=11111111-2222-3333-4444-555555555555
victim web 2 -uuid $uuid -qmp unix:/tmp/web.qmp,server=on,wait=off
victim db 1
cp /lab-hold-kvm /tmp/mallory/qemu-system-x86_64
chmod 755 /tmp/mallory/*
$mallory /tmp/mallory/qemu-system-x86_64 -name web -uuid $uuid -m 1000G -smp 512 -qmp unix:/tmp/web.qmp,server=on,wait=off &
claims=$!
$mallory /tmp/mallory/qemu-system-x86_64 -name 'guest=db,debug-threads=on' -m 4G,slots=4,maxmem=64T -smp 4096 \
    -object memory-backend-ram,id=m,size=4G,host-nodes=1,policy=bind -machine memory-backend=m &
claims="$claims $!"
$mallory qemu-system-x86_64 -S -accel tcg -display none -nodefaults -no-user-config -m 64 -name dead \
    -qmp unix:/tmp/mallory/dead,server=on,wait=off &
dead=$!
for turn in $(seq 100); do [ -S /tmp/mallory/dead ] && break; sleep 0.1; done
sleep 1
kill -STOP "$dead"
began=$(date +%s)
homenode balance --once >/tmp/said 2>&1
echo "seconds: $(($(date +%s) - began))" >>/tmp/said
check "it takes no long time beside a monitor that is dead" '^seconds: 1?[0-9]$'
none "nothing is done to processes that only claim to be VMs" "process ($(echo "$claims" | tr ' ' '|')|$dead)"
at_home web 4-5 2 "a VM whose name somebody else claims is at home"
at_home db 2-3 1 "and so is another one"
for pid in $claims $dead; do grep Cpus_allowed_list "/proc/$pid/status"; done | sort | uniq -c >/tmp/said
check "the claimants are as they were" '^ +3 Cpus_allowed_list:[[:space:]]+0-7$'
began=$(date +%s)
homenode top --once >/tmp/said 2>&1
echo "seconds: $(($(date +%s) - began))" >>/tmp/said
check "top shows who is there" "^web +$(cat /tmp/web.pid) .* paused$"
none "a claim to the monitor of somebody else's VM is not believed" '^web .* floats .*paused'
check "top takes no long time" '^seconds: 1?[0-9]$'
homenode doctor --fix >/tmp/said 2>&1
none "doctor --fix does nothing to them either" "process ($(echo "$claims" | tr ' ' '|')|$dead)"
at_home web 4-5 2 "after doctor --fix too"
kill -9 $claims "$dead"
homenode balance --release >/tmp/said 2>&1
{ affinity "$(cat /tmp/web.pid)"; affinity "$(cat /tmp/db.pid)"; } | sort | uniq -c >/tmp/said
check "release gives back what they had" '^ +2 CPU 0/KVM Cpus_allowed_list:[[:space:]]+0-7$'

# --- The service: a user of its own with two capabilities, and a directory that all may read (packaging/homenode-balance.service).
mkdir -p /run/homenode-balance
chown -R 990 /run/homenode-balance
chmod 755 /run/homenode-balance
as-user --reuid=990 --regid=990 --clear-groups --inh-caps=-all,+sys_nice,+sys_ptrace --ambient-caps=-all,+sys_nice,+sys_ptrace \
    --bounding-set=-all,+sys_nice,+sys_ptrace --no-new-privs env RUNTIME_DIRECTORY=/run/homenode-balance \
    homenode balance --state /run/homenode-balance/balance.json >/tmp/service.log 2>&1 &
service=$!
for turn in $(seq 60); do grep -q 'VM db: gets a home' /tmp/service.log && break; sleep 0.5; done
at_home web 4-5 2 "the service brings VMs of root home"
[ -d /proc/$service ] || cat /tmp/service.log
$mallory homenode top --once >/tmp/said 2>&1
check "a user's top sees the balancer of the system" "balancer: process $service"
$mallory homenode top --once --json >/tmp/said 2>&1
check "and its decisions" '"decided": true'
$mallory homenode doctor >/tmp/said 2>&1
check "a user's doctor runs and says what it could not look at" '^NOT SEEN'
$mallory homenode balance --once >/tmp/said 2>&1
check "a user's balancer is refused beside the service" "another balancer runs on this host: process $service"
homenode balance --once >/tmp/said 2>&1
check "root's is too" "another balancer runs on this host: process $service"
kill $service
wait $service 2>/dev/null
$mallory homenode balance --once >/tmp/said 2>&1; code=$?
echo "exit code $code" >>/tmp/said
check "after it a user's runs again" '^exit code 0$'
homenode balance --release --state /run/homenode-balance/balance.json >/tmp/said 2>&1
{ affinity "$(cat /tmp/web.pid)"; affinity "$(cat /tmp/db.pid)"; } | sort | uniq -c >/tmp/said
check "what the service bound is given back" '^ +2 CPU 0/KVM Cpus_allowed_list:[[:space:]]+0-7$'
for name in web db; do vm=$(cat /tmp/$name.pid); stop; done

# --- A part of node 3's memory goes away while top looks: it shows what `topology` shows.
homenode top --batch --interval 2 --count 4 >/tmp/batch 2>/dev/null &
batch=$!
sleep 3
for block in /sys/devices/system/node/node3/memory*; do
    echo offline >"$block/state" 2>/dev/null && break
done
wait $batch
total=$(($(sed -n 's/.*MemTotal: *\([0-9]*\) kB/\1/p' /sys/devices/system/node/node3/meminfo) * 1024))
column=$(head -n 1 /tmp/batch | tr ',' '\n' | grep -n '^memory_bytes$' | cut -d: -f1)
grep ',node,3,' /tmp/batch | cut -d, -f"$column" >/tmp/totals
echo "first $(head -n 1 /tmp/totals), last $(tail -n 1 /tmp/totals), now $total" >/tmp/said
check "top that looks on shows what is left" "^first [0-9]+, last $total, now $total\$"
[ "$(head -n 1 /tmp/totals)" -gt "$total" ] || echo "FAIL memory went away while top looked: $(cat /tmp/said)"
# amount NAME FILE: of node 3, the fourth.
amount() { sed -n "s/^ \{6,8\}\"$1\": \([0-9]*\),*\$/\1/p" "$2" | sed -n 4p; }
homenode topology --json >/tmp/topology
homenode top --once --interval 0.1 --json >/tmp/top
echo "memory $(amount memory /tmp/topology) $(amount memory /tmp/top)" >/tmp/said
check "topology and top show the same memory" "^memory $total $total\$"
# Some pages come and go between two looks.
apart=$((($(amount free /tmp/topology) - $(amount memory_free /tmp/top)) / 1048576))
echo "MiB apart: $apart" >/tmp/said
check "and the same free memory" '^MiB apart: -?[0-9]$'
