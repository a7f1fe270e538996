//! What a port of a switch says of the card behind it, in the one line that the kernel (the alias
//! of a tap device) and vde_switch (a description) keep for us: `VM/CARD=ADDRESS`.

use std::fmt;
use vm::spec::MacAddress;

/// A card of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardName {
    /// VM and number of the card, `VM/CARD`.
    pub(crate) port: String,
    /// The address that its guest sees, where who plugged it in said it.
    pub(crate) mac: Option<MacAddress>,
}

impl CardName {
    /// Of such a line.
    pub(crate) fn of(line: &str) -> Self {
        let with_address = line.rsplit_once('=').and_then(|(port, mac)| Some((port, mac.parse().ok()?)));
        let (port, mac) = with_address.map_or((line, None), |(port, mac)| (port, Some(mac)));
        Self { port: port.to_owned(), mac }
    }

    /// The VM.
    pub(crate) fn vm(&self) -> &str {
        self.port.rsplit_once('/').map_or(&self.port, |(vm, _)| vm)
    }
}

impl fmt::Display for CardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.port)?;
        self.mac.map_or(Ok(()), |mac| write!(f, "={mac}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mac = Some("52:54:00:00:00:01".parse().unwrap());
        for (line, port, mac, vm) in [
            ("a.b/10=52:54:00:00:00:01", "a.b/10", mac, "a.b"),
            ("vm/0", "vm/0", None, "vm"),
            // Of somebody who knows no addresses.
            ("vm=1/0", "vm=1/0", None, "vm=1"),
            ("strange", "strange", None, "strange"),
        ] {
            let card = CardName::of(line);
            assert_eq!((card.port.as_str(), card.mac, card.vm()), (port, mac, vm));
            assert_eq!(card.to_string(), line);
        }
    }
}
