//! How many vCPUs a VM has, and in which virtual socket each is.

use super::Doubt;
use super::sizes::number as number_of;
use serde::Serialize;
use topology::limits::MOST_VCPUS;

/// What QEMU calls the parts of a vCPU's place, from the outside in: a group of cores has one of
/// two names.
const PLACE: [&str; 5] = ["socket-id", "die-id", "cluster-id", "core-id", "thread-id"];
/// The other one.
const MODULE: &str = "module-id";

/// The id of a vCPU that is a device of its own: one of a VM that may grow.
pub fn vcpu_id(vcpu: u32) -> String {
    format!("vcpu{vcpu}")
}

/// What `-smp` says, with what it leaves out filled in as QEMU does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VcpuTopology {
    /// vCPUs at start.
    pub vcpus: u32,
    /// vCPUs that there may be (`maxcpus`).
    pub most: u32,
    /// Virtual sockets.
    pub sockets: u32,
    /// Dies in a socket.
    pub dies: u32,
    /// Groups of cores in a die (QEMU's clusters or modules), within which `core-id` counts.
    pub clusters: u32,
    /// Cores in a die.
    pub cores: u32,
    /// Threads in a core.
    pub threads: u32,
}

/// The parts of a machine's CPUs that hold vCPUs, from the outside in, and what `-smp` calls them.
/// Drawers and books hold sockets; a machine has clusters (arm) or modules (x86), never both.
const PARTS: [&str; 8] = ["drawers", "books", "sockets", "dies", "clusters", "modules", "cores", "threads"];

