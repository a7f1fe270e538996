//! The tests of images, as one test program.

mod build;
