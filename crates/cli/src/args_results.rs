//! Arguments of `homenode results`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct ResultsArguments {
    #[command(subcommand)]
    pub(crate) command: ResultsCommand,
}

#[derive(Subcommand)]
pub(crate) enum ResultsCommand {
    /// List the results directories in a directory
    List {
        /// Where they are
        #[arg(value_name = "DIRECTORY", default_value = "results")]
        parent: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the tables of results again
    Show {
        /// Results directory of a measured run or of a prediction
        #[arg(value_name = "RESULTS")]
        results: PathBuf,
        /// Print the figures as JSON, as `homenode evaluate --json`
        #[arg(long)]
        json: bool,
    },
    /// Write tables, figures and charts of results as files
    Export(ExportArguments),
}

#[derive(Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
pub(crate) struct ExportArguments {
    /// Results directory of a measured run or of a prediction
    #[arg(value_name = "RESULTS")]
    pub(crate) results: PathBuf,
    /// One CSV file for each table, and figures.csv with every figure in plain numbers, into this
    /// directory
    #[arg(long, value_name = "DIRECTORY", group = "what")]
    pub(crate) csv: Option<PathBuf>,
    /// The figures as `homenode evaluate --json` prints them, into this file
    #[arg(long, value_name = "FILE", group = "what")]
    pub(crate) json: Option<PathBuf>,
    /// One SVG file for each chart into this directory
    #[arg(long, value_name = "DIRECTORY", group = "what")]
    pub(crate) svg: Option<PathBuf>,
}
