//! One test program: each further one would be linked with every crate below.

mod command_lines;
mod spec_errors;