impl VcpuTopology {
    /// What is said of the CPUs of a machine (`-smp`, `-machine smp.*`), with what is left out
    /// filled in (`machine_parse_smp_config` of QEMU's hw/core/machine-smp.c): cores are what is
    /// left over, on machines before 6.2 sockets.
    pub(super) fn of<'a>(given: impl Fn(&str) -> Option<&'a str>, prefers_sockets: bool) -> Result<Self, Doubt> {
        let mut said = [0; PARTS.len() + 2];
        for (number, key) in said.iter_mut().zip(PARTS.into_iter().chain(["cpus", "maxcpus"])) {
            let Some(text) = given(key) else { continue };
            let doubt = || Doubt::Vcpus(format!("{key}={text}"));
            *number = number_of(text).filter(|&number| number <= MOST_VCPUS).ok_or_else(doubt)?;
        }
        let [.., cpus, maxcpus] = said;
        let most = if maxcpus > 0 { maxcpus } else { cpus };
        let [drawers, books, mut sockets, dies, clusters, modules, mut cores, mut threads, ..] = said.map(u64::from);
        let within = [dies, clusters, modules].map(|number| number.max(1)).iter().product::<u64>();
        let around = drawers.max(1) * books.max(1);
        let rest = |divisors: [u64; 2]| {
            let known =
                divisors.iter().fold(within.saturating_mul(around), |all, one| all.saturating_mul((*one).max(1)));
            (u64::from(most) / known.max(1)).max(1)
        };
        if most > 0 {
            if sockets == 0 && (prefers_sockets || cores > 0) {
                sockets = rest([cores, threads]);
            } else if cores == 0 {
                cores = rest([sockets, threads]);
            } else if threads == 0 {
                threads = rest([sockets, cores]);
            }
        }
        [sockets, cores, threads] = [sockets, cores, threads].map(|number| number.max(1));
        let sockets = around.saturating_mul(sockets);
        let shape = [within, cores, threads].iter().fold(sockets, |all, one| all.saturating_mul(*one));
        let most = if most > 0 { u64::from(most) } else { shape };
        let small = |number: u64| {
            let fits = u32::try_from(number).ok().filter(|&number| number <= MOST_VCPUS);
            fits.ok_or_else(|| Doubt::Vcpus(format!("with {number} sockets, dies, cores or threads")))
        };
        let (sockets, clusters) = (small(sockets)?, small(clusters.max(1) * modules.max(1))?);
        let (dies, threads, most) = (small(dies.max(1))?, small(threads)?, small(most)?);
        // QEMU since 6.2 takes no machine of which the product is another.
        let per_core = sockets.saturating_mul(dies).saturating_mul(threads).max(1);
        let vcpus = if cpus > 0 { cpus } else { most };
        Ok(Self { vcpus, most, sockets, dies, clusters, cores: most.div_ceil(per_core), threads })
    }

    /// Where a vCPU is: `socket-id`, `die-id`, `cluster-id` (or `module-id`), `core-id`,
    /// `thread-id`, each within the one before.
    pub fn place_of(&self, vcpu: u32) -> [u32; 5] {
        let core = vcpu / self.threads.max(1);
        let die = core / self.cores.max(1);
        let (cores, in_cluster) = (core % self.cores.max(1), self.cores_in_a_cluster());
        let (cluster, core) = (cores / in_cluster, cores % in_cluster);
        [self.socket_of(vcpu), die % self.dies.max(1), cluster, core, vcpu % self.threads.max(1)]
    }

    fn cores_in_a_cluster(&self) -> u32 {
        (self.cores / self.clusters.max(1)).max(1)
    }

    /// The vCPU at a place; what is not given is 0, as where there is only one. `None` if there is
    /// no such place.
    pub fn vcpu_at(&self, given: impl Fn(&str) -> Option<u32>) -> Option<u32> {
        let [socket, die, cluster, core, thread] = place(given).map(|place| place.unwrap_or(0));
        let in_cluster = self.cores_in_a_cluster();
        let fits = die < self.dies && cluster < self.clusters.max(1) && core < in_cluster && thread < self.threads;
        let index = |whole: u32, of: u32, rest: u32| whole.checked_mul(of)?.checked_add(rest);
        let core = index(cluster, in_cluster, core)?;
        let index = index(index(index(socket, self.dies, die)?, self.cores, core)?, self.threads, thread)?;
        (fits && index < self.most).then_some(index)
    }

    /// The value of `-device` that plugs a vCPU in.
    pub fn device(&self, driver: &str, vcpu: u32) -> String {
        let [socket, die, _, core, thread] = self.place_of(vcpu);
        // QEMU takes a die that is not named for the first only where there is one.
        let die = if self.dies > 1 { format!(",die-id={die}") } else { String::new() };
        format!("{driver},id={},socket-id={socket}{die},core-id={core},thread-id={thread}", vcpu_id(vcpu))
    }

    /// The virtual socket of a vCPU.
    pub(super) fn socket_of(&self, vcpu: u32) -> u32 {
        vcpu / (self.dies * self.cores * self.threads).max(1)
    }

    /// The vCPUs whose place agrees with every part of it that is given.
    pub(super) fn matching(&self, given: impl Fn(&str) -> Option<u32>) -> impl Iterator<Item = u32> {
        let wanted = place(given);
        let this = *self;
        (0..self.most).filter(move |&vcpu| {
            wanted.iter().zip(this.place_of(vcpu)).all(|(wanted, place)| wanted.is_none_or(|wanted| wanted == place))
        })
    }
}

