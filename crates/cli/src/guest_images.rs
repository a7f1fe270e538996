//! Specs whose guest is to be built: `[guest]` becomes what a VM can boot.

use crate::failure::bad_input;
use crate::output;
use images::{Image, Images, ImagesError, Progress, Recipe, Tools};
use std::path::Path;
use vm::VmSpec;
use vm::spec::{Boot, Disk, DiskFormat, Guest, GuestRoot};

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
pub(crate) fn recipe(guest: &Guest, whose: &str) -> anyhow::Result<Recipe> {
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
