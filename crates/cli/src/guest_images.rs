//! Specs whose guest is to be built, or is an image: `[guest]` becomes what a VM can boot.

use crate::failure::bad_input;
use crate::output;
use anyhow::Context;
use evaluate::resolve::ResolvedGuest;
use images::{Image, Images, ImagesError, OwnDisk, Progress, Recipe, Tools};
use qemu::TinyGuest;
use std::path::{Path, PathBuf};
use vm::VmSpec;
use vm::spec::{Boot, Disk, DiskFormat, Guest, GuestImage, GuestRoot};
use workloads::protocol::PORT_NAME;

/// What may be done for an image that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is built, which takes minutes.
    Build,
    /// It is asked for.
    Refuse,
}

/// The spec with its image as the first disk, which the tiny guest goes to; a spec without
/// `[guest]` as it is. `file`: what errors name.
///
/// # Errors
/// Bad input: packages that cannot be had, a tool that is missing, an image that is not built. It
/// cannot be built.
pub(crate) fn realized(mut spec: VmSpec, file: &Path, missing: Missing) -> anyhow::Result<VmSpec> {
    let Some(guest) = spec.guest.take() else { return Ok(spec) };
    if let Some(image) = guest.image() {
        return of_image(spec, &image, file, missing);
    }
    let (images, tools) = (Images::of_this_user(), Tools::of_this_user());
    let fail = |error: ImagesError| failure(&file.display().to_string(), error);
    let recipe = images::recipe_of(&guest, &tools).map_err(fail)?;
    let image = match (images.of(&recipe).map_err(fail)?, missing) {
        (Some(image), _) => image,
        (None, Missing::Build) => build(&images, &recipe, &tools).map_err(fail)?,
        (None, Missing::Refuse) => {
            let (file, what) = (file.display(), recipe.summary());
            return Err(bad_input(format!(
                "{file}: the guest ({what}) is not built yet: `homenode guest build {file}` builds it"
            )));
        }
    };
    spec.boot = Boot::TinyGuest { kernel: None, root: GuestRoot::FirstDisk };
    let disk = Disk { path: image.root(), format: DiskFormat::Raw, snapshot: true, read_only: false };
    spec.disks.insert(0, disk);
    Ok(spec)
}

/// A spec that boots an image, and behind it the seed disk that brings the agent.
fn of_image(mut spec: VmSpec, image: &GuestImage, file: &Path, missing: Missing) -> anyhow::Result<VmSpec> {
    let whose = file.display().to_string();
    let seed = match missing {
        Missing::Build => seed_of(image, &whose)?,
        Missing::Refuse => {
            OwnDisk::look(image).map_err(|error| failure(&whose, error))?;
            let seed = Images::of_this_user().seed(&seed_bytes()?);
            if !seed.is_file() {
                let problem =
                    format!("the guest's seed disk is not there yet: `homenode guest build {whose}` makes it");
                return Err(bad_input(format!("{whose}: {problem}")));
            }
            seed
        }
    };
    let firmware = image.firmware;
    let image = Disk { path: image.path.clone(), format: image.format, snapshot: true, read_only: false };
    let seed = Disk { path: seed, format: DiskFormat::Raw, snapshot: false, read_only: true };
    spec.disks.splice(0..0, [image, seed]);
    spec.boot = Boot::Disk { firmware };
    Ok(spec)
}

/// The seed disk of an image, which is looked at first; made where it is not there.
///
/// # Errors
/// Bad input: no image. The seed cannot be written.
pub(crate) fn seed_of(image: &GuestImage, whose: &str) -> anyhow::Result<PathBuf> {
    OwnDisk::look(image).map_err(|error| failure(whose, error))?;
    Images::of_this_user().keep_seed(&seed_bytes()?).map_err(|error| failure(whose, error))
}

fn seed_bytes() -> anyhow::Result<Vec<u8>> {
    let agent = TinyGuest::locate(None)?.agent_program().to_owned();
    let program = std::fs::read(&agent).with_context(|| format!("cannot read {}", agent.display()))?;
    images::seed(&program, PORT_NAME, &[]).context("cannot make the guest's seed disk")
}

/// What a guest is on this host: an image as it is now, or what would be built.
///
/// # Errors
/// Bad input: packages that cannot be had, a tool that is missing, no image.
pub(crate) fn resolved(guest: &Guest, whose: &str) -> anyhow::Result<ResolvedGuest> {
    let Some(mut image) = guest.image() else { return recipe(guest, whose).map(ResolvedGuest::Packages) };
    // Whoever resumes may stand elsewhere.
    image.path = std::path::absolute(&image.path).context("the current directory cannot be found")?;
    OwnDisk::look(&image).map(ResolvedGuest::Image).map_err(|error| failure(whose, error))
}

/// The image of a guest, built where it is not there.
///
/// # Errors
/// As [`realized`].
pub(crate) fn built(guest: &Guest, whose: &str) -> anyhow::Result<Image> {
    let recipe = recipe(guest, whose)?;
    build(&Images::of_this_user(), &recipe, &Tools::of_this_user()).map_err(|error| failure(whose, error))
}

/// What a guest is built of on this host.
///
/// # Errors
/// Bad input: packages that cannot be had, a tool that is missing.
fn recipe(guest: &Guest, whose: &str) -> anyhow::Result<Recipe> {
    images::recipe_of(guest, &Tools::of_this_user()).map_err(|error| failure(whose, error))
}

/// The image of a recipe; `None` where it is not built.
///
/// # Errors
/// It is there and cannot be read.
pub(crate) fn of(recipe: &Recipe) -> anyhow::Result<Option<Image>> {
    Ok(Images::of_this_user().of(recipe)?)
}

fn build(images: &Images, recipe: &Recipe, tools: &Tools) -> Result<Image, ImagesError> {
    let what = recipe.summary();
    images.build(recipe, tools, &mut |progress| match progress {
        Progress::Waits => output::note("waiting for another homenode that builds a guest"),
        Progress::Installs => {
            output::note(format_args!("building the guest ({what}): packages are installed; minutes"))
        }
        Progress::Unpacks => output::note("building the guest: unpacking"),
        Progress::WritesRoot => output::note("building the guest: writing its root file system"),
    })
}

/// An error of images; what the user can mend is bad input.
pub(crate) fn failure(whose: &str, error: ImagesError) -> anyhow::Error {
    if error.is_bad_input() { bad_input(format!("{whose}: {error}")) } else { error.into() }
}
