//! What a file is about: the VM that is in it.

use serde::{Deserialize, Serialize};
use std::io;
use topology::input::shortened;
use vm::Manifest;
use vm::history::{Life, LifeEvent, UnixSeconds};

/// The VM in a file: all that another host needs to keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// A word that no other file has: the record of a VM that is in this file has it too.
    pub id: String,
    /// When it was suspended.
    pub saved_at: UnixSeconds,
    /// Its life until then.
    pub life: Life,
    /// What a program that takes the guest over must agree on; its spec and its topology are there.
    pub manifest: Manifest,
}

#[derive(Serialize, Deserialize)]
struct Text {
    // Files of an earlier homenode lack it, as do their VMs' records.
    #[serde(default)]
    id: String,
    saved_at: UnixSeconds,
    life: Life,
    manifest: String,
}

/// A text about no VM.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its description of the VM cannot be used: {0}")]
pub struct AboutError(String);

impl About {
    /// That of a VM that is being suspended, with a word of its own.
    ///
    /// # Errors
    /// None can be drawn.
    pub fn new(saved_at: UnixSeconds, life: Life, manifest: Manifest) -> io::Result<Self> {
        Ok(Self { id: linux::unique::word()?, saved_at, life, manifest })
    }

    /// As a text.
    ///
    /// # Errors
    /// Its manifest is longer than any that is read.
    pub fn to_text(&self) -> Result<String, AboutError> {
        let manifest = self.manifest.to_text().map_err(|error| AboutError(error.to_string()))?;
        let text = Text { id: self.id.clone(), saved_at: self.saved_at, life: self.life.clone(), manifest };
        serde_json::to_string(&text).map_err(|error| AboutError(error.to_string()))
    }

    /// Reads one that somebody else may have written.
    ///
    /// # Errors
    /// It is about no VM, or of another format.
    pub fn from_text(text: &str) -> Result<Self, AboutError> {
        let text: Text = serde_json::from_str(text).map_err(|error| AboutError(shortened(&error.to_string())))?;
        let manifest = Manifest::from_text(&text.manifest).map_err(|error| AboutError(error.to_string()))?;
        Ok(Self { id: text.id, saved_at: text.saved_at, life: text.life, manifest })
    }

    /// Whether a VM that is suspended is in this file: it was the last that it was written into.
    pub fn is_last_of(&self, life: &Life) -> bool {
        let last = life.history.iter().rev().find_map(|chapter| match &chapter.event {
            LifeEvent::Suspended { id, .. } => Some((chapter.at, id)),
            _ => None,
        });
        last == Some((self.saved_at, &self.id))
    }

    /// Whether another life is of the same VM: it began at the same time.
    pub fn is_of(&self, other: &Life) -> bool {
        let began = |life: &Life| life.history.first().map(|chapter| chapter.at);
        began(&self.life) == began(other)
    }
}
