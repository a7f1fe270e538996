//! `{threads}`, `{ranks}` and `{memory_mib}` in arguments and in the environment.

use topology::Bytes;

/// Widths at which one participant runs its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// Threads of each rank, `{threads}`.
    pub threads: u32,
    /// Ranks, `{ranks}`.
    pub ranks: u32,
}

impl Width {
    /// The widths of a participant that has `width` threads. `None` where they are no whole number
    /// of ranks.
    pub fn of(width: u32, threads_per_rank: Option<u32>) -> Option<Self> {
        match threads_per_rank {
            None => Some(Self { threads: width, ranks: width }),
            Some(threads) if threads > 0 && width > 0 && width.is_multiple_of(threads) => {
                Some(Self { threads, ranks: width / threads })
            }
            Some(_) => None,
        }
    }
}

/// What stands for the variables of one participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variables {
    /// `{threads}` and `{ranks}`.
    pub width: Width,
    /// The memory that it may use: `{memory_mib}`, rounded down.
    pub memory: Bytes,
}

impl Variables {
    /// Their names.
    pub(super) const NAMES: [&str; 3] = ["threads", "ranks", "memory_mib"];

    /// `text` with the numbers in place of the variables. Other braces stay: shells and awk use
    /// them.
    pub(super) fn fill(self, text: &str) -> String {
        let memory_mib = self.memory.0 >> 20;
        text.replace("{threads}", &self.width.threads.to_string())
            .replace("{ranks}", &self.width.ranks.to_string())
            .replace("{memory_mib}", &memory_mib.to_string())
    }
}

/// Words that are meant as a variable and are none.
const NEARLY: [&str; 13] = [
    "{thread}",
    "{rank}",
    "{THREADS}",
    "{RANKS}",
    "{Threads}",
    "{Ranks}",
    "{nthreads}",
    "{nranks}",
    "{np}",
    "{width}",
    "{memory}",
    "{memory_mb}",
    "{MEMORY_MIB}",
];

/// What is meant as a variable in `text` and is none.
pub(super) fn nearly(text: &str) -> Option<&'static str> {
    NEARLY.into_iter().find(|word| text.contains(word) && !text.contains(&format!("${word}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_shared_among_ranks() {
        assert_eq!(Width::of(8, None), Some(Width { threads: 8, ranks: 8 }));
        // 8 threads, 4 in each rank: 2 ranks.
        assert_eq!(Width::of(8, Some(4)), Some(Width { threads: 4, ranks: 2 }));
        assert_eq!(Width::of(6, Some(4)), None);
        assert_eq!(Width::of(0, Some(4)), None);
    }

    #[test]
    fn only_variables_are_filled_in() {
        let variables = Variables { width: Width { threads: 4, ranks: 2 }, memory: Bytes((3 << 20) + 5) };
        let filled = variables.fill("-np {ranks} -t {threads} -m {memory_mib} ${HOME} {print $1}");
        assert_eq!(filled, "-np 2 -t 4 -m 3 ${HOME} {print $1}");
        assert_eq!(nearly("-np {rank}"), Some("{rank}"));
        assert_eq!(nearly("-np ${np} {ranks}"), None);
    }
}
