//! Names of the recording formats, and how an unnamed one is told from its content.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::RecordingError;
use crate::frame::LineHint;

/// The form of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Told from the content, then from the name.
    #[default]
    Auto,
    /// pcapng (our own form) or pcap, as Wireshark and tcpdump write them.
    Pcapng,
    /// ESPectre's `.npz` (int8 rows of 128).
    EspectreNpz,
    /// RuView's recorder: one JSON object a line.
    RuviewJsonl,
    /// ESP32-CSI-Tool lines, 26 fields, or 27 with the host's time.
    CsiTool,
    /// esp-csi lines (25, 15, 28 or 30 fields).
    EspCsi,
    /// `CSIRAW seq ms rssi len hex` lines.
    CsiRaw,
    /// `<host ms>,<128 values>` lines with the 13,10 damage.
    Albany,
    /// Amplitude rows with `host_unix_us`.
    Ialr,
    /// Any mix of lines that the decoders know.
    Text,
}

impl Format {
    /// Every name, for help and error texts.
    pub const NAMES: &'static str =
        "auto, pcapng, espectre-npz, ruview-jsonl, csi-tool, esp-csi, csi-raw, albany, ialr, text";

    /// Every format but `Auto`.
    pub const ALL: &'static [Self] = &[
        Self::Pcapng,
        Self::EspectreNpz,
        Self::RuviewJsonl,
        Self::CsiTool,
        Self::EspCsi,
        Self::CsiRaw,
        Self::Albany,
        Self::Ialr,
        Self::Text,
    ];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Pcapng => "pcapng",
            Self::EspectreNpz => "espectre-npz",
            Self::RuviewJsonl => "ruview-jsonl",
            Self::CsiTool => "csi-tool",
            Self::EspCsi => "esp-csi",
            Self::CsiRaw => "csi-raw",
            Self::Albany => "albany",
            Self::Ialr => "ialr",
            Self::Text => "text",
        }
    }

    /// What the line decoder has to know: bare numbers look alike in two of the forms.
    pub(super) const fn hint(self) -> LineHint {
        match self {
            Self::Albany => LineHint::Albany,
            Self::Ialr => LineHint::Ialr,
            _ => LineHint::Auto,
        }
    }

    pub(super) const fn is_text(self) -> bool {
        matches!(self, Self::CsiTool | Self::EspCsi | Self::CsiRaw | Self::Albany | Self::Ialr | Self::Text)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Names, and what people call the forms otherwise.
impl FromStr for Format {
    type Err = RecordingError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let alias = match text {
            "espectre" | "npz" => Some(Self::EspectreNpz),
            "ruview" | "jsonl" => Some(Self::RuviewJsonl),
            "pcap" => Some(Self::Pcapng),
            "esp32-csi-tool" | "csitool" => Some(Self::CsiTool),
            "csiraw" => Some(Self::CsiRaw),
            "ialr-amplitude" => Some(Self::Ialr),
            _ => None,
        };
        alias
            .or_else(|| Self::ALL.iter().copied().find(|f| f.name() == text))
            .ok_or_else(|| RecordingError::UnknownFormat { given: text.to_owned() })
    }
}

