//! Guests that come from elsewhere: files of suspended VMs, and what another homenode says that
//! sends one or receives one.

use crate::vms::machine;
use crate::{printed, read_or_printed, same_from_json, text};
use migration::protocol::{FromDestination, FromSource, Offer, from_destination, from_source};
use scheduler::{Occupancy, rehome};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use suspended::{About, Opened, Unfinished};
use topology::Bytes;
use vm::Manifest;
use vm::backend::ReachedBy;
use vm::history::{Life, UnixSeconds};
use vm::life::State;

/// Where the guest begins in the file; before it lie head and text, and zeros.
const GUEST_AT: u64 = 1 << 20;
/// Where the head has the length of the text, and how long the head is.
const LENGTH_AT: usize = 20;
const HEAD: usize = 80;

/// What a file is about, as text; or else the file, without the zeros before its guest.
pub(crate) fn suspended(input: &[u8]) {
    if input.first() == Some(&b'{') {
        return about(&text(input));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("web.homenode");
    write_file(&path, input).expect("a file");
    if let Some(file) = read_or_printed(Opened::open(&path)) {
        let (mut from, into) = std::io::pipe().expect("a pipe");
        let pouring = file.pour_into(into.into()).expect("a thread");
        std::io::copy(&mut from, &mut std::io::sink()).expect("read");
        read_or_printed(pouring.all());
        about(file.about());
    }
}

fn about(text: &str) {
    let Some(about) = read_or_printed(About::from_text(text)) else { return };
    assert_eq!(About::from_text(&about.to_text().expect("it was read")).as_ref(), Ok(&about));
    assert!(about.is_of(&about.life));
    lives_here(&about.life);
    finds_a_home(&about.manifest);
}

fn parts(input: &[u8]) -> (&[u8], &[u8]) {
    let length = input.get(LENGTH_AT..LENGTH_AT + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    input.split_at(input.len().min(HEAD.saturating_add(length.unwrap_or(0) as usize)))
}

fn write_file(path: &Path, input: &[u8]) -> std::io::Result<()> {
    let (beginning, guest) = parts(input);
    let mut file = File::create(path)?;
    file.write_all(beginning)?;
    file.set_len(GUEST_AT)?;
    file.seek(SeekFrom::Start(GUEST_AT))?;
    file.write_all(guest)
}

/// A file about this, whose guest is the same text.
pub(crate) fn as_suspended(about: &[u8]) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("web.homenode");
    let file = Unfinished::create(&path).expect("a file");
    let (from, mut into) = std::io::pipe().expect("a pipe");
    let filling = file.fill_from(from.into(), Bytes::MIB, Default::default()).expect("a thread");
    into.write_all(about).expect("written");
    drop(into);
    file.finish(text(about).trim_end(), &filling.all().expect("written")).expect("synced");
    let whole = std::fs::read(&path).expect("it was written");
    let (beginning, guest) = whole.split_at(GUEST_AT as usize);
    [parts(beginning).0, guest].concat()
}

/// Lines of either side, each as if it came first.
pub(crate) fn migration(input: &[u8]) {
    for line in input.split(|&byte| byte == b'\n') {
        if let Some(said) = read_or_printed(from_source(line)) {
            same_from_json(&said);
            match said {
                FromSource::Hello(hello) => _ = read_or_printed(hello.check()),
                FromSource::Offer(offer) => offered(&offer),
                _ => {}
            }
        }
        if let Some(said) = read_or_printed(from_destination(line)) {
            same_from_json(&said);
            match said {
                FromDestination::Built(built) => built.notes.iter().for_each(|note| printed(note)),
                FromDestination::Refused { because, .. } => printed(&because),
                FromDestination::Planned { plan } => {
                    plan.warnings.iter().for_each(|warning| printed(warning));
                    plan.homes();
                }
                _ => {}
            }
        }
    }
}

fn offered(offer: &Offer) {
    if read_or_printed(offer.check()).is_some() {
        lives_here(&offer.life);
        finds_a_home(&offer.manifest);
    }
}

/// A life from elsewhere is one that can be kept.
fn lives_here(life: &Life) {
    let here = Life::from_elsewhere(life, State::Starting, ReachedBy::Qemu, UnixSeconds(1));
    same_from_json(&here);
    let text = serde_json::to_string(&here).expect("written");
    assert!(here.handed_over.is_none() && text.len() < 64 << 20, "a life of {} bytes", text.len());
}

fn finds_a_home(manifest: &Manifest) {
    let Manifest { spec, topology, added, .. } = manifest;
    let sizes = added.sizes(topology);
    read_or_printed(rehome(machine(), &Occupancy::default(), spec, topology, &sizes));
}
