//! What a decoder says about a piece of input: a frame, a recognised other packet, or a reject with its reason.

use serde::{Deserialize, Serialize};

use super::CsiFrame;

/// One result of decoding. A datagram or a line may give several.
#[derive(Debug)]
pub enum Item<'a> {
    /// A channel measurement.
    Frame(&'a CsiFrame),
    /// A valid packet or line that carries no channel measurement.
    Other(Other),
    /// Input that no rule accepts.
    Reject(Reject),
}

macro_rules! named_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The stable name used in counters and summaries.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

named_enum! {
    /// Packets and lines that are recognised, counted, and carry no raw CSI.
    Other {
        /// RuView edge vitals (0xC5110002, 32 bytes).
        RuviewVitals => "ruview_vitals",
        /// RuView feature vector (0xC5110003, 48 bytes).
        RuviewFeatures => "ruview_features",
        /// RuView fused vitals (0xC5110004, 48 bytes).
        RuviewFusedVitals => "ruview_fused_vitals",
        /// RuView WASM module events (0xC5110004 or 0xC5110007).
        RuviewWasmEvents => "ruview_wasm_events",
        /// RuView run-length compressed CSI (0xC5110005): not decodable after one loss, so not decoded.
        RuviewCompressed => "ruview_compressed",
        /// RuView feature state (0xC5110006, 60 bytes, checksum good).
        RuviewFeatureState => "ruview_feature_state",
        /// RuView temporal class packet (0xC5110007, 40 bytes).
        RuviewTemporal => "ruview_temporal",
        /// RuView LD2450 radar targets (0xC5110008, 40 bytes).
        RuviewRadarTargets => "ruview_radar_targets",
        /// RuView mesh envelope (0xC5118100).
        RuviewMesh => "ruview_mesh",
        /// RuView time sync (0xC511A110), used for time.
        RuviewTimeSync => "ruview_time_sync",
        /// esp-radar result line (`RADAR_DADA`).
        RadarResult => "radar_result",
        /// esp-radar device information line (`DEVICE_INFO`).
        DeviceInfo => "device_info",
        /// A header line that names the columns.
        Header => "header",
        /// Boot text, log lines, prompts: text of the board that is no data.
        ConsoleText => "console_text",
        /// An empty line.
        Blank => "blank",
    }
}

named_enum! {
    /// Why input was refused.
    Reject {
        /// Fewer bytes than any packet has.
        TooShort => "too_short",
        /// No known magic number.
        UnknownMagic => "unknown_magic",
        /// A known magic number with a length that no packet of that kind has.
        BadLength => "bad_length",
        /// A checksum that does not match.
        BadChecksum => "bad_checksum",
        /// A count of zero antennas, or more than four.
        BadAntennas => "bad_antennas",
        /// A count of zero bins, or more than the radio has.
        BadBins => "bad_bins",
        /// A version number that is not known.
        BadVersion => "bad_version",
        /// A number of values that fits no bin layout.
        UnknownLayout => "unknown_layout",
        /// A forced 12-bit buffer sent as bytes (C5/C61, 106 bytes): the values cannot be recovered.
        Packed12Bit => "packed_12_bit",
        /// All values zero: the radio gave no measurement.
        AllZero => "all_zero",
        /// Values where the layout has empty bins: damaged, or another layout.
        GuardBinsNotEmpty => "guard_bins_not_empty",
        /// A line whose number of fields fits no known format.
        FieldCount => "field_count",
        /// A field that is not a number of the expected range.
        BadNumber => "bad_number",
        /// A MAC address that is none.
        BadMac => "bad_mac",
        /// An array that is not closed: the line was cut.
        Truncated => "truncated",
        /// Fewer or more values than the line says.
        LengthMismatch => "length_mismatch",
        /// A value outside of what the radio can give.
        ValueRange => "value_range",
        /// Base64 that does not decode.
        BadBase64 => "bad_base64",
        /// Hexadecimal text that does not decode.
        BadHex => "bad_hex",
        /// Two lines glued or log text inside a data line, not to be told apart.
        Interleaved => "interleaved",
        /// A line longer than any format makes.
        LineTooLong => "line_too_long",
        /// The same frame twice (same transmitter and radio time stamp).
        Duplicate => "duplicate",
        /// A source that the configuration does not allow.
        NotAllowed => "not_allowed",
        /// A good frame of one board more than may be kept apart.
        TooManyNodes => "too_many_nodes",
    }
}
