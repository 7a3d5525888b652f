//! Which bin each value of a frame is: the order of the radio's buffer, and which bins carry a measurement.
//!
//! Sources: the CSI chapter of the ESP-IDF programming guide (order and length of the fields for each secondary channel
//! and packet type), and measurements on recordings of five chips where that document is silent or wrong (C5 and C6
//! buffers ascend with DC in the middle). Widths are those of IEEE 802.11: a legacy training field has ±1..26, HT20
//! ±1..28, HT40 ±2..58, HE20 ±2..122 tones.
//!
//! In a 40 MHz channel the index counts from the middle of the 40 MHz, so a 20 MHz field lies around +32 or −32. Where
//! the side of the secondary channel is not known, such a field is numbered from its own middle instead.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One training field inside a buffer.
struct Block {
    /// Which training field: 0 legacy (or the only one), 1 HT, 2 second HT of STBC.
    field: u8,
    /// Indices in the order of the buffer, as closed ranges.
    ranges: &'static [(i16, i16)],
    /// Distance of neighbouring bins.
    step: i16,
    /// Index of the middle (DC) of the field's own spectrum.
    centre: i16,
    /// Bins at most this far from the middle carry nothing.
    null_half_width: i16,
    /// Bins further than this from the middle carry nothing.
    half_width: i16,
}

const fn block(field: u8, ranges: &'static [(i16, i16)], centre: i16, null_half_width: i16, half_width: i16) -> Block {
    Block { field, ranges, step: 1, centre, null_half_width, half_width }
}

const LEGACY: i16 = 26;
const HT20: i16 = 28;
const HT40: i16 = 58;
const HE20: i16 = 122;

const NATURAL: &[(i16, i16)] = &[(0, 31), (-32, -1)];
const CENTRED: &[(i16, i16)] = &[(-32, 31)];
const BELOW: &[(i16, i16)] = &[(0, 63)];
const ABOVE: &[(i16, i16)] = &[(-64, -1)];
const NATURAL_40: &[(i16, i16)] = &[(0, 63), (-64, -1)];
const STBC_40: &[(i16, i16)] = &[(0, 60), (-60, -1)];
const COMPACT_NATURAL: &[(i16, i16)] = &[(1, 26), (-26, -1)];
const COMPACT_ASCENDING: &[(i16, i16)] = &[(-26, -1), (1, 26)];

macro_rules! layouts {
    ($($(#[$meta:meta])* $variant:ident => $name:literal, [$($block:expr),+ $(,)?];)*) => {
        /// Order of the bins in a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub enum Layout {
            $($(#[$meta])* $variant,)*
            /// A number of bins whose order is not known; every bin counts as usable.
            Unknown(u16),
        }

        impl Layout {
            /// Every layout of known order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The stable name; `unknown` without its number of bins, which [`Display`](fmt::Display) adds.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(_) => "unknown",
                }
            }

            fn blocks(self) -> &'static [Block] {
                match self {
                    $(Self::$variant => {
                        static BLOCKS: &[Block] = &[$($block),+];
                        BLOCKS
                    })*
                    Self::Unknown(_) => &[],
                }
            }
        }
    };
}

