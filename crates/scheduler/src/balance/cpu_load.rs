//! Load in CPUs, and how much of it takes no core of its own.
//!
//! **Problem.** A VM that prefers hardware threads (`prefer_ht`) shares cores with itself on
//! purpose. Counted against cores, a node that it fills as it wants is loaded 200 %, and its
//! balancer sends it away.
//!
//! **Rule.** Of a node of `C` cores and `T` hardware threads, `d` CPUs of such a client take
//! `d x C / T` cores; the rest is *doubled*. Who waits for a hardware thread waits all the same.
//!
//! **Example.** 8 busy vCPUs on 4 cores of two threads each take 4 cores: 100 %, and no core is
//! shared that is not meant to be. With 2 more CPUs of another VM the node is loaded 150 %, and 2
//! CPUs wait.

use std::ops::{Add, Mul, Neg, Sub};

/// Load in CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuLoad {
    /// All of it.
    pub(crate) cpus: f64,
    /// Part of it that shares cores by preference.
    pub(crate) doubled: f64,
}

impl CpuLoad {
    /// So many CPUs of a client on a node of so many cores and hardware threads.
    pub(super) fn of(cpus: f64, prefers_threads: bool, cores: f64, threads: f64) -> Self {
        let shares = prefers_threads && threads > cores;
        Self { cpus, doubled: if shares { cpus * (1.0 - cores / threads) } else { 0.0 } }
    }

    /// Cores that it takes.
    pub(super) fn in_cores(self) -> f64 {
        self.cpus - self.doubled
    }

    /// It, or none where it is negative.
    pub(super) fn or_none(self) -> Self {
        Self { cpus: self.cpus.max(0.0), doubled: self.doubled.max(0.0) }
    }
}

impl From<f64> for CpuLoad {
    fn from(cpus: f64) -> Self {
        Self { cpus, doubled: 0.0 }
    }
}

impl Add for CpuLoad {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cpus: self.cpus + other.cpus, doubled: self.doubled + other.doubled }
    }
}

impl Sub for CpuLoad {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { cpus: self.cpus - other.cpus, doubled: self.doubled - other.doubled }
    }
}

impl Neg for CpuLoad {
    type Output = Self;

    fn neg(self) -> Self {
        Self { cpus: -self.cpus, doubled: -self.doubled }
    }
}

impl Mul<f64> for CpuLoad {
    type Output = Self;

    fn mul(self, part: f64) -> Self {
        Self { cpus: self.cpus * part, doubled: self.doubled * part }
    }
}
