# The unit of packaging/, started by a real systemd on four NUMA nodes, with all of its sandbox: its user, its two capabilities, its filter of
# system calls; then with the drop-in for libvirt. Runs inside the lab, with systemd and what else crates/cli/tests/lab.rs brings.
#
# It makes a container in which systemd is process 1, and runs once more in there, as a unit of its own.
. /lab/functions
units=/etc/systemd/system
state=/run/homenode-balance

if [ "${1-}" != inside ]; then
    mkdir -p $units /usr/local/bin /usr/lib/sysusers.d /var/log
    [ -L /var/run ] || { rm -rf /var/run; ln -s /run /var/run; }
    cp packaging/homenode-balance.service $units/
    cp packaging/homenode-balance.sysusers /usr/lib/sysusers.d/homenode-balance.conf
    cp /bin/homenode /usr/local/bin/
    printf 'root:x:0:0:root:/:/bin/sh\nmallory:x:1000:1000::/:/bin/sh\n' >/etc/passwd
    printf 'root:x:0:\nmallory:x:1000:\nlibvirt:x:1001:\n' >/etc/group
    printf 'NAME=lab\nID=lab\n' >/etc/os-release
    echo 11111111222233334444555555555555 >/etc/machine-id
    chmod 666 /dev/kvm
    printf '[Unit]\nRequires=basic.target checks.service\nAfter=basic.target\nAllowIsolate=yes\n' >$units/default.target
    cat >$units/checks.service <<EOF
[Unit]
Requires=systemd-journald.socket systemd-journald.service
After=systemd-journald.service
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh /lab/script inside
ExecStopPost=/bin/systemctl --force exit
WorkingDirectory=/lab
Environment=PATH=/bin:/usr/bin:/usr/sbin
StandardOutput=file:/dev/ttyS0
StandardError=file:/dev/ttyS0
EOF
    systemd=$(ls /lib/systemd/systemd /usr/lib/systemd/systemd 2>/dev/null | head -n 1)
    mount -t tmpfs tmpfs /run
    mount -t tmpfs tmpfs /tmp
    # What systemd itself says goes nowhere: the console is for the checks.
    mount --bind /dev/null /dev/console
    unshare -m -p -f --mount-proc env -i container=lab PATH=/bin:/usr/bin:/usr/sbin \
        "$systemd" --system --log-level=err --show-status=no </dev/null >/tmp/systemd 2>&1
    [ -e /tmp/finished ] || { echo "FAIL systemd runs the checks to their end"; cat /tmp/systemd; }
    exit
fi