layouts! {
    /// One 20 MHz field in FFT order (0..31, −32..−1); whether legacy or HT is not known, so the wider set is usable.
    #[default]
    Natural64 => "natural-64", [block(0, NATURAL, 0, 0, HT20)];
    /// One legacy field in FFT order.
    Lltf64 => "lltf-64", [block(0, NATURAL, 0, 0, LEGACY)];
    /// One HT20 field in FFT order, legacy field switched off.
    HtLtf64 => "ht-64", [block(1, NATURAL, 0, 0, HT20)];
    /// 64 bins ascending, −32..31, DC in the middle (C5, C6; or a 20 MHz field of a 40 MHz channel, side unknown).
    Centred64 => "centred-64", [block(0, CENTRED, 0, 0, HT20)];
    /// Legacy field in a 40 MHz channel, secondary below: 0..63.
    Below64 => "below-64", [block(0, BELOW, 32, 0, LEGACY)];
    /// Legacy field in a 40 MHz channel, secondary above: −64..−1.
    Above64 => "above-64", [block(0, ABOVE, -32, 0, LEGACY)];
    /// Legacy and HT20 field, each in FFT order.
    LltfHt128 => "lltf-ht-128", [block(0, NATURAL, 0, 0, LEGACY), block(1, NATURAL, 0, 0, HT20)];
    /// Legacy and HT20 field in a 40 MHz channel, secondary below.
    Below128 => "below-128", [block(0, BELOW, 32, 0, LEGACY), block(1, BELOW, 32, 0, HT20)];
    /// Legacy and HT20 field in a 40 MHz channel, secondary above.
    Above128 => "above-128", [block(0, ABOVE, -32, 0, LEGACY), block(1, ABOVE, -32, 0, HT20)];
    /// Legacy and HT20 field in a 40 MHz channel, side unknown, each numbered from its own middle.
    Paired128 => "paired-128", [block(0, CENTRED, 0, 0, LEGACY), block(1, CENTRED, 0, 0, HT20)];
    /// One HT40 field in FFT order, legacy field switched off.
    HtLtf128 => "ht40-128", [block(1, NATURAL_40, 0, 1, HT40)];
    /// 128 bins ascending, −64..63 (C6, HT40).
    Centred128 => "centred-128", [block(0, &[(-64, 63)], 0, 1, HT40)];
    /// HT20 with STBC: legacy and two HT fields, each in FFT order.
    Stbc192 => "stbc-192",
        [block(0, NATURAL, 0, 0, LEGACY), block(1, NATURAL, 0, 0, HT20), block(2, NATURAL, 0, 0, HT20)];
    /// HT20 with STBC in a 40 MHz channel, secondary below.
    Below190 => "below-stbc-190",
        [block(0, BELOW, 32, 0, LEGACY), block(1, &[(0, 62)], 32, 0, HT20), block(2, &[(0, 62)], 32, 0, HT20)];
    /// HT20 with STBC in a 40 MHz channel, secondary above.
    Above188 => "above-stbc-188",
        [block(0, ABOVE, -32, 0, LEGACY), block(1, &[(-62, -1)], -32, 0, HT20), block(2, &[(-62, -1)], -32, 0, HT20)];
    /// HT40, secondary below: legacy field 0..63, HT field in FFT order.
    Below192 => "below-ht40-192", [block(0, BELOW, 32, 0, LEGACY), block(1, NATURAL_40, 0, 1, HT40)];
    /// HT40, secondary above: legacy field −64..−1, HT field in FFT order.
    Above192 => "above-ht40-192", [block(0, ABOVE, -32, 0, LEGACY), block(1, NATURAL_40, 0, 1, HT40)];
    /// HT40, side of the secondary unknown: the legacy field is numbered from its own middle.
    Ht40x192 => "ht40-192", [block(0, CENTRED, 0, 0, LEGACY), block(1, NATURAL_40, 0, 1, HT40)];
    /// HT40 with STBC, secondary below.
    Below306 => "below-ht40-stbc-306",
        [block(0, BELOW, 32, 0, LEGACY), block(1, STBC_40, 0, 1, HT40), block(2, STBC_40, 0, 1, HT40)];
    /// HT40 with STBC, secondary above.
    Above306 => "above-ht40-stbc-306",
        [block(0, ABOVE, -32, 0, LEGACY), block(1, STBC_40, 0, 1, HT40), block(2, STBC_40, 0, 1, HT40)];
    /// HT40 with STBC, side of the secondary unknown: the legacy field is numbered from its own middle.
    Ht40Stbc306 => "ht40-stbc-306",
        [block(0, CENTRED, 0, 0, LEGACY), block(1, STBC_40, 0, 1, HT40), block(2, STBC_40, 0, 1, HT40)];
    /// C5 and C61, legacy.
    C5Legacy53 => "c5-legacy-53", [block(0, &[(-26, 26)], 0, 0, LEGACY)];
    /// C5 and C61, HT20.
    C5Ht57 => "c5-ht20-57", [block(1, &[(-28, 28)], 0, 0, HT20)];
    /// C5 and C61, HT20 with STBC.
    C5Stbc114 => "c5-ht20-stbc-114", [block(1, &[(-28, 28)], 0, 0, HT20), block(2, &[(-28, 28)], 0, 0, HT20)];
    /// C5, HT40.
    C5Ht117 => "c5-ht40-117", [block(1, &[(-58, 58)], 0, 1, HT40)];
    /// C5, HT40 with STBC.
    C5Stbc234 => "c5-ht40-stbc-234", [block(1, &[(-58, 58)], 0, 1, HT40), block(2, &[(-58, 58)], 0, 1, HT40)];
    /// C5 and C61, HE20.
    C5He245 => "c5-he20-245", [block(1, &[(-122, 122)], 0, 1, HE20)];
    /// HE20 ascending, −128..127 (C6).
    Centred256 => "centred-256", [block(1, &[(-128, 127)], 0, 1, HE20)];
    /// HE20 in FFT order.
    Natural256 => "natural-256", [block(1, &[(0, 127), (-128, -1)], 0, 1, HE20)];
    /// Only the valid bins of a legacy field, buffer in FFT order (esp-radar).
    Compact52 => "compact-52", [block(0, COMPACT_NATURAL, 0, 0, LEGACY)];
    /// Only the valid bins of a legacy field of a 40 MHz channel, ascending (esp-radar).
    CompactAscending52 => "compact-ascending-52", [block(0, COMPACT_ASCENDING, 0, 0, LEGACY)];
    /// Every second bin of a legacy field, 12-bit numbers (C5 and C61, forced LLTF).
    ForcedLltf26 => "forced-lltf-26",
        [Block { field: 0, ranges: &[(-26, -2), (2, 26)], step: 2, centre: 0, null_half_width: 0, half_width: LEGACY }];
}

