//! Properties with seeds that do not change: for tests alone, no program uses it.
//!
//! A property that draws new cases in each run comes and goes: a change that is right fails, and
//! the next run of the same change passes. So the cases follow from the name of the property. New
//! ones are drawn on purpose: `make explore` runs all properties again and again with other numbers
//! in `HOMENODE_SEED`, and `HOMENODE_CASES_TIMES=100` draws 100 times as many in one run.
//!
//! ```text
//! properties::properties! {
//!     #![cases(64)]
//!
//!     #[test]
//!     fn a_sum_does_not_depend_on_the_order(a in any::<u8>(), b in any::<u8>()) {
//!         prop_assert_eq!(u16::from(a) + u16::from(b), u16::from(b) + u16::from(a));
//!     }
//! }
//! ```
//!
//! This is a test named `a_sum_does_not_depend_on_the_order::property`. When it fails it prints the
//! number that makes the same cases again, and the line that keeps this case for ever: a line of
//! the file beside the source, `NAME.proptest-regressions`.

use proptest::test_runner::{Config, FailurePersistence, FileFailurePersistence, PersistedSeed, RngSeed, TestRunner};
use std::any::Any;
use std::fmt::Debug;

#[doc(hidden)]
pub use proptest;

/// The environment variable whose number draws other cases; without it, the number is 0.
const OTHER_CASES: &str = "HOMENODE_SEED";

/// The environment variable whose number says how many times as many cases a run draws.
const MORE_CASES: &str = "HOMENODE_CASES_TIMES";

/// How the files beside the sources are called that keep what once failed.
const REGRESSIONS: &str = "proptest-regressions";

/// Letters of a case beside its line; all of it is printed as the smallest case that fails.
const LONGEST_COMMENT: usize = 200;

/// Cases of a property whose block does not say how many: proptest's own number.
pub const CASES: u32 = 256;

/// Properties as `proptest!` has them, with seeds that follow from their names. `#![cases(N)]` says
/// how many cases a run draws.
#[macro_export]
macro_rules! properties {
    (#![cases($cases:expr)] $($rest:tt)*) => { $crate::each_property! { $cases; $($rest)* } };
    ($($rest:tt)*) => { $crate::each_property! { $crate::CASES; $($rest)* } };
}

#[doc(hidden)]
#[macro_export]
macro_rules! each_property {
    ($cases:expr; $($(#[$meta:meta])* fn $name:ident($($drawn:tt)+) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports, reason = "a body may need none of them")]
            use super::*;

            $(#[$meta])*
            fn property() {
                let _says_how_to_get_them_again = $crate::Seed::of(::core::module_path!());
                $crate::proptest::proptest! {
                    #![proptest_config($crate::Seed::of(::core::module_path!()).config($cases))]
                    fn every_drawn_case($($drawn)+) $body
                }
                every_drawn_case();
            }
        }
    )*};
}

/// What decides the cases of one property. When the property fails, it says how to get the same
/// cases again.
#[doc(hidden)]
#[derive(Debug)]
pub struct Seed {
    property: &'static str,
    number: u64,
}

impl Seed {
    /// The seed of the property in the module of that path, in this run.
    ///
    /// # Panics
    /// Where the environment variable `HOMENODE_SEED` is no number. [`Seed::config`] does the same
    /// with `HOMENODE_CASES_TIMES`, which is 1 at least.
    #[must_use]
    pub fn of(property: &'static str) -> Self {
        Self { property, number: number_of(OTHER_CASES, 0).unwrap_or(0) }
    }

    /// What proptest needs to know of it.
    #[must_use]
    pub fn config(&self, cases: u32) -> Config {
        let rng_seed = RngSeed::Fixed(fnv1a(self.property) ^ self.number);
        let default = Config::default();
        let times = number_of(MORE_CASES, 1).unwrap_or(1);
        let more = |count: u32| u32::try_from(u64::from(count).saturating_mul(times)).unwrap_or(u32::MAX);
        let (cases, max_global_rejects) = (more(cases), more(default.max_global_rejects));
        Config { cases, max_global_rejects, rng_seed, failure_persistence: Some(Box::new(Kept)), ..default }
    }
}

/// Draws cases for a test that looks at many at once: the same in each run, as those of a property.
#[must_use]
pub fn runner(test: &'static str) -> TestRunner {
    TestRunner::new(Seed::of(test).config(CASES))
}

/// What a variable says; `None` where there is none.
fn number_of(variable: &str, least: u64) -> Option<u64> {
    std::env::var(variable).ok().map(|text| match text.parse() {
        Ok(number) if number >= least => number,
        _ => panic!("{variable}={text}: expected a number from {least} to {}", u64::MAX),
    })
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let times =
                std::env::var(MORE_CASES).map_or_else(|_| String::new(), |times| format!("{MORE_CASES}={times} "));
            eprintln!("The same cases again: {times}{OTHER_CASES}={} cargo test {}", self.number, self.filter());
        }
    }
}

impl Seed {
    /// The name of the test without its program's.
    fn filter(&self) -> String {
        let path = self.property.split_once("::").map_or(self.property, |(_, path)| path);
        format!("{path}::property")
    }
}

/// FNV-1a, which is the same with every compiler and on every machine.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Cases that failed once come first, from the file beside the source. A run of the tests writes
/// none: it prints the line to add.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kept;

impl FailurePersistence for Kept {
    fn load_persisted_failures2(&self, source: Option<&'static str>) -> Vec<PersistedSeed> {
        FileFailurePersistence::WithSource(REGRESSIONS).load_persisted_failures2(source)
    }

    fn save_persisted_failure2(&mut self, source: Option<&'static str>, seed: PersistedSeed, shrunken: &dyn Debug) {
        let file = std::path::Path::new(source.unwrap_or("(unknown)")).with_extension(REGRESSIONS);
        let drawn: String = format!("{shrunken:?}").chars().filter(|c| !c.is_control()).take(LONGEST_COMMENT).collect();
        eprintln!("To keep this case, add this line to {}:\n{seed} # shrinks to {drawn}", file.display());
    }

    fn box_clone(&self) -> Box<dyn FailurePersistence> {
        Box::new(*self)
    }

    fn eq(&self, other: &dyn FailurePersistence) -> bool {
        other.as_any().is::<Self>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    fn drawn(property: &'static str, number: u64) -> Vec<u64> {
        let mut runner = TestRunner::new(Seed { property, number }.config(CASES));
        (0..4).map(|_| any::<u64>().new_tree(&mut runner).expect("a number").current()).collect()
    }

    #[test]
    fn the_name_decides_the_cases_and_another_number_draws_others() {
        assert_eq!(drawn("all::one", 0), drawn("all::one", 0));
        assert_ne!(drawn("all::one", 0), drawn("all::other", 0));
        assert_ne!(drawn("all::one", 0), drawn("all::one", 1));
    }

    #[test]
    fn names_have_the_hash_that_its_authors_give() {
        // draft-eastlake-fnv, appendix: the 64-bit FNV-1a of "" and of "foobar".
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_command_names_the_test() {
        let seed = Seed { property: "all::domain_edit::twice_is_once", number: 0 };
        assert_eq!(seed.filter(), "domain_edit::twice_is_once::property");
    }

    properties! {
        #![cases(16)]

        /// A property may be documented, and may take what it draws apart.
        #[test]
        fn what_is_drawn_is_in_its_range((low, high) in (0_u32..5, 5_u32..9)) {
            prop_assert!(low < high);
        }
    }
}
