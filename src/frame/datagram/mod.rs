//! UDP packets: RuView's family and ESPectre's.

pub(super) mod espectre;
pub(super) mod ruview;

/// Little-endian reads at a fixed offset of a packet whose length was checked.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The driver's signed bytes, widened.
fn widen(bytes: &[u8], values: &mut Vec<i16>) {
    values.extend(bytes.iter().map(|&byte| i16::from(byte as i8)));
}