impl Block {
    fn len(&self) -> usize {
        self.ranges.iter().map(|&(first, last)| range_len(first, last, self.step)).sum()
    }
}

fn range_len(first: i16, last: i16, step: i16) -> usize {
    usize::try_from((last - first) / step + 1).unwrap_or(0)
}

impl Layout {
    /// Number of bins.
    #[allow(clippy::len_without_is_empty)] // a layout has at least one bin
    pub fn len(self) -> usize {
        match self {
            Self::Unknown(n) => usize::from(n),
            known => known.blocks().iter().map(Block::len).sum(),
        }
    }

    /// The block and subcarrier index of value number `i`.
    fn locate(self, i: usize) -> Option<(&'static Block, i16)> {
        let mut rest = i;
        for block in self.blocks() {
            for &(first, last) in block.ranges {
                let n = range_len(first, last, block.step);
                if rest < n {
                    return Some((block, first + rest as i16 * block.step));
                }
                rest -= n;
            }
        }
        None
    }

    /// Subcarrier index of value number `i`, counted from the middle of the channel; for an unknown order, `i` itself.
    pub fn bin(self, i: usize) -> i16 {
        self.locate(i).map_or_else(|| i16::try_from(i).unwrap_or(i16::MAX), |(_, bin)| bin)
    }

    /// Which training field value number `i` belongs to: 0 legacy (or the only one), 1 HT or HE, 2 second HT of STBC.
    pub fn field(self, i: usize) -> u8 {
        self.locate(i).map_or(0, |(block, _)| block.field)
    }

    /// Whether value number `i` carries a measurement by the standard: neither guard nor DC. Where legacy and HT cannot
    /// be told apart the wider set is given; bins that stay zero show themselves. Does not know about the first word.
    pub fn usable(self, i: usize) -> bool {
        match self {
            Self::Unknown(n) => i < usize::from(n),
            known => known.locate(i).is_some_and(|(block, bin)| {
                let distance = (bin - block.centre).abs();
                distance > block.null_half_width && distance <= block.half_width
            }),
        }
    }

