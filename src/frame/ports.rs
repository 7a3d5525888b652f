//! The serial ports of this machine, with the names that stay and who may open them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// USB-serial bridges and chips found on ESP32 boards, as vendor and product.
const BOARDS: [(u16, u16, &str); 5] = [
    (0x10c4, 0xea60, "CP210x"),
    (0x1a86, 0x7523, "CH340"),
    (0x1a86, 0x55d4, "CH9102"),
    (0x0403, 0x6001, "FT232"),
    (0x303a, 0x1001, "ESP32 USB-JTAG"),
];

/// One serial port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortInfo {
    /// Kernel name, which may change when the board is plugged in again.
    pub device: PathBuf,
    /// Name by the adapter's serial number: the one to configure.
    pub by_id: Option<PathBuf>,
    /// Name by the USB socket: the one to configure where two adapters share a serial number.
    pub by_path: Option<PathBuf>,
    /// USB vendor and product.
    pub usb: Option<(u16, u16)>,
    /// The bridge, if it is one found on ESP32 boards.
    pub bridge: Option<&'static str>,
    /// This process may read and write it.
    pub openable: bool,
    /// Id of the group that may open it.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
}

/// Lists the ports below `root` (`/` on a real system): USB and on-board UARTs, sorted by name.
pub fn list(root: &Path) -> Vec<PortInfo> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let links = |folder: &str| -> Vec<(PathBuf, PathBuf)> {
        let folder = root.join("dev/serial").join(folder);
        names(&folder)
            .into_iter()
            .filter_map(|name| {
                let link = folder.join(name);
                Some((fs::canonicalize(&link).ok()?, link))
            })
            .collect()
    };
    let (by_id, by_path) = (links("by-id"), links("by-path"));
    let dev = root.join("dev");
    let mut ports: Vec<PortInfo> = names(&dev)
        .into_iter()
        .filter(|name| ["ttyUSB", "ttyACM", "ttyAMA", "ttyTHS"].iter().any(|prefix| name.starts_with(prefix)))
        .filter_map(|name| {
            let device = dev.join(&name);
            let metadata = fs::metadata(&device).ok()?;
            let real = fs::canonicalize(&device).ok()?;
            let named = |links: &[(PathBuf, PathBuf)]| links.iter().find(|l| l.0 == real).map(|l| l.1.clone());
            let usb = usb_ids(&root.join("sys/class/tty").join(&name).join("device"));
            let bridge = usb.and_then(|ids| BOARDS.iter().find(|b| (b.0, b.1) == ids).map(|b| b.2));
            // Asking the system covers groups, ACLs and root alike. Non-blocking, as a port may wait for its carrier.
            let openable = can_open(&device);
            let (gid, mode) = (metadata.gid(), metadata.permissions().mode() & 0o777);
            Some(PortInfo { by_id: named(&by_id), by_path: named(&by_path), device, usb, bridge, openable, gid, mode })
        })
        .collect();
    ports.sort_by(|a, b| a.device.cmp(&b.device));
    ports
}

/// Whether this process may open the port. Read from the permission bits, since opening the port to see would toggle the
/// lines that reset the board.
fn can_open(device: &Path) -> bool {
    let Ok(metadata) = fs::metadata(device) else { return false };
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let ids = |key: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.split_whitespace().filter_map(|id| id.parse().ok()).collect()
    };
    // The second number of each line is the effective id.
    let (uid, gid) = (ids("Uid:").get(1).copied(), ids("Gid:").get(1).copied());
    let groups = ids("Groups:");
    let mode = metadata.permissions().mode();
    if uid == Some(0) {
        return true;
    }
    let bits = if uid == Some(metadata.uid()) {
        mode >> 6
    } else if gid == Some(metadata.gid()) || groups.contains(&metadata.gid()) {
        mode >> 3
    } else {
        mode
    };
    bits & 0o6 == 0o6
}

/// Vendor and product are files of the USB device, some levels above the port's own folder.
fn usb_ids(device: &Path) -> Option<(u16, u16)> {
    let mut folder = fs::canonicalize(device).ok()?;
    for _ in 0..6 {
        let read = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            u16::from_str_radix(text.trim(), 16).ok()
        };
        if let (Some(vendor), Some(product)) = (read("idVendor"), read("idProduct")) {
            return Some((vendor, product));
        }
        folder = folder.parent()?.to_path_buf();
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_and_ids_are_found() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in
            ["dev/serial/by-id", "dev/serial/by-path", "sys/class/tty/ttyUSB0", "sys/devices/usb1/1-1/1-1:1.0/x"]
        {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["dev/ttyUSB0", "dev/ttyACM3", "dev/tty1", "dev/null"] {
            fs::write(at(file), "").unwrap();
        }
        fs::write(at("sys/devices/usb1/1-1/idVendor"), "10c4\n").unwrap();
        fs::write(at("sys/devices/usb1/1-1/idProduct"), "ea60\n").unwrap();
        symlink(at("sys/devices/usb1/1-1/1-1:1.0/x"), at("sys/class/tty/ttyUSB0/device")).unwrap();
        symlink("../../ttyUSB0", at("dev/serial/by-id/usb-Silicon_Labs_0001-if00-port0")).unwrap();
        symlink("../../ttyUSB0", at("dev/serial/by-path/pci-0000:00-usb-0:1")).unwrap();
        fs::set_permissions(at("dev/ttyUSB0"), fs::Permissions::from_mode(0o660)).unwrap();

        let ports = list(root.path());
        assert_eq!(ports.len(), 2);
        let (acm, usb) = (&ports[0], &ports[1]);
        assert_eq!((acm.usb, acm.bridge, acm.by_id.clone()), (None, None, None));
        assert_eq!((usb.usb, usb.bridge), (Some((0x10c4, 0xea60)), Some("CP210x")));
        assert_eq!(usb.by_id, Some(at("dev/serial/by-id/usb-Silicon_Labs_0001-if00-port0")));
        assert_eq!(usb.by_path, Some(at("dev/serial/by-path/pci-0000:00-usb-0:1")));
        assert!(usb.openable);
        assert_eq!(usb.mode, 0o660);
        assert!(list(&at("nowhere")).is_empty());
    }
}
