//! How wrong the model is: each modelled figure beside the published one, and what the figure was
//! used for.

pub mod cell;
pub mod gates;
pub mod outcome;
pub mod report;
pub mod shipped;
pub mod statement;