/// The parts of a place that are given.
fn place(given: impl Fn(&str) -> Option<u32>) -> [Option<u32>; 5] {
    let mut place = PLACE.map(&given);
    place[2] = place[2].or_else(|| given(MODULE));
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `-smp` says, on a machine of today or of before QEMU 6.2.
    fn parsed(value: &str, prefers_sockets: bool) -> Result<VcpuTopology, Doubt> {
        let smp = crate::qemu::options::Options::parse(value, "cpus");
        VcpuTopology::of(|key| smp.get(key), prefers_sockets)
    }

    #[test]
    fn what_is_left_out_is_filled_in() {
        // vCPUs at start and at most, sockets, dies, clusters, cores in a die, threads.
        let cases = [
            ("8", false, [8, 8, 1, 1, 1, 8, 1]),
            ("8", true, [8, 8, 8, 1, 1, 1, 1]),
            ("8,sockets=2,cores=2,threads=2", false, [8, 8, 2, 1, 1, 2, 2]),
            ("1,sockets=2,cores=2,maxcpus=4", false, [1, 4, 2, 1, 1, 2, 1]),
            ("sockets=2,cores=3", false, [6, 6, 2, 1, 1, 3, 1]), // 2 x 3
            ("12,cores=3,threads=2", false, [12, 12, 2, 1, 1, 3, 2]), // 12 / (3 x 2)
            ("12,sockets=2", true, [12, 12, 2, 1, 1, 6, 1]),
            ("12,sockets=2,cores=2", false, [12, 12, 2, 1, 1, 2, 3]), // threads last: 12 / (2 x 2)
            ("8,dies=2", false, [8, 8, 1, 2, 1, 4, 1]),
            ("16,modules=2,threads=2", false, [16, 16, 1, 1, 2, 8, 2]), // 2 modules of 4 cores
            ("16,clusters=4", true, [16, 16, 4, 1, 4, 4, 1]),           // 4 sockets of 4 clusters of one core
            ("8,drawers=2,books=2", false, [8, 8, 4, 1, 1, 2, 1]),      // 2 x 2 x 1 sockets
            ("0", false, [1, 1, 1, 1, 1, 1, 1]),                        // before QEMU 9.0: as if nothing was said
            ("maxcpus=8", false, [8, 8, 1, 1, 1, 8, 1]),
            ("0x4,maxcpus=010", false, [4, 8, 1, 1, 1, 8, 1]),
        ];
        for (value, sockets_first, expected) in cases {
            let VcpuTopology { vcpus, most, sockets, dies, clusters, cores, threads } =
                parsed(value, sockets_first).unwrap();
            assert_eq!([vcpus, most, sockets, dies, clusters, cores, threads], expected, "{value}");
        }
        for value in ["two", "4,cores=", "5000", "sockets=100,cores=100", "-1"] {
            assert!(parsed(value, false).is_err(), "{value}");
        }
    }

    #[test]
    fn vcpus_count_threads_first_then_cores_then_sockets() {
        let matching = |smp: &str, ids: &[(&str, u32)]| {
            let given = |key: &str| ids.iter().find(|(name, _)| *name == key).map(|&(_, id)| id);
            parsed(smp, false).unwrap().matching(given).collect::<Vec<_>>()
        };
        let of = |ids: &[(&str, u32)]| matching("8,sockets=2,cores=2,threads=2", ids);
        assert_eq!(of(&[("socket-id", 1)]), [4, 5, 6, 7]);
        assert_eq!(of(&[("socket-id", 0), ("core-id", 1)]), [2, 3]);
        assert_eq!(of(&[("socket-id", 1), ("core-id", 0), ("thread-id", 1)]), [5]);
        assert_eq!(matching("8,modules=2", &[("module-id", 1), ("core-id", 1)]), [5]); // 4 + 1
        assert_eq!(matching("8,clusters=2", &[("cluster-id", 1)]), [4, 5, 6, 7]);
    }

    #[test]
    fn a_vcpu_is_at_one_place() {
        let shape = parsed("1,maxcpus=12,sockets=2,cores=3,threads=2", false).unwrap();
        // vCPU 9 = socket 1 (6), core 1 (2), thread 1.
        assert_eq!(shape.place_of(9), [1, 0, 0, 1, 1]);
        assert_eq!(shape.device("max-x86_64-cpu", 9), "max-x86_64-cpu,id=vcpu9,socket-id=1,core-id=1,thread-id=1");
        for shape in [shape, parsed("16,sockets=2,modules=2,threads=2", false).unwrap()] {
            for vcpu in 0..shape.most {
                let place = shape.place_of(vcpu);
                let given = |key: &str| PLACE.iter().position(|name| *name == key).map(|index| place[index]);
                assert_eq!(shape.vcpu_at(given), Some(vcpu));
            }
        }
        assert_eq!(shape.vcpu_at(|key| (key == "core-id").then_some(3)), None);
        assert_eq!(shape.vcpu_at(|key| (key == "socket-id").then_some(u32::MAX)), None);
    }
}