    /// The layout of this name, as [`Display`](fmt::Display) writes it.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(n) = name.strip_prefix("unknown-") {
            return n.parse().ok().map(Self::Unknown);
        }
        Self::ALL.iter().copied().find(|layout| layout.name() == name)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(n) => write!(f, "unknown-{n}"),
            known => f.write_str(known.name()),
        }
    }
}

/// A name that is no layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected the name of a bin layout such as `natural-64` or `unknown-52`, got `{0}`")]
pub struct ParseLayoutError(pub String);

impl FromStr for Layout {
    type Err = ParseLayoutError;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name).ok_or_else(|| ParseLayoutError(name.to_owned()))
    }
}

impl Serialize for Layout {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Layout {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(d)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn usable_count(layout: Layout) -> usize {
        (0..layout.len()).filter(|&i| layout.usable(i)).count()
    }

    #[test]
    fn lengths_are_those_of_the_radio() {
        for (layout, bins, usable) in [
            (Layout::Natural64, 64, 56),
            (Layout::Lltf64, 64, 52),
            (Layout::HtLtf64, 64, 56),
            (Layout::Centred64, 64, 56),
            (Layout::Below64, 64, 52),
            (Layout::Above64, 64, 52),
            (Layout::LltfHt128, 128, 108),
            (Layout::Paired128, 128, 108),
            (Layout::HtLtf128, 128, 114),
            (Layout::Centred128, 128, 114),
            (Layout::Stbc192, 192, 164),
            (Layout::Below190, 190, 164),
            (Layout::Above188, 188, 164),
            (Layout::Below192, 192, 166),
            (Layout::Ht40x192, 192, 166),
            (Layout::Above306, 306, 280),
            (Layout::C5Legacy53, 53, 52),
            (Layout::C5Ht57, 57, 56),
            (Layout::C5Stbc114, 114, 112),
            (Layout::C5Ht117, 117, 114),
            (Layout::C5Stbc234, 234, 228),
            (Layout::C5He245, 245, 242),
            (Layout::Centred256, 256, 242),
            (Layout::Natural256, 256, 242),
            (Layout::Compact52, 52, 52),
            (Layout::CompactAscending52, 52, 52),
            (Layout::ForcedLltf26, 26, 26),
            (Layout::Unknown(77), 77, 77),
        ] {
            assert_eq!(layout.len(), bins, "{layout}");
            assert_eq!(usable_count(layout), usable, "{layout}");
            assert!(!layout.usable(bins), "{layout}");
        }
    }

    #[test]
    fn bins_are_where_the_document_puts_them() {
        assert_eq!((Layout::Natural64.bin(31), Layout::Natural64.bin(32), Layout::Natural64.bin(63)), (31, -32, -1));
        assert_eq!((Layout::Above64.bin(0), Layout::Above64.bin(63)), (-64, -1));
        // The first and last measured bins of real frames in a 40 MHz channel with the secondary above.
        assert!(!Layout::Above64.usable(5) && Layout::Above64.usable(6) && Layout::Above64.usable(58));
        assert!(!Layout::Above64.usable(32) && !Layout::Above64.usable(59));
        assert_eq!((Layout::LltfHt128.field(63), Layout::LltfHt128.field(64), Layout::LltfHt128.bin(64)), (0, 1, 0));
        assert_eq!((Layout::Ht40Stbc306.bin(64 + 60), Layout::Ht40Stbc306.bin(64 + 61)), (60, -60));
        assert_eq!((Layout::ForcedLltf26.bin(12), Layout::ForcedLltf26.bin(13)), (-2, 2));
    }

    #[test]
    fn names_go_both_ways_and_are_unique() {
        for &layout in Layout::ALL.iter().chain(&[Layout::Unknown(164)]) {
            let name = layout.to_string();
            assert_eq!(Layout::parse(&name), Some(layout));
            assert_eq!(serde_json::to_string(&layout).unwrap(), format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<Layout>(&format!("\"{name}\"")).unwrap(), layout);
        }
        assert_eq!(Layout::parse("natural"), None);
        assert!("unknown-x".parse::<Layout>().unwrap_err().to_string().contains("unknown-x"));
    }
}
