//! All tests of this crate in one program.

mod mending;
mod running;
mod together;
