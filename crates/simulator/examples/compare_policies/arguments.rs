//! What is compared: machines, loads, rivals, seeds.

use scheduler::balance::BalancePolicy;
use simulator::rivals::{NAMES, OURS};
use std::ops::RangeInclusive;
use topology::TomlText;

/// CPUs that all VMs want for each core.
const LOADS: [Load; 3] = [
    Load { word: "half", title: "half loaded", cpus_per_core: 0.5 },
    Load { word: "well", title: "well loaded", cpus_per_core: 0.9 },
    Load { word: "over", title: "overcommitted", cpus_per_core: 2.2 },
];

pub(crate) const USAGE: &str = "\
compare_policies [--machines a,b] [--loads half,well,over] [--rivals a,b] [--seeds 20 | 21-40]
                 [--hours 2] [--threads 2] [--policy FILE]
Defaults: dell-r910,epyc-7742-2s-nps4,xeon-8480-2s, all loads, everybody, seeds 1 to 20, 2 hours.
Rivals: run, balance (homenode's own; the first one named is what the others are compared with),
autonuma, autonuma-7.2, esxi, linux, linux-7.2, numad, numad-one-shot, pins.
FILE: thresholds of homenode's balancer, as in [balance] of its policy file, without that line.";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    word: &'static str,
    pub(crate) title: &'static str,
    pub(crate) cpus_per_core: f64,
}

#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) machines: Vec<String>,
    pub(crate) loads: Vec<Load>,
    pub(crate) rivals: Vec<String>,
    pub(crate) seeds: RangeInclusive<u64>,
    pub(crate) hours: f64,
    pub(crate) threads: usize,
    pub(crate) policy: BalancePolicy,
}

impl Arguments {
    /// Reads the command line; an error is a sentence for whoever typed it.
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self {
            machines: list("dell-r910,epyc-7742-2s-nps4,xeon-8480-2s"),
            loads: LOADS.to_vec(),
            rivals: OURS.iter().chain(&NAMES).map(|name| (*name).to_owned()).collect(),
            seeds: 1..=20,
            hours: 2.0,
            threads: 2,
            policy: BalancePolicy::default(),
        };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option}: a value is missing\n{USAGE}"))?;
            let number = |valid: &str| format!("{option} {value}: expected {valid}");
            match option.as_str() {
                "--machines" => arguments.machines = list(&value),
                "--loads" => arguments.loads = list(&value).iter().map(|word| load(word)).collect::<Result<_, _>>()?,
                "--rivals" => arguments.rivals = list(&value).into_iter().map(rival).collect::<Result<_, _>>()?,
                "--seeds" => arguments.seeds = seeds(&value).ok_or_else(|| number("20, or 21-40"))?,
                "--hours" => arguments.hours = value.parse().map_err(|_| number("hours"))?,
                "--threads" => arguments.threads = value.parse().map_err(|_| number("a number from 1"))?,
                "--policy" => arguments.policy = policy(&value)?,
                _ => return Err(format!("{option}: no such option\n{USAGE}")),
            }
        }
        Ok(arguments)
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn load(word: &str) -> Result<Load, String> {
    let found = LOADS.iter().find(|load| load.word == word);
    found.copied().ok_or_else(|| format!("--loads {word}: expected half, well or over"))
}

fn rival(word: String) -> Result<String, String> {
    let known = OURS.iter().chain(&NAMES).any(|name| *name == word);
    if known { Ok(word) } else { Err(format!("--rivals {word}: expected {} or {}", OURS.join(", "), NAMES.join(", "))) }
}

fn seeds(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-').unwrap_or(("1", text));
    let range = first.parse().ok()?..=last.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

#[allow(clippy::disallowed_methods, reason = "the model reads no file; this program does")]
fn policy(file: &str) -> Result<BalancePolicy, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("--policy {file}: {error}"))?;
    TomlText::new(&text, file).read().map_err(|error| error.to_string())
}
