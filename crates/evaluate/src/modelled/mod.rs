//! An experiment on the model of a machine: the same file, the same VMs sized and placed by the
//! same scheduler, and figures that are computed instead of measured. Nothing here starts a process
//! or reads a clock.

pub mod beside;
pub(crate) mod cells;
pub(crate) mod check;
mod error;
mod fit;
mod notes;
pub mod page;
mod pages;
mod predict;
mod setting;
pub mod settings;
mod stream;

pub(crate) use check::is_file;
pub use error::ModelledError;
pub use fit::Fitted;
pub use predict::{Inputs, PredictedConfiguration, Prediction, predict, refit};
pub use setting::Setting;
pub(crate) use stream::threads_by_node;
pub use stream::{Load, REMOTE_SHARE};
