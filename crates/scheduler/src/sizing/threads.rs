//! Hardware threads of a virtual core.
//!
//! **Problem.** A guest that takes two hardware threads of one core for two cores puts its busiest
//! threads side by side while a core is idle; one that takes vCPUs for siblings that float leaves
//! half of them idle.
//!
//! **Rule.** A guest is told of threads where they stay what they are: each vCPU is bound to one
//! hardware thread (`vcpu_binding = "core"`), and hardware threads are counted (`prefer_ht`), so
//! that the vCPUs of a virtual core have those of one core. So many as a core of the machine has,
//! if they divide the vCPUs of each virtual socket; else the largest number that divides both.
//!
//! **Properties.** One of a VM that may get more vCPUs: these float.
//!
//! **Example.** 76 vCPUs on two nodes of 20 cores with two threads: two sockets of 19 cores with
//! two threads.

use crate::divide::common_divisor;
use crate::host::Host;
use vm::spec::VcpuBinding;
use vm::{Reason, Shape};

/// Hardware threads in a virtual core of a VM; `per_cache`: vCPUs of a virtual die.
pub(super) fn of_core(host: &Host, shape: &Shape, per_cache: u32) -> u32 {
    let bound = shape.policy.prefer_ht && shape.policy.vcpu_binding == VcpuBinding::Core;
    if !bound || shape.most_vcpus() > shape.vcpus {
        return 1;
    }
    common_divisor([per_cache, host.threads_per_core]).max(1)
}

pub(super) fn reason(threads: u32) -> Option<Reason> {
    (threads > 1).then(|| Reason {
        choice: format!("virtual cores of {threads} threads"),
        because:
            "policy.prefer_ht with policy.vcpu_binding = \"core\": the vCPUs of each have the hardware threads of \
            one core, and the guest knows"
                .to_owned(),
    })
}