mallory="as-user --reuid=1000 --regid=1000 --clear-groups --bounding-set=-all"
# guest NAME CPUS NODE: a paused VM of mallory's; its threads may use CPUS (a mask), its 64 MiB are filled on NODE.
guest() {
    taskset "$2" $mallory qemu-system-x86_64 -S -accel kvm -cpu host -machine q35,memory-backend=m -m 64 -smp 1 \
        -object "memory-backend-ram,id=m,size=64M,prealloc=on,host-nodes=$3,policy=preferred" \
        -display none -nodefaults -no-user-config -name "$1,debug-threads=on" &
    echo $! >"/tmp/$1.pid"
    for turn in $(seq 300); do region "$!" 64 >/dev/null && return; sleep 0.1; done
    echo "FAIL $1 starts"
}
place() { { affinity "$(cat "/tmp/$1.pid")"; region "$(cat "/tmp/$1.pid")" 64; } >/tmp/said; }
# wait_for SECONDS COMMAND...
wait_for() {
    local turns=$(($1 * 5))
    shift
    for turn in $(seq $turns); do "$@" && return; sleep 0.2; done
}
is_at() { place "$1"; grep -q " N$2=16384 " /tmp/said && grep -q "list:[[:space:]]*$3\$" /tmp/said; }
# at_home NAME CPUS NODE WHAT
at_home() {
    place "$1"
    check "$4: vCPU" "^CPU 0/KVM Cpus_allowed_list:[[:space:]]+$2\$"
    check "$4: memory" " N$3=16384 "
}
of_unit() { systemctl show homenode-balance -p "$1" --value; }
none() { if grep -Eq "$2" /tmp/said; then echo "FAIL $1"; cat /tmp/said; else echo "PASS $1"; fi; }
# probe: what a process under the unit's sandbox reaches of mallory's VM.
probe() {
    {
        sed '/^Type=/d; /^Restart/d; /^RuntimeDirectory/d; s,^ExecStart=.*,ExecStart=/bin/reach '"$(cat /tmp/floats.pid),"'; s/^\[Service\]/&\nType=oneshot/' \
            $units/homenode-balance.service
        printf '[Service]\nStandardOutput=file:/tmp/reached\n'
        cat $units/homenode-balance.service.d/*.conf 2>/dev/null
    } >$units/probe.service
    systemctl daemon-reload
    systemctl start probe >/tmp/said 2>&1
    cat /tmp/reached >>/tmp/said
}

systemd-sysusers >/tmp/said 2>&1
id homenode-balance >/tmp/said 2>&1
check "systemd-sysusers makes the user" 'homenode-balance'
guest floats ff 2 # all CPUs, memory on node 2
guest away 3 1    # CPUs of node 0, memory on node 1
# What root made there by hand before is no obstacle.
homenode balance --release >/tmp/said 2>&1
check "root has balanced by hand" 'nothing to release'
systemctl start homenode-balance >/tmp/said 2>&1; echo "exit code $?" >>/tmp/said
check "the unit starts" '^exit code 0$'
# Which of the two goes to the other depends on what either costs: on a busy machine its vCPU does.
is_local() { is_at away 0 0-1 || is_at away 1 2-3; }
wait_for 60 is_local
wait_for 30 is_at floats 2 4-5
at_home floats 4-5 2 "a VM of another user gets a home"
if is_at away 1 2-3; then
    at_home away 2-3 1 "another user's VM follows its memory"
else
    at_home away 0-1 0 "memory of another user's VM follows"
fi
service=$(of_unit MainPID)
{ of_unit ActiveState; grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/$service/status; } >/tmp/said
check "the unit is active" '^active$'
check "its user is its own" "^Uid:[[:space:]]+$(id -u homenode-balance)[[:space:]]"
check "it has two capabilities" '^CapEff:[[:space:]]+0000000000880000$'
check "its system calls are filtered" '^Seccomp:[[:space:]]+2$'
journalctl -u homenode-balance -o cat >/tmp/said 2>&1
check "the journal has what it did" 'VM floats: gets a home, nodes 0-3 -> node 2: '
none "and no trouble" 'cannot|CAP_|denied|not permitted'
$mallory homenode top --once >/tmp/said 2>&1
check "a user's top sees it" "balancer: process $service"
$mallory homenode why floats --interval 0.2 >/tmp/said 2>&1
check "a user's why has its decision" '^It stays at home on node 2: '
homenode balance --once --state /tmp/other.json >/tmp/said 2>&1
check "a second balancer, by hand, is refused" "another balancer runs on this host: process $service"

# --- What somebody who has taken it over would reach.
probe
for call in ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp userfaultfd perf_event_open migrate_pages \
    sched_setscheduler setpriority io_uring_setup socket; do
    check "$call is refused" "^$call: EPERM|^$call: EAFNOSUPPORT\$"
done
check "the memory of another user's process cannot be opened" '^/proc/PID/mem: EACCES$'
check "nor its files" '^/proc/PID/fd: EACCES$'
check "what root is starting can be seen" '^/run/homenode: 0$'
check "files as other processes see them can be, as docs/security.md says" '^/proc/PID/root/etc/passwd: 0$'
check "what it is for is allowed" '^sched_setaffinity: 0$'

# --- Started again, stopped.
systemctl restart homenode-balance
wait_for 30 grep -qs '"version"' $state/balance.json
again=$(of_unit MainPID)
wait_for 30 sh -c "homenode top --once --json | grep -q '\"decided\": true'"
journalctl _PID="$again" -o cat >/tmp/said 2>&1
echo "processes $service $again" >>/tmp/said
none "started again it moves nothing" "gets a home|processes $service $service"
$mallory homenode why floats --interval 0.2 >/tmp/said 2>&1
check "started again it knows what it decided" '^It stays at home on node 2: '
systemctl stop homenode-balance
{ of_unit ActiveState; of_unit Result; } >/tmp/said
check "it stops as it was told to" '^inactive$'
check "and with success" '^success$'
at_home floats 4-5 2 "stopped, it leaves VMs as they are"
homenode balance --release --state $state/balance.json >/tmp/said 2>&1
check "root gives back what the service bound" '^VM floats, client 0: may run on CPUs 0-7 again'
place floats
check "and it is given back" '^CPU 0/KVM Cpus_allowed_list:[[:space:]]+0-7$'

# --- With the drop-in for hosts with libvirt.
mkdir $units/homenode-balance.service.d
cp packaging/homenode-balance-libvirt.conf $units/homenode-balance.service.d/libvirt.conf
systemctl daemon-reload
systemctl start homenode-balance >/tmp/said 2>&1; echo "exit code $?" >>/tmp/said
check "it starts with libvirt's drop-in" '^exit code 0$'
wait_for 30 is_at floats 2 4-5
at_home floats 4-5 2 "with libvirt's drop-in too"
{ of_unit ActiveState; grep ^Groups /proc/"$(of_unit MainPID)"/status; } >/tmp/said
check "with it the unit is active" '^active$'
check "and has libvirt's group" '^Groups:.*[[:space:]]1001( |$)'
journalctl _PID="$(of_unit MainPID)" -o cat >/tmp/said 2>&1
none "and no trouble" 'cannot|CAP_|denied|not permitted'
probe
check "with it sockets of the file system are allowed" '^socket: 0$'
check "those of the network are not" '^socket AF_INET: EAFNOSUPPORT$'
check "nor is writing into other processes" '^process_vm_writev: EPERM$'
touch /tmp/finished
