//! homenode's answers in the languages of other stacks, and what those stacks have, judged.
//!
//! Text in, text out: nothing here opens a file, starts a program or asks a host.

pub mod check;
pub mod domain;
pub mod emit;
