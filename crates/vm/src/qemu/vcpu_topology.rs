//! How many vCPUs a VM has, and in which virtual socket each is.

use super::Doubt;
use super::options::Options;
use serde::Serialize;
use topology::limits::MOST_VCPUS;

/// What QEMU calls the parts of a vCPU's place, from the outside in.
const PLACE: [&str; 4] = ["socket-id", "die-id", "core-id", "thread-id"];

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

    /// Where a vCPU is: `socket-id`, `die-id`, `core-id`, `thread-id`, each within the one before.
    pub fn place_of(&self, vcpu: u32) -> [u32; 4] {
        let core = vcpu / self.threads.max(1);
        let die = core / self.cores.max(1);
        [self.socket_of(vcpu), die % self.dies.max(1), core % self.cores.max(1), vcpu % self.threads.max(1)]
    }

    /// The vCPU at a place; what is not given is 0, as where there is only one. `None` if there is
    /// no such place.
    pub fn vcpu_at(&self, given: impl Fn(&str) -> Option<u32>) -> Option<u32> {
        let [socket, die, core, thread] = PLACE.map(|key| given(key).unwrap_or(0));
        let fits = die < self.dies && core < self.cores && thread < self.threads;
        let index = |whole: u32, of: u32, rest: u32| whole.checked_mul(of)?.checked_add(rest);
        let index = index(index(index(socket, self.dies, die)?, self.cores, core)?, self.threads, thread)?;
        (fits && index < self.most).then_some(index)
    }

    /// The value of `-device` that plugs a vCPU in.
    pub fn device(&self, driver: &str, vcpu: u32) -> String {
        let [socket, die, core, thread] = self.place_of(vcpu);
        // QEMU takes a die that is not named for the first only where there is one.
        let die = if self.dies > 1 { format!(",die-id={die}") } else { String::new() };
        format!("{driver},id={},socket-id={socket}{die},core-id={core},thread-id={thread}", vcpu_id(vcpu))
    }

    /// The virtual socket of a vCPU.
    pub(super) fn socket_of(&self, vcpu: u32) -> u32 {
        vcpu / (self.dies * self.cores * self.threads).max(1)
    }

    /// The vCPUs whose place agrees with every `socket-id`, `die-id`, `core-id` and `thread-id`
    /// that is given.
    pub(super) fn matching(&self, given: impl Fn(&str) -> Option<u32>) -> impl Iterator<Item = u32> {
        let wanted = PLACE.map(given);
        let this = *self;
        (0..self.most).filter(move |&vcpu| {
            wanted.iter().zip(this.place_of(vcpu)).all(|(wanted, place)| wanted.is_none_or(|wanted| wanted == place))
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

    #[test]
    fn a_vcpu_is_at_one_place() {
        let shape = VcpuTopology::parse("1,maxcpus=12,sockets=2,cores=3,threads=2").unwrap();
        // vCPU 9 = socket 1 (6), core 1 (2), thread 1.
        assert_eq!(shape.place_of(9), [1, 0, 1, 1]);
        assert_eq!(shape.device("max-x86_64-cpu", 9), "max-x86_64-cpu,id=vcpu9,socket-id=1,core-id=1,thread-id=1");
        for vcpu in 0..12 {
            let place = shape.place_of(vcpu);
            let given = |key: &str| PLACE.iter().position(|name| *name == key).map(|index| place[index]);
            assert_eq!(shape.vcpu_at(given), Some(vcpu));
        }
        assert_eq!(shape.vcpu_at(|key| (key == "core-id").then_some(3)), None);
        assert_eq!(shape.vcpu_at(|key| (key == "socket-id").then_some(u32::MAX)), None);
    }
}
