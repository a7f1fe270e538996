//! Fuzzes one reader: crates/readers.
#![no_main]

homenode_fuzz::target!("migration");
