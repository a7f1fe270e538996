//! How many vCPUs a VM has, and in which virtual socket each is.

use super::Doubt;
use super::options::Options;
use serde::Serialize;
use topology::limits::MOST_VCPUS;

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
    /// Cores in a die.
    pub cores: u32,
    /// Threads in a core.
    pub threads: u32,
}

impl VcpuTopology {
    /// Reads the value of `-smp`. Cores are what is left over, as in QEMU since 6.2.
    pub(super) fn parse(value: &str) -> Result<Self, Doubt> {
        let smp = Options::parse(value, "cpus");
        let given = |key: &str| smp.number(key).filter(|&number| number > 0);
        let product = |keys: &[&str]| keys.iter().map(|key| given(key).unwrap_or(1)).fold(1, u32::saturating_mul);
        let shape = product(&["sockets", "dies", "clusters", "modules", "cores", "threads"]);
        let most = given("maxcpus").or(given("cpus")).unwrap_or(shape);
        let (sockets, dies, threads) = match (given("sockets"), given("cores")) {
            (None, Some(cores)) => {
                let rest = product(&["dies", "clusters", "modules", "threads"]).saturating_mul(cores);
                (most.div_ceil(rest.max(1)), product(&["dies"]), product(&["threads"]))
            }
            _ => (product(&["sockets"]), product(&["dies"]), product(&["threads"])),
        };
        if [most, given("cpus").unwrap_or(most), sockets, dies, threads].into_iter().any(|number| number > MOST_VCPUS) {
            return Err(Doubt::Vcpus(value.to_owned()));
        }
        let per_core = sockets.saturating_mul(dies).saturating_mul(threads).max(1);
        Ok(Self { vcpus: given("cpus").unwrap_or(most), most, sockets, dies, cores: most.div_ceil(per_core), threads })
    }

    /// The virtual socket of a vCPU.
    pub(super) fn socket_of(&self, vcpu: u32) -> u32 {
        vcpu / (self.dies * self.cores * self.threads).max(1)
    }

    /// The vCPUs whose place agrees with every `socket-id`, `die-id`, `core-id` and `thread-id`
    /// that is given.
    pub(super) fn matching(&self, given: impl Fn(&str) -> Option<u32>) -> impl Iterator<Item = u32> {
        let wanted = ["socket-id", "die-id", "core-id", "thread-id"].map(given);
        let this = *self;
        (0..self.most).filter(move |&vcpu| {
            let core = vcpu / this.threads.max(1);
            let die = core / this.cores.max(1);
            let place =
                [this.socket_of(vcpu), die % this.dies.max(1), core % this.cores.max(1), vcpu % this.threads.max(1)];
            wanted.iter().zip(place).all(|(wanted, place)| wanted.is_none_or(|wanted| wanted == place))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_filled_in() {
        let of = |value| VcpuTopology::parse(value).unwrap();
        assert_eq!(of("8").cores, 8);
        assert_eq!(
            of("8,sockets=2,cores=2,threads=2"),
            VcpuTopology { vcpus: 8, most: 8, sockets: 2, dies: 1, cores: 2, threads: 2 }
        );
        assert_eq!(of("1,sockets=2,cores=2,maxcpus=4").vcpus, 1);
        assert_eq!(of("sockets=2,cores=3").vcpus, 6); // 2 x 3
        assert_eq!(of("12,cores=3,threads=2").sockets, 2); // 12 / (3 x 2)
        assert_eq!(of("0").vcpus, 1);
    }

    #[test]
    fn vcpus_count_threads_first_then_cores_then_sockets() {
        let shape = VcpuTopology::parse("8,sockets=2,cores=2,threads=2").unwrap();
        let of = |ids: &[(&str, u32)]| {
            let ids = ids.to_vec();
            shape.matching(move |key| ids.iter().find(|(name, _)| *name == key).map(|&(_, id)| id)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[("socket-id", 1)]), [4, 5, 6, 7]);
        assert_eq!(of(&[("socket-id", 0), ("core-id", 1)]), [2, 3]);
        assert_eq!(of(&[("socket-id", 1), ("core-id", 0), ("thread-id", 1)]), [5]);
    }
}
