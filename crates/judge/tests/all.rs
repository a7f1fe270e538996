//! All tests of this crate in one program.

mod huge_pages;
mod mending;
mod one_home;
mod running;
mod together;
mod told;
