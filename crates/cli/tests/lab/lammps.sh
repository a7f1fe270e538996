# LAMMPS in a guest of packages under KVM, on two nodes: its check value, and where its memory is.
# The lab has no network and no apt: the image comes with --with CACHE, which scripts/lab-image
# makes; what apt would say of its packages is in its recipe. Runs inside the lab.
. /lab/functions

recipe=$(find / -xdev -path '*/images/*/recipe.json' | head -n 1)
export HOMENODE_CACHE_DIR="${recipe%/images/*}"
# QEMU keeps there what the guest writes, as a user of its own.
mkdir -p /etc /var/tmp
chmod 1777 /var/tmp
echo "VERSION_CODENAME=$(sed -n 's/.*"suite": "\(.*\)",/\1/p' "$recipe")" >/etc/os-release
# Busybox has one.
rm -f /bin/dpkg
cat >/bin/dpkg <<'END'
#!/bin/sh
echo amd64
END
# The lines `"PACKAGE": "VERSION"` of the recipe, as `apt-cache policy` has them.
cat >/bin/apt-cache <<END
#!/bin/sh
sed -n 's/^    "\(.*\)": "\(.*\)".*/\1:\n  Candidate: \2/p' $recipe
END
chmod 755 /bin/dpkg /bin/apt-cache

cat >/tmp/lammps.toml <<END
name = "lab-lammps"
title = "LAMMPS in the lab"
workload = "command"
pinning = "none"
threads = [2]
repetitions = 2
rounds = 1

[guest]
packages = ["lammps", "openmpi-bin"]

[command]
# A rank in each virtual node.
argv = [
    "mpirun", "--oversubscribe", "--map-by", "numa", "--bind-to", "numa", "-np", "{ranks}",
    "lmp", "-in", "lammps.in", "-log", "none", "-var", "cells", "10",
]
environment = { OMP_NUM_THREADS = "1", OMPI_MCA_pml = "ob1", OMPI_MCA_btl = "self,vader" }
files = ["$HOMENODE_CACHE_DIR/lammps.in"]
memory = "256 MiB"
time_limit_seconds = 600

[[command.figure]]
name = "energy"
unit = "1"
decimals = 7
regex = '^ *100 +[-0-9.e+]+ +[-0-9.e+]+ +[-0-9.e+]+ +(-[0-9.]+) '

[command.verify]
values = [{ figure = "energy", expected = -4.6226965, tolerance = 0.00001 }]

[limits]
boot_seconds = 300
repetition_seconds = 600
other_cpu_percent = 10000
repeat_disturbed = 0

[[configuration]]
name = "1 VM, vNUMA"
runs = "vms"
vcpus = 4
END

cd /tmp || exit 1
# Where the guest's memory is, by the kernel, once it is there.
(
    for _ in $(seq 600); do
        vm=$(pidof qemu-system-x86_64 | tr ' ' '\n' | while read -r pid; do
            grep -aq lab-lammps "/proc/$pid/cmdline" && echo "$pid"
        done | head -n 1)
        [ -n "$vm" ] && grep -E 'bind:|prefer' "/proc/$vm/numa_maps" >/tmp/maps.now && [ -s /tmp/maps.now ] &&
            affinity "$vm" >/tmp/cpus.now 2>/dev/null && [ "$(wc -l </tmp/cpus.now)" = 4 ] &&
            cp /tmp/maps.now /tmp/maps && cp /tmp/cpus.now /tmp/cpus
        sleep 1
    done
) &
watcher=$!
homenode evaluate lammps.toml >/tmp/said 2>&1
echo "exit code $?" >>/tmp/said
# A guest inside an emulated machine resets itself or hangs in one of some ten boots: then the
# experiment goes on where it ended, up to twice.
for _ in 1 2; do
    grep -q 'Continue with: homenode evaluate --resume' /tmp/said || break
    cat /tmp/said
    echo "the guest fell over; the experiment is resumed"
    homenode evaluate --resume results/* >/tmp/said 2>&1
    echo "exit code $?" >>/tmp/said
done
kill "$watcher"
cat /tmp/said
check "LAMMPS runs under KVM in a guest of packages" "^exit code 0"
check "its energy after 100 steps is the check value" "-4\.6226965"
cp /tmp/maps /tmp/said
cat /tmp/cpus >>/tmp/said
cat /tmp/said
check "the kernel has memory of a virtual node on node 0 alone" "bind:0 .* N0=[0-9]+ kernel"
check "the kernel has memory of a virtual node on node 1 alone" "bind:1 .* N1=[0-9]+ kernel"
check "vCPUs run on the CPUs of the first node" "CPU .*[[:space:]]0-1$"
check "vCPUs run on the CPUs of the second node" "CPU .*[[:space:]]2-3$"
cp results/*/records.jsonl /tmp/said
check "homenode read back that all of it is at home" '"local_share":1\.0'
grep '"record":"done"' /tmp/said
