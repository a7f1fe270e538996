//! `indexes=` of the synthetic grammar: how the objects of a level are numbered.

use super::error::ReadError;
use super::synthetic_grammar::{At, Level, error};
use crate::input::excerpt;

/// The number of each of `objects` objects, in depth-first order.
///
/// Three forms, as in hwloc: a list `0,2,1,3`; interleaving loops `2*4:1*2` (step * count, fastest
/// first); types `numa:core`, where neighbouring numbers go to neighbouring objects of the first
/// type, then the second.
pub(super) fn parse(
    text: &str,
    at: &At,
    indexes: &str,
    objects: usize,
    levels: &[Level],
) -> Result<Vec<u32>, ReadError> {
    let fail = |reason: String| error(text, at, format!("indexes={}: {reason}", excerpt(indexes)));
    let numbers = if indexes.contains('*') {
        inverted(&loops(indexes, objects).ok_or_else(|| fail(LOOPS.to_owned()))?)
    } else if indexes.contains(|c: char| c.is_ascii_alphabetic()) {
        inverted(&interleaved(&type_loops(indexes, objects, levels, fail)?, objects))
    } else {
        let list: Result<Vec<u32>, _> = indexes.split(',').map(|number| number.trim().parse()).collect();
        list.map(Some).map_err(|_| fail("write a list `0,2,1,3`, loops `2*4:1*2`, or types `numa:core`".to_owned()))?
    };
    let numbers = numbers.filter(|numbers| numbers.len() == objects && is_unique(numbers));
    let limit = super::MOST_THREADS as u32;
    match numbers {
        Some(numbers) if numbers.iter().all(|&number| number < limit) => Ok(numbers),
        Some(_) => Err(fail(format!("numbers must be under {limit}"))),
        None => Err(fail(format!("it must give each of the {objects} objects a number, each number once"))),
    }
}

fn is_unique(numbers: &[u32]) -> bool {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

/// A loop: `count` steps of `step` objects.
struct Loop {
    step: usize,
    count: usize,
}

const LOOPS: &str = "write each loop as `step*count`, for example `2*4:1*2`";

fn loops(indexes: &str, objects: usize) -> Option<Vec<u32>> {
    let parse = |part: &str| {
        let (step, count) = part.split_once('*')?;
        Some(Loop { step: step.trim().parse().ok()?, count: count.trim().parse().ok().filter(|&count| count > 0)? })
    };
    let loops: Option<Vec<Loop>> = indexes.split(':').map(parse).collect();
    Some(interleaved(&loops?, objects))
}

/// The object that has each number: with loops, number n has walked n mod count steps of the first,
/// and so on.
fn interleaved(loops: &[Loop], objects: usize) -> Vec<u32> {
    // A loop of one step goes nowhere, and each other one halves what is left to walk.
    let walks: Vec<&Loop> = loops.iter().filter(|walk| walk.count > 1).collect();
    let object = |number: usize| {
        let mut rest = number;
        let mut sum = 0_usize;
        for walk in &walks {
            if rest == 0 {
                break;
            }
            sum = sum.saturating_add(walk.step.saturating_mul(rest % walk.count));
            rest /= walk.count;
        }
        u32::try_from(sum).unwrap_or(u32::MAX)
    };
    (0..objects).map(object).collect()
}

/// Loops that types stand for, and a last one for what they leave.
fn type_loops(
    indexes: &str,
    objects: usize,
    levels: &[Level],
    fail: impl Fn(String) -> ReadError,
) -> Result<Vec<Loop>, ReadError> {
    let mut named = Vec::new();
    for name in indexes.split(':') {
        named.push(level_named(name, levels).ok_or_else(|| fail(format!("`{name}` is not a level of this string")))?);
    }
    let within = |depth: usize| levels[..=depth].iter().map(|level| level.count).product::<usize>();
    let mut sorted = named.clone();
    sorted.sort_unstable();
    let mut walks = Vec::new();
    for &depth in &named {
        let above = sorted.iter().rev().find(|&&other| other < depth).map_or(1, |&other| within(other));
        let here = within(depth);
        if here > objects || !objects.is_multiple_of(here) {
            return Err(fail("a type must be above the level that it numbers".to_owned()));
        }
        walks.push(Loop { step: objects / here, count: here / above });
    }
    let innermost = sorted.last().map_or(1, |&depth| within(depth));
    walks.push(Loop { step: 1, count: objects / innermost });
    Ok(walks)
}

fn level_named(name: &str, levels: &[Level]) -> Option<usize> {
    let name = name.trim().to_ascii_lowercase();
    levels.iter().position(|level| level.at.word.to_ascii_lowercase().split(':').next() == Some(name.as_str()))
}

/// From the object of each number to the number of each object; `None` where that is not one to
/// one.
fn inverted(objects: &[u32]) -> Option<Vec<u32>> {
    let mut numbers = vec![u32::MAX; objects.len()];
    for (number, &object) in (0..).zip(objects) {
        let slot = numbers.get_mut(object as usize)?;
        *slot = number;
    }
    numbers.iter().all(|&number| number != u32::MAX).then_some(numbers)
}
