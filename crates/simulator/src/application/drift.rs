//! Threads that do not stay where they first touched their memory.

use crate::workload::Binding;

/// Share of a thread's traffic that stays on its own node, where all memory was touched first by
/// the thread that uses it.
///
/// A bound thread keeps all of it. An unbound one is moved now and then to an idle core, which may
/// be on any of `nodes` nodes. With a share `idle` of the cores that the kernel sees idle, it is
/// away from where it started for that share of the time: `1 - idle (1 - 1 / N)`. In a VM the
/// kernel sees vCPUs: with n threads on V of them, `1 - (1 - n / V) (1 - 1 / N)`.
pub fn local_share(binding: Binding, busy_cores: f64, cores: f64, nodes: u32) -> f64 {
    if binding == Binding::Pinned || cores <= 0.0 || nodes == 0 {
        return 1.0;
    }
    let idle = (1.0 - busy_cores / cores).max(0.0);
    1.0 - idle * (1.0 - 1.0 / f64::from(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unbound_threads_with_idle_cores_drift() {
        // 16 ranks on 32 vCPUs and 4 nodes: 1 - 0.5 x 0.75.
        assert_eq!(local_share(Binding::Unpinned, 16.0, 32.0, 4), 0.625);
        assert_eq!(local_share(Binding::Unpinned, 32.0, 32.0, 4), 1.0);
        assert_eq!(local_share(Binding::Pinned, 16.0, 32.0, 4), 1.0);
        assert_eq!(local_share(Binding::Unpinned, 4.0, 32.0, 1), 1.0);
        // Hardly any thread on many cores: as good as random.
        assert!((local_share(Binding::Unpinned, 1.0, 1e6, 8) - 0.125).abs() < 1e-5);
    }
}
