//! `homenode evaluate`: an experiment runs natively and in VMs, every raw repetition is kept, and
//! tables and a report are made of it.
//!
//! [`experiment`] and [`parse`] are the file, [`resolve`] is the file on a host, [`runner`]
//! measures in a [`world`], [`records`], [`journal`] and [`results`] keep, [`summary`] reduces.

pub mod advise;
mod answer;
pub mod applications;
pub mod calibrate;
mod carried;
pub mod charts;
pub mod columns;
pub mod compare;
pub mod disturbance;
pub mod environment;
mod errors;
pub mod estimate;
pub mod evaluation;
pub mod experiment;
pub mod export;
pub mod figure;
pub mod fitted_profile;
mod guest_clock;
pub mod guest_files;
mod image_boot;
pub mod interval;
mod job;
mod join;
pub mod journal;
pub mod kernels;
pub mod machine_picture;
pub mod modelled;
pub mod of_command;
pub mod overlap;
pub mod parse;
pub mod point;
pub mod profiles;
pub mod progress;
pub mod published;
pub mod real;
pub mod records;
pub mod report;
pub mod resolve;
pub mod results;
pub mod runner;
pub mod schedule;
pub mod session;
pub mod summary;
pub mod switching;
pub mod tables;
mod team;
pub mod text;
pub mod until;
pub mod validation;
pub mod vcpus;
mod wiring;
pub mod world;

pub use errors::{RunError, WorldError};
