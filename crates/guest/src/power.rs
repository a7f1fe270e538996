//! The power button: QEMU's `system_powerdown` presses it, and somebody in the guest must act on
//! it.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// `struct input_event` of 64-bit Linux (linux/input.h): two longs of time, then type, code, value.
const EVENT_BYTES: usize = 24;
const EV_KEY: u16 = 1;
const KEY_POWER: u16 = 116;

/// Calls `pressed` once when a power button is pressed. Does nothing where there is no such button.
pub(crate) fn watch(pressed: impl Fn() + Send + Clone + 'static) {
    for device in buttons() {
        let pressed = pressed.clone();
        std::thread::spawn(move || {
            if let Ok(file) = File::open(device)
                && wait_for_press(file)
            {
                pressed();
            }
        });
    }
}

/// Event devices that are power buttons.
fn buttons() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/sys/class/input") else { return Vec::new() };
    let is_button = |name: &String| {
        std::fs::read_to_string(format!("/sys/class/input/{name}/device/name"))
            .is_ok_and(|text| text.trim() == "Power Button")
    };
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("event") && is_button(name))
        .map(|name| PathBuf::from("/dev/input").join(name))
        .collect()
}

/// True when the button was pressed, false when the device ended.
fn wait_for_press(mut events: impl Read) -> bool {
    let mut event = [0u8; EVENT_BYTES];
    while events.read_exact(&mut event).is_ok() {
        if is_press(&event) {
            return true;
        }
    }
    false
}

fn is_press(event: &[u8; EVENT_BYTES]) -> bool {
    let half = |at: usize| u16::from_ne_bytes([event[at], event[at + 1]]);
    let value = i32::from_ne_bytes([event[20], event[21], event[22], event[23]]);
    half(16) == EV_KEY && half(18) == KEY_POWER && value == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u16, code: u16, value: i32) -> Vec<u8> {
        let mut bytes = vec![0u8; 16];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
        bytes
    }

    #[test]
    fn only_the_press_of_a_power_key_counts() {
        let others = [event(0, 0, 0), event(EV_KEY, 30, 1), event(EV_KEY, KEY_POWER, 0)].concat();
        assert!(!wait_for_press(others.as_slice()));
        assert!(wait_for_press([others, event(EV_KEY, KEY_POWER, 1)].concat().as_slice()));
    }
}
