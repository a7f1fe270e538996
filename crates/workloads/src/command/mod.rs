//! A command of the user's own: which program is run, which figures are read out of what it says,
//! and when they can be believed.
//!
//! ```toml
//! [command]
//! argv = ["lmp", "-in", "in.lj", "-log", "log.lammps"]
//! environment = { OMP_NUM_THREADS = "{threads}" }
//! files = ["in.lj"]                    # copied to where the command runs, before each repetition
//!
//! [[command.figure]]
//! name = "speed"
//! unit = "{timestep}/s"                # what is counted stands in braces
//! better = "more"
//! regex = 'Performance: .* ([0-9.]+) timesteps/s'
//!
//! [[command.figure]]
//! name = "energy"
//! unit = "1"
//! better = "less"
//! file = "log.lammps"
//! regex = '^ +100 .* (-[0-9.]+) +[0-9.]+$'
//!
//! [command.verify]
//! values = [{ figure = "energy", expected = -4.6, tolerance = 0.01 }]
//! ```
//!
//! A pattern is looked for in each line while the command runs, so that its output is never kept
//! whole: 1 GB of it costs the memory of its first and last lines ([`Kept`]). This module knows no
//! process: the agent runs the command and hands in what it says ([`Hearing`]).

mod check;
mod document;
mod ended;
mod error;
mod hearing;
mod job;
mod kept;
mod lines;
mod number;
mod problem;
mod programs;
mod run;
mod section;
mod series;
mod unit;
mod variables;
mod verify;
mod workload;

pub use ended::{Ended, Used};
pub use error::CommandError;
pub use hearing::{Hearing, Listener};
pub use job::{InputFile, Job, Program};
pub use kept::Kept;
pub use problem::Problem;
pub use programs::{Programs, Run};
pub use run::{CommandRun, Measured};
pub use section::{Figure, Phase, Section, Source, Taken, Value, Verify, Which};
pub use series::Over;
pub use unit::check_unit;
pub use variables::{Variables, Width};
pub use verify::Verdict;

/// Longest pattern, in bytes.
const LONGEST_PATTERN: usize = 4096;
