//! What a stack cannot express, as comments of its language.

use super::common::one_line;

/// Something of the plan that a stack cannot be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What cannot be expressed, as a sentence: `QEMU's command line binds no vCPU.`
    pub what: String,
    /// What the VM loses by it, and who can mend it, as a sentence.
    pub lost: String,
}

impl Loss {
    /// Both sentences.
    pub fn new(what: impl Into<String>, lost: impl Into<String>) -> Self {
        Self { what: what.into(), lost: lost.into() }
    }
}

/// The losses as lines that begin with `prefix` (`# `), for languages whose comments are lines.
pub(super) fn lines(losses: &[Loss], prefix: &str) -> String {
    let mut text = String::new();
    for loss in losses {
        text += &format!(
            "{prefix}NOT EXPRESSED: {}\n{prefix}  Lost by it: {}\n",
            one_line(&loss.what),
            one_line(&loss.lost)
        );
    }
    text
}
