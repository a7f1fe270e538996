//! What can go wrong with images.

use std::io;
use std::path::PathBuf;

/// An image that cannot be built or used.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// A program is missing.
    #[error("`{program}` is not installed; install the package {package} (`make dependencies` installs all)")]
    NoTool {
        /// The program.
        program: &'static str,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// A field of `[guest]`, or the packages of a command line.
    #[error("{field}: {problem}")]
    Guest {
        /// The field.
        field: String,
        /// What is wrong, and what would be valid.
        problem: String,
    },
    /// The disk is full.
    #[error("the file system of {} is full; free some space there, or name another place with {variable}",
        directory.display())]
    NoSpace {
        /// Where it was built.
        directory: PathBuf,
        /// What names another place.
        variable: &'static str,
    },
    /// A program that builds failed.
    #[error("{program} failed while it built {image}; its last words:\n  {}", words.join("\n  "))]
    Failed {
        /// The program.
        program: &'static str,
        /// What was built.
        image: String,
        /// What it said last.
        words: Vec<String>,
    },
    /// No image of this name.
    #[error("no image is called {name}; {}", there(names))]
    NoSuchImage {
        /// What was asked for.
        name: String,
        /// Those that are there.
        names: Vec<String>,
    },
    /// Another homenode builds or deletes.
    #[error(transparent)]
    Lock(#[from] linux::lock_file::LockFileError),
    /// The system refuses an operation.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, with the path.
        action: String,
        /// Why.
        source: io::Error,
    },
}

fn there(names: &[String]) -> String {
    if names.is_empty() { "there are none".to_owned() } else { format!("there are {}", names.join(", ")) }
}

impl ImagesError {
    /// Whether the user asked for what cannot be had.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::NoTool { .. } | Self::Guest { .. } | Self::NoSuchImage { .. })
    }

    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}
