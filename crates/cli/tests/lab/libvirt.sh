# What `homenode balance`, `top`, `why` and `doctor` must do on four NUMA nodes for domains of libvirt's system service, which has each vCPU in
# a cpuset of its own (cgroup v2). Runs inside the lab, with libvirtd, virsh and QEMU's driver: crates/cli/tests/lab.rs has the line.
. /lab/functions

mkdir -p /etc/libvirt /var/log /var/lib /var/cache
[ -L /var/run ] || { rm -rf /var/run; ln -s /run /var/run; }
# The user that Debian's libvirt was built for.
printf 'root:x:0:0:root:/:/bin/sh\nlibvirt-qemu:x:64055:64055::/:/bin/sh\n' >/etc/passwd
printf 'root:x:0:\nkvm:x:107:\nlibvirt-qemu:x:64055:\n' >/etc/group
cat >/etc/libvirt/qemu.conf <<'END'
stdio_handler = "file"
security_driver = "none"
user = "+0"
group = "+0"
dynamic_ownership = 0
END
printf 'auth_unix_rw = "none"\nlog_outputs = "3:file:/tmp/libvirtd.log"\n' >/etc/libvirt/libvirtd.conf

# service: libvirtd, until it answers.
service() {
    libvirtd >/tmp/libvirtd.said 2>&1 &
    service=$!
    for second in $(seq 60); do
        virsh list >/tmp/said 2>&1 && return
        sleep 0.5
    done
    echo "FAIL libvirtd answers"
    cat /tmp/said /tmp/libvirtd.said /tmp/libvirtd.log
    exit
}
# domain NAME UUID PINS MODE NODE: 2 vCPUs, 64 MiB that are filled at the start.
domain() {
    cat >"/tmp/$1.xml" <<END
<domain type='kvm'>
  <name>$1</name>
  <uuid>$2</uuid>
  <memory unit='MiB'>64</memory>
  <memoryBacking><allocation mode='immediate'/></memoryBacking>
  <vcpu>2</vcpu>
  <cputune>$3</cputune>
  <numatune><memory mode='$4' nodeset='$5'/></numatune>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <cpu mode='host-passthrough'/>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
END
    virsh define "/tmp/$1.xml" >/tmp/said 2>&1
    check "libvirt takes the definition of $1" "^Domain '$1' defined"
}
# start NAME: paused. libvirt gives QEMU 30 s, which a slow machine's emulated one may need.
start() {
    for try in 1 2 3; do
        virsh start "$1" --paused >"/tmp/$1.started" 2>&1 && return
        virsh destroy "$1" >/dev/null 2>&1
    done
    echo "SKIP libvirt starts no domain here: $(tr '\n' ' ' <"/tmp/$1.started")"
    cat "/var/log/libvirt/qemu/$1.log"
    return 1
}
# Where the kernel lets its vCPUs run, each set once.
affinity() {
    for task in /proc/"$(cat "/run/libvirt/qemu/$1.pid")"/task/*; do
        case $(cat "$task/comm") in CPU*) grep Cpus_allowed_list "$task/status" ;; esac
    done | sort -u >/tmp/said
}
# agree NAME CPUS: kernel and virsh say that its vCPUs may run on CPUS.
agree() {
    affinity "$1"; check "$1: the kernel says CPUs $2" "^Cpus_allowed_list:[[:space:]]+$2\$"
    virsh vcpupin "$1" --live | grep '^ [0-9]' | sort -u -k2 >/tmp/said
    check "$1: virsh vcpupin says CPUs $2" "^ 0 +$2\$"
    [ "$(wc -l </tmp/said)" = 1 ] || echo "FAIL $1: virsh vcpupin says the same of both vCPUs"
}
code() { echo "exit code $code" >/tmp/said; check "$2" "^exit code $1\$"; }

service
pin() { echo "<vcpupin vcpu='0' cpuset='$1'/><vcpupin vcpu='1' cpuset='$1'/>"; }
domain web 11111111-2222-3333-4444-555555555555 "$(pin 6-7)" strict 2 # CPUs of node 3, memory bound to node 2
domain mail 11111111-2222-3333-4444-666666666666 "" strict 1             # all CPUs, memory on node 1
# At the same time: libvirt asks each QEMU for each of its CPU's properties, one by one.
start web &
first=$!
start mail || exit
wait $first || exit

homenode top --once --json >/tmp/said 2>&1
check "top has the domain's name" '"name": "web"'
check "top says that libvirt has it" '"manager": "libvirt"'

homenode balance --once >/tmp/said 2>&1; code=$?
cat /tmp/said
check "the domain that floats gets a home where its memory is" 'VM mail: gets a home, nodes 0-3 -> node 1: '
check "the idle domain goes to its memory, past its definition" 'VM web: [a-z ]*, node 3 -> node 2: '
if grep -q manager /tmp/said; then echo "FAIL all was done through libvirt"; else echo "PASS all was done through libvirt"; fi
code 0 "the balancer succeeds"
agree web 4-5
agree mail 2-3
virsh vcpuinfo web >/tmp/said 2>&1; check "virsh vcpuinfo says so too" '^CPU Affinity: +----yy--$'
cat "/sys/fs/cgroup$(cut -d: -f3 /proc/"$(cat /run/libvirt/qemu/web.pid)"/cgroup | sed 's/emulator/vcpu0/')/cpuset.cpus" >/tmp/said
check "libvirt has written its cpuset" '^4-5$'
virsh vcpupin web --config >/tmp/said 2>&1; check "the definition is as it was" '^ 1 +6-7$'

# Another user's QEMU that says it is the domain mail, with a file open and a socket that look like libvirt's: mail stays where it is.
mkdir -p /tmp/mallory/libvirt/qemu/run
ln -s /run/libvirt/libvirt-sock /tmp/mallory/libvirt/libvirt-sock
chown -R 1000 /tmp/mallory
as-user --reuid=1000 --regid=1000 --clear-groups --bounding-set=-all sh -c '
    exec 5>/tmp/mallory/libvirt/qemu/run/mail.pid
    exec qemu-system-x86_64 -S -accel tcg -display none -nodefaults -no-user-config -m 64 -smp 2 -name guest=mail,debug-threads=on \
        -uuid 11111111-2222-3333-4444-666666666666 -chardev socket,id=charmonitor,path=/tmp/mallory/monitor,server=on,wait=off' &
mallory=$!
for turn in $(seq 100); do [ -S /tmp/mallory/monitor ] && break; sleep 0.1; done
sleep 1
homenode balance --once >/tmp/said 2>&1
cat /tmp/said
check "a process that says it is a domain is bound past libvirt" "bound past its manager, which does not know: no libvirt that is asked says that it has this process .*mail.pid holds another process"
kill -9 "$mallory"
wait "$mallory" 2>/dev/null
agree mail 2-3

homenode why web --interval 0.5 >/tmp/said 2>&1
cat /tmp/said
check "why says whose it is" '^VM web, process [0-9]+, started by libvirt'
virsh "vcpupin web 0 0-1,6-7 --live; vcpupin web 1 0-1,6-7 --live" >/tmp/said 2>&1
homenode doctor web --fix >/tmp/said 2>&1
cat /tmp/said
check "doctor binds what somebody moved away" 'REPAIR +VM web.*bound to CPUs 4-5 of node 2'
agree web 4-5

# Without libvirt nobody can widen the cpusets that it wrote: all stays, and is said.
kill -9 "$service"
wait "$service" 2>/dev/null
homenode balance --release >/tmp/said 2>&1; code=$?
cat /tmp/said
check "without libvirt release says why it cannot" 'VM web: bind client 0 to CPUs 6-7: its cgroup.s cpuset allows none of these CPUs; .*does not answer'
check "without libvirt a part is not taken for the whole" 'VM mail: bind client 0 to CPUs 0-7: its cgroup.s cpuset leaves only CPUs 2-3; .*does not answer'
code 1 "that is a failure"
affinity web; check "the domain is still at home" '^Cpus_allowed_list:[[:space:]]+4-5$'
affinity mail; check "so is the other one" '^Cpus_allowed_list:[[:space:]]+2-3$'

service
homenode balance --release >/tmp/said 2>&1; code=$?
cat /tmp/said
check "release goes on once libvirt is there again" 'VM web, client 0: may run on CPUs 6-7 again$'
code 0 "release succeeds"
agree web 6-7
agree mail 0-7

# Bound past libvirt: doctor finds that and tells libvirt.
for task in /proc/"$(cat /run/libvirt/qemu/mail.pid)"/task/*; do
    case $(cat "$task/comm") in CPU*) taskset -p c "${task##*/}" >/dev/null ;; esac
