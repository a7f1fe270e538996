//! One test program: each further one would be linked with every crate below.

mod application_fits;
mod applications;
mod beside;
mod calibrate;
mod codes;
mod compare;
mod example_workload;
mod experiments;
mod fitted_profile;
mod kernels_in_place;
mod machine_files;
mod orchestration;
mod report;
mod schema;
mod scripted;
mod until;
mod validation;
