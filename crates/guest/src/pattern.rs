//! A pattern in the memory of each virtual node, checked again and again: a guest that was moved,
//! resized, saved or sent and lost a page, or a second, says so on its console.
//!
//! The word `homenode.pattern=MIB` on the kernel's command line starts it, and so does the
//! console's command `pattern MIB`: so many MiB on each node that has memory. Each round checks
//! every word and writes it anew, so that memory changes all the time; words depend on node, place
//! and round. Each round runs on the next CPU that is online, so that rounds stop where one CPU
//! stands still.
//!
//! ```text
//! pattern: 64 MiB on each of nodes 0,1
//! pattern: round 12, 0 wrong, 4.1 s
//! pattern: WRONG: node 1, word 4711: found 0x0, expected 0x9e3779b97f4a7c15
//! ```

use linux::sys::{self, MemoryBinding};
use std::thread;
use std::time::{Duration, Instant};
use topology::{Machine, NodeId, NodeSet};

/// The word of the kernel's command line.
const WORD: &str = "homenode.pattern=";
/// Time between two rounds.
const REST: Duration = Duration::from_millis(200);
/// Wrong words that are shown of one round.
const MOST_SHOWN: u64 = 3;

/// How many MiB the kernel's command line asks for.
pub(crate) fn wanted(command_line: &str) -> Option<usize> {
    command_line.split_whitespace().find_map(|word| word.strip_prefix(WORD)?.parse().ok())
}

/// Fills and checks in the background, for ever.
pub(crate) fn start(machine: &Machine, mib: usize) {
    let nodes: Vec<NodeId> = machine.nodes.iter().filter(|node| node.memory.0 > 0).map(|node| node.id).collect();
    thread::spawn(move || {
        let mut parts: Vec<Part> = nodes.iter().map(|&node| Part::filled(node, mib)).collect();
        let all: NodeSet = nodes.into_iter().collect();
        println!("pattern: {mib} MiB on each of nodes {all}");
        let begun = Instant::now();
        for round in 1u64.. {
            run_on_the_next_cpu(round);
            let wrong: u64 = parts.iter_mut().map(|part| part.check_and_change(round)).sum();
            println!("pattern: round {round}, {wrong} wrong, {:.1} s", begun.elapsed().as_secs_f64());
            thread::sleep(REST);
        }
    });
}

/// Takes the CPUs that are online now in turn, also those that were plugged in meanwhile.
fn run_on_the_next_cpu(round: u64) {
    let Ok(machine) = topology::read::live() else { return };
    let online: Vec<_> = machine.usable_threads().map(|thread| thread.id).collect();
    let Some(&next) = online.get(round as usize % online.len().max(1)) else { return };
    if let Err(error) = sys::set_affinity(sys::thread_id(), &[next].into_iter().collect()) {
        println!("pattern: CPU {next} cannot be used: {error}");
    }
}

/// The memory of one node.
struct Part {
    node: NodeId,
    words: Vec<u64>,
}

impl Part {
    fn filled(node: NodeId, mib: usize) -> Self {
        let only = MemoryBinding::Bind(NodeSet::from_iter([node]));
        if let Err(error) = sys::set_thread_memory(&only) {
            println!("pattern: node {node}: its memory cannot be asked for: {error}");
        }
        let words = (0..mib << 17).map(|at| word(node, at, 0)).collect();
        Self { node, words }
    }

    /// How many words are not those of the round before.
    fn check_and_change(&mut self, round: u64) -> u64 {
        let mut wrong = 0;
        for (at, found) in self.words.iter_mut().enumerate() {
            let expected = word(self.node, at, round - 1);
            if *found != expected {
                wrong += 1;
                if wrong <= MOST_SHOWN {
                    println!("pattern: WRONG: node {}, word {at}: found {found:#x}, expected {expected:#x}", self.node);
                }
            }
            *found = word(self.node, at, round);
        }
        wrong
    }
}

/// Another word in each place and each round: splitmix64's mixing (Steele, Lea and Flood 2014).
fn word(node: NodeId, at: usize, round: u64) -> u64 {
    let seed = ((u64::from(node.0) + 1) << 48) ^ (round << 32) ^ at as u64;
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_on_the_command_line_says_how_much() {
        assert_eq!(wanted("console=ttyS0 homenode.pattern=64 quiet"), Some(64));
        assert_eq!(wanted("console=ttyS0"), None);
        assert_eq!(wanted("homenode.pattern=many"), None);
    }

    #[test]
    fn a_word_that_changed_is_counted_once_and_mended() {
        let words = (0..1000).map(|at| word(NodeId(1), at, 0)).collect();
        let mut part = Part { node: NodeId(1), words };
        part.words[17] ^= 1 << 40;
        assert_eq!((part.check_and_change(1), part.check_and_change(2)), (1, 0));
        part.words.swap(1, 2);
        assert_eq!(part.check_and_change(3), 2);
    }
}