done
homenode doctor mail >/tmp/said 2>&1
cat /tmp/said
check "doctor finds that libvirt believes otherwise" 'VM mail: libvirt believes that its vCPUs may run on CPUs 0-7; the'
homenode doctor mail --fix >/tmp/said 2>&1
cat /tmp/said
agree mail 2-3

# A plan as a domain: each virtual node, told by its size, is where the domain says, and so is each vCPU.
virsh "destroy web; destroy mail" >/dev/null 2>&1
cat >/tmp/wide.toml <<END
name = "wide"
vcpus = 4
memory = "112 MiB"
[boot]
from = "disk"
[policy]
placement = "most_virtual_nodes"
virtual_nodes = [
    { vcpus = 1, memory = "16 MiB" }, { vcpus = 1, memory = "24 MiB" }, { vcpus = 1, memory = "32 MiB" }, { vcpus = 1, memory = "40 MiB" },
]
[[disk]]
path = "disk.raw"
format = "raw"
END
dd if=/dev/zero of=/tmp/disk.raw bs=1024 count=64 2>/dev/null
homenode plan /tmp/wide.toml --emit libvirt >/tmp/wide.xml 2>/tmp/said; code=$?
cat /tmp/said
code 0 "a plan is a domain"
virsh define /tmp/wide.xml >/tmp/said 2>&1
check "libvirt takes the plan" "^Domain 'wide' defined"
start wide || exit
wide=/proc/$(cat /run/libvirt/qemu/wide.pid)
# affinity_of THREAD: where the kernel lets it run, into /tmp/said.
affinity_of() {
    for task in "$wide"/task/*; do
        [ "$(cat "$task/comm")" != "$1" ] || grep Cpus_allowed_list "$task/status"
    done >/tmp/said
}
for cell in 0 1 2 3; do
    node=$(sed -n "s/.*<memnode cellid=\"$cell\".* nodeset=\"\([0-3]\)\".*/\1/p" /tmp/wide.xml)
    pages=$((4096 + cell * 2048))
    grep "bind.* anon=$pages " "$wide/numa_maps" >/tmp/said
    check "virtual node $cell of the plan is on node $node" "bind:$node .* N$node=$pages "
    affinity_of "CPU $cell/KVM"
    check "its vCPU is there" "^Cpus_allowed_list:[[:space:]]+$((2 * node))-$((2 * node + 1))\$"
done
affinity_of "IO iothread1"
check "its disk's I/O thread has one of the homes" "^Cpus_allowed_list:[[:space:]]+(0-1|2-3|4-5|6-7)\$"
sed -n 's/.*nodeset="\([0-3]\)".*/\1/p' /tmp/wide.xml | sort -u | wc -l >/tmp/said
check "the four virtual nodes have four homes" '^4$'

# homenode's own VM, started and kept by libvirt.
for other in $(virsh list --uuid); do virsh destroy "$other" >/dev/null 2>&1; done
spec far 'policy.node_affinity = "2-3"'
# As above: libvirt gives QEMU 30 s.
for try in 1 2 3; do
    homenode run /tmp/far.toml --via libvirt >/tmp/said 2>&1 && break
done
cat /tmp/said
if grep -Eiq 'monitor|timed out|timeout' /tmp/said && ! grep -q 'closed the monitor' /tmp/said; then
    echo "SKIP libvirt starts no domain here"
    exit
fi
check "run via libvirt: it runs with KVM" 'KVM; read back'
check "run via libvirt: virtual node 0 is on node 2" '^ +0 +0-1 +4-5 +2 +node 2: 256 MiB +bind:2 +yes$'
check "run via libvirt: virtual node 1 is on node 3" '^ +1 +2-3 +6-7 +3 +node 3: 256 MiB +bind:3 +yes$'
grep -E 'bind:' "/proc/$(cat /run/libvirt/qemu/far.pid)/numa_maps" >/tmp/said
check "the kernel has its 256 MiB on node 3 alone" '^[0-9a-f]+ bind:3 anon=65536 .* N3=65536 '
virsh vcpupin far --live >/tmp/said 2>&1
check "virsh vcpupin says where its last vCPU may run" '^ 3 +6-7$'
virsh dominfo far >/tmp/said 2>&1
check "libvirt keeps it" '^Persistent: +yes'
homenode run /tmp/far.toml --via libvirt >/tmp/said 2>&1; code=$?
check "its name is taken" 'VM far: a VM of this name runs already'
code 2 "that is bad input"
spec near ''
homenode plan /tmp/near.toml >/tmp/said 2>&1
check "the next VM goes beside it" '^ +home: nodes 0-1$'
