//! `homenode guest`: systems for guests, built once.

use crate::args_guest::{BuildArguments, GuestArguments, GuestCommand};
use crate::failure::bad_input;
use crate::text::{lines, table};
use crate::{guest_images, kept, life_words, output, vm_spec_file};
use anyhow::Context;
use images::{Image, Images, ImagesError, Recipe, Tools};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use topology::Bytes;
use vm::history::UnixSeconds;
use vm::spec::{Guest, GuestImage};

/// Runs the command.
pub(crate) fn run(arguments: &GuestArguments) -> anyhow::Result<()> {
    match &arguments.command {
        GuestCommand::Build(arguments) => build(arguments),
        GuestCommand::List { json } => list(*json),
        GuestCommand::Show { guest, json } => show(&named(guest)?, *json),
        GuestCommand::Native { guest, command } => native(&named(guest)?, command),
        GuestCommand::Delete { guest, force } => delete(&named(guest)?, *force),
    }
}

fn named(name: &str) -> anyhow::Result<Image> {
    Images::of_this_user().named(name).map_err(|error| match error {
        ImagesError::NoSuchImage { .. } => bad_input(format!("{error}; `homenode guest list` shows what they hold")),
        error => error.into(),
    })
}

/// What is told of an image.
#[derive(Serialize)]
struct Told<'a> {
    name: &'a str,
    recipe: &'a Recipe,
    built: UnixSeconds,
    size: Bytes,
    root: PathBuf,
    tree: PathBuf,
}

impl<'a> Told<'a> {
    fn of(image: &'a Image) -> Self {
        let built = image.built.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (root, tree) = (image.root(), image.tree());
        Self { name: &image.name, recipe: &image.recipe, built: UnixSeconds(built), size: image.size, root, tree }
    }
}

fn build(arguments: &BuildArguments) -> anyhow::Result<()> {
    let (guest, whose) = match &arguments.spec {
        Some(file) => {
            let guest = vm_spec_file::read(file)?.guest;
            let none =
                || bad_input(format!("{}: guest: there is no such table, so nothing is to be built", file.display()));
            let (guest, whose) = (guest.ok_or_else(none)?, file.display().to_string());
            if let Some(image) = guest.image() {
                return show_image(&image, &guest_images::seed_of(&image, &whose)?, arguments.json);
            }
            (guest, whose)
        }
        None => {
            let (packages, suite) = (arguments.packages.clone(), arguments.suite.clone());
            (Guest { packages, suite, ..Guest::default() }, "--packages".to_owned())
        }
    };
    show(&guest_images::built(&guest, &whose)?, arguments.json)
}

/// An image of the user's own: there is nothing to build but the seed disk that brings the agent.
fn show_image(image: &GuestImage, seed: &Path, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json("guest.image", &serde_json::json!({ "image": image, "seed": seed }));
    }
    output::line(format_args!("guest of the image {}\n  seed disk {}", image.path.display(), seed.display()))
}

fn list(json: bool) -> anyhow::Result<()> {
    let images = Images::of_this_user().all()?;
    let told: Vec<Told<'_>> = images.iter().map(Told::of).collect();
    if json {
        return output::json("guest.list", &serde_json::json!({ "guests": told }));
    }
    if told.is_empty() {
        return output::line("No guest is built.");
    }
    let mut table = table(["Name", "Suite", "Packages", "Size", "Built"], &[3]);
    for guest in &told {
        let packages: Vec<&str> = guest.recipe.packages.keys().map(String::as_str).collect();
        let (size, built) = (format!("{} MiB", guest.size.mib()), life_words::moment(guest.built));
        table.add_row([guest.name.to_owned(), guest.recipe.suite.clone(), packages.join(", "), size, built]);
    }
    output::line(lines(&table))
}

fn show(image: &Image, json: bool) -> anyhow::Result<()> {
    let told = Told::of(image);
    if json {
        return output::json("guest.show", &told);
    }
    let mut text = format!(
        "guest {}: {} {}, built {}, {} MiB\n  root file system {}\n  files {}\n",
        told.name,
        told.recipe.suite,
        told.recipe.architecture,
        life_words::moment(told.built),
        told.size.mib(),
        told.root.display(),
        told.tree.display(),
    );
    for (package, version) in &told.recipe.packages {
        text += &format!("  {package} {}\n", version.as_deref().unwrap_or("(version not asked for)"));
    }
    output::print(text)
}

/// Becomes the command: its exit code is that of `homenode`.
fn native(image: &Image, command: &[OsString]) -> anyhow::Result<()> {
    let mut command = image
        .native(&Tools::of_this_user(), &[], command)
        .map_err(|error| guest_images::failure(&format!("guest {}", image.name), error))?;
    command.stdin(std::process::Stdio::inherit());
    Err(command.exec()).context("cannot start bwrap")
}

fn delete(image: &Image, force: bool) -> anyhow::Result<()> {
    let inventory = kept::inventory();
    for name in inventory.names().map_err(kept::failure)? {
        let Ok(record) = inventory.read(&name) else { continue };
        if !force && record.spec.disks.iter().any(|disk| disk.path == image.root()) {
            return Err(bad_input(format!(
                "guest {}: VM {name} boots it: `homenode vm delete {name}` first, or --force",
                image.name
            )));
        }
    }
    Images::of_this_user().delete(image)?;
    output::line(format_args!("guest {} is removed", image.name))
}
