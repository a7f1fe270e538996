//! Whether the memory of a trace's VMs fits on a machine.
//!
//! **Problem.** On a modelled machine memory that does not fit is not touched, and the VMs go on as
//! if they had it: "throughput 99.8 %" of two VMs of 2 TiB on 48 GiB.
//!
//! **Rule.** No VM may have more memory than the machine, and at no moment may guests have touched
//! more than it has. What was touched stays until its VM ends; memory that is never touched counts
//! as nothing, as on a host.
//!
//! **Example.** 48 GiB. VM `a` touches 30 GiB from its start at 0 s until 100 s, `b` 10 GiB from
//! 0 s and 20 GiB from 60 s on: 50 GiB at 60 s.

use super::{Arrival, Trace};
use scheduler::Moment;
use topology::{Bytes, Machine};

/// VMs that are named where all together do not fit.
const NAMED: usize = 3;

/// Memory that a machine does not have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TraceTooLarge {
    /// A VM alone.
    #[error(
        "{trace}: VM {vm}: its memory is {memory}, and {machine} has {there}: make it smaller, or take a larger machine"
    )]
    Vm {
        /// The trace's name.
        trace: String,
        /// The VM's name.
        vm: String,
        /// Its memory.
        memory: Bytes,
        /// The machine.
        machine: String,
        /// What it has.
        there: Bytes,
    },
    /// All that are there at a moment.
    #[error(
        "{trace}: {seconds} s: {vms} VMs have touched {touched} ({named}), and {machine} has {there}: fewer or smaller \
        VMs, or a larger machine"
    )]
    Together {
        /// The trace's name.
        trace: String,
        /// The first such moment, in seconds.
        seconds: f64,
        /// How many VMs are there.
        vms: usize,
        /// What they have touched.
        touched: Bytes,
        /// The largest of them, as text.
        named: String,
        /// The machine.
        machine: String,
        /// What it has.
        there: Bytes,
    },
}

impl Trace {
    /// Whether the memory of its VMs fits on a machine at every moment.
    ///
    /// # Errors
    /// The first VM or moment for which it does not.
    pub fn check_memory(&self, machine: &Machine) -> Result<(), TraceTooLarge> {
        let there: Bytes = machine.nodes.iter().map(|node| node.memory).sum();
        if let Some(arrival) = self.arrivals.iter().find(|arrival| arrival.vm.memory() > there) {
            let (vm, memory) = (arrival.vm.name.clone(), arrival.vm.memory());
            let (trace, machine) = (self.name.clone(), machine.name.clone());
            return Err(TraceTooLarge::Vm { trace, vm, memory, machine, there });
        }
        let mut moments: Vec<Moment> = self.arrivals.iter().flat_map(changes).filter(|at| *at < self.ends).collect();
        moments.sort_unstable();
        moments.dedup();
        for at in moments {
            let mut held: Vec<(Bytes, &str)> =
                self.arrivals.iter().map(|one| (touched(one, at), one.vm.name.as_str())).collect();
            held.retain(|(bytes, _)| bytes.0 > 0);
            let all: Bytes = held.iter().map(|(bytes, _)| *bytes).sum();
            if all > there {
                held.sort_by(|one, other| other.cmp(one));
                let named: Vec<String> =
                    held.iter().take(NAMED).map(|(bytes, name)| format!("{name}: {bytes}")).collect();
                return Err(TraceTooLarge::Together {
                    trace: self.name.clone(),
                    seconds: at.0 as f64 / 1000.0,
                    vms: held.len(),
                    touched: all,
                    named: named.join(", ") + if held.len() > NAMED { ", ..." } else { "" },
                    machine: machine.name.clone(),
                    there,
                });
            }
        }
        Ok(())
    }
}

/// Moments at which a VM may have touched more than before.
fn changes(arrival: &Arrival) -> impl Iterator<Item = Moment> + '_ {
    let phases = arrival.vm.clients.iter().flat_map(|client| &client.phases);
    phases.map(|phase| Moment(arrival.at.0.saturating_add(phase.after_ms)))
}

/// What a VM will have touched by the phases that have begun at a moment; nothing before and after
/// its life.
fn touched(arrival: &Arrival, at: Moment) -> Bytes {
    if at < arrival.at || arrival.leaves.is_some_and(|leaves| at >= leaves) {
        return Bytes(0);
    }
    let of = |client: &crate::host::ClientShape| {
        let begun = client.phases.iter().filter(|phase| arrival.at.0.saturating_add(phase.after_ms) <= at.0);
        begun.map(|phase| phase.resident).max().unwrap_or_default().min(client.memory)
    };
    arrival.vm.clients.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(vms: &str) -> Result<(), String> {
        let trace = Trace::from_toml(&format!("seconds = 200\n{vms}"), "t.toml").expect("a trace");
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=24GiB)] core:4 pu:2").expect("a machine");
        trace.check_memory(&machine).map_err(|error| error.to_string())
    }

    #[test]
    fn memory_that_does_not_fit_is_named_with_its_moment() {
        let a = "[[vm]]\nname = \"a\"\nvcpus = 1\nmemory = \"30 GiB\"\nends = 100\nbusy = 1\n";
        let b = |after: u32| {
            format!(
                "[[vm]]\nname = \"b\"\nvcpus = 1\nmemory = \"40 GiB\"\n[[vm.phase]]\nbusy = 1\nresident = \"10 \
                GiB\"\n[[vm.phase]]\nafter = {after}\nbusy = 1\nresident = \"20 GiB\"\n"
            )
        };
        assert_eq!(checked(a), Ok(()));
        let error = checked(&format!("{a}{}", b(60))).expect_err("50 of 48 GiB");
        assert!(error.contains("60 s: 2 VMs have touched 50 GiB (a: 30 GiB, b: 20 GiB)"), "{error}");
        // `a` has ended.
        assert_eq!(checked(&format!("{a}{}", b(100))), Ok(()));
        let error = checked(&a.replace("30 GiB", "2 TiB")).expect_err("2 TiB");
        assert!(error.contains("VM a: its memory is 2 TiB") && error.contains("has 48 GiB"), "{error}");
    }
}
