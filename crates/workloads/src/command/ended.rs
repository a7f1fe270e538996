//! How a run of a program ended, and what it used.

use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// It was ended at its time limit, of so many seconds.
    TimeLimit(u32),
}

impl Ended {
    /// How, in words. Numbers of signals are those of Linux.
    pub fn in_words(self) -> String {
        match self {
            Self::Status(127) => "ended with exit status 127: a shell did not find a program (`needs` brings those \
                that it starts into a guest)"
                .to_owned(),
            Self::Status(status) => format!("ended with exit status {status}"),
            Self::Signal(signal) => format!("was ended by signal {signal} ({})", signal_name(signal)),
            Self::TimeLimit(seconds) => format!(
                "still ran after {seconds} s and was ended, with all that it had started; time_limit_seconds says how \
                long it may run"
            ),
        }
    }
}

/// What a signal most often means.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        4 => "SIGILL: it uses instructions that this CPU lacks",
        6 => "SIGABRT: it gave up on its own",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL: most often because memory ran out",
        11 => "SIGSEGV: it used memory that is not its own",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => "see signal(7)",
    }
}

/// What a run used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Seconds from its start to its end.
    pub wall_seconds: f64,
    /// Seconds of CPUs in user mode, of all its processes.
    pub user_seconds: f64,
    /// Seconds of CPUs in the kernel, of all its processes.
    pub system_seconds: f64,
    /// Largest resident memory of one of its processes.
    pub peak_memory_bytes: u64,
    /// Processes that it left behind, which were ended.
    pub left_behind: u32,
}

impl Used {
    /// Seconds of CPUs.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}