/// Tells the format from the first bytes, or else from the name (without compression suffix).
pub(super) fn detect(head: &[u8], name: &str) -> Result<Format, RecordingError> {
    match head {
        [0x0a, 0x0d, 0x0d, 0x0a, ..] => return Ok(Format::Pcapng),
        [0xa1, 0xb2, 0xc3, 0xd4, ..] | [0xd4, 0xc3, 0xb2, 0xa1, ..] => return Ok(Format::Pcapng),
        [0xa1, 0xb2, 0x3c, 0x4d, ..] | [0x4d, 0x3c, 0xb2, 0xa1, ..] => return Ok(Format::Pcapng),
        [b'P', b'K', 3, 4, ..] => return Ok(Format::EspectreNpz),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => return Err(RecordingError::NotFrames { what: shown(name) }),
        _ => {}
    }
    if let Some(format) = head.split(|&b| b == b'\n').find_map(detect_line) {
        return Ok(format);
    }
    let extension = Path::new(name).extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    match extension.as_str() {
        // A torn or empty capture keeps its name.
        "pcapng" | "pcap" | "cap" => Ok(Format::Pcapng),
        "npz" => Ok(Format::EspectreNpz),
        "npy" => Err(RecordingError::NotFrames { what: shown(name) }),
        "jsonl" => Ok(Format::RuviewJsonl),
        "txt" | "csv" | "log" => Ok(Format::Text),
        _ => {
            let start: String = head.iter().take(16).map(|b| b.escape_ascii().to_string()).collect();
            let start = if start.is_empty() { "nothing".to_owned() } else { format!("`{start}`") };
            Err(RecordingError::Unrecognised { start })
        }
    }
}

fn shown(name: &str) -> String {
    if name.is_empty() { "this file".to_owned() } else { name.to_owned() }
}

fn detect_line(line: &[u8]) -> Option<Format> {
    let line = line.trim_ascii();
    if line.starts_with(b"{") {
        let has = |needle: &[u8]| line.windows(needle.len()).any(|w| w == needle);
        return (has(b"\"magic\"") || has(b"\"iq_hex\"")).then_some(Format::RuviewJsonl);
    }
    if line.starts_with(b"CSIRAW ") {
        return Some(Format::CsiRaw);
    }
    // A header line names the columns, `CSI_DATA` among them.
    if let Some(at) = find(line, b"CSI_DATA,").filter(|_| !line.starts_with(b"type,")) {
        let rest = &line[at..];
        let bracket = rest.iter().position(|&b| b == b'[');
        let commas = rest[..bracket.unwrap_or(rest.len())].iter().filter(|&&b| b == b',').count();
        let quoted = bracket.is_some_and(|p| p > 0 && rest[p - 1] == b'"');
        return Some(if commas == 25 && bracket.is_some() && !quoted { Format::CsiTool } else { Format::EspCsi });
    }
    if line.starts_with(b"session_id,host_unix_us,") {
        return Some(Format::Ialr);
    }
    // Albany: thirteen digits of milliseconds, then 128 small numbers.
    let comma = line.iter().position(|&b| b == b',')?;
    let numbers = line[comma..].iter().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'-'));
    let commas = line.iter().filter(|&&b| b == b',').count();
    (comma == 13 && line[..13].iter().all(u8::is_ascii_digit) && numbers && commas > 64).then_some(Format::Albany)
}

/// Position of `needle` in `hay`.
pub(super) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|w| w == needle)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_ones_list_the_known() {
        for f in Format::ALL {
            assert_eq!(f.name().parse::<Format>().unwrap(), *f);
            assert!(Format::NAMES.contains(f.name()));
            assert_eq!(serde_json::to_string(f).unwrap(), format!("\"{f}\""));
        }
        let text = "csi_tool".parse::<Format>().unwrap_err().to_string();
        assert!(text.contains("csi-tool"), "{text}");
    }

    #[test]
    fn content_comes_before_name() {
        assert_eq!(detect(b"I (31) boot\nCSIRAW 1 2 -40 4 00ff\n", "x.csv").unwrap(), Format::CsiRaw);
        let header =
            b"type,role,len,CSI_DATA,timestamp\nCSI_DATA,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,[1 2 ]\n";
        assert_eq!(detect(header, "x.csv").unwrap(), Format::CsiTool);
        assert_eq!(detect(b"", "x.pcapng").unwrap(), Format::Pcapng);
        assert_eq!(detect(b"hello\n", "x.txt").unwrap(), Format::Text);
        assert!(matches!(detect(b"\x93NUMPY\x01\x00", "a"), Err(RecordingError::NotFrames { .. })));
        assert!(matches!(detect(&[1, 2, 3], "a.bin"), Err(RecordingError::Unrecognised { .. })));
    }
}
