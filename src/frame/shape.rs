//! What a parser knows about a frame beyond its fields: how to find its layout, its first word and its duplicates.

use super::order::Order;
use super::{Layout, Reject};

/// How the layout follows from the number of bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayoutRule {
    /// The format has but one.
    Fixed(Layout),
    /// C5, C6 and C61: buffers ascend.
    Ascending,
    /// ESP32, S2, S3, C3, or a chip not known: the table of the ESP-IDF document.
    Classic {
        /// 0 none, 1 above, 2 below; `None` where the format does not say.
        secondary: Option<u8>,
        /// The packet was an HT40 one; `None` where the format does not say.
        ht40: Option<bool>,
        /// Which training field a buffer of 64 bins in FFT order holds.
        single: Layout,
    },
}

impl LayoutRule {
    pub(super) const UNKNOWN_CHIP: Self = Self::Classic { secondary: None, ht40: None, single: Layout::Natural64 };

    /// The order that chip or columns let expect.
    pub(super) fn prior(self, bins: usize) -> Option<Order> {
        match self {
            Self::Fixed(_) | Self::Classic { secondary: None, .. } => None,
            Self::Ascending => Some(if bins == 64 { Order::Centred } else { Order::Wide }),
            Self::Classic { secondary: Some(0), .. } => Some(Order::Natural),
            Self::Classic { .. } => Some(Order::Centred),
        }
    }

    /// The layout of a buffer of `bins` bins in `order`.
    pub(super) fn layout(self, bins: usize, order: Option<Order>) -> Result<Layout, Reject> {
        let (secondary, ht40, single) = match self {
            Self::Fixed(layout) => return Ok(layout),
            Self::Ascending => (None, None, Layout::Natural64),
            Self::Classic { secondary, ht40, single } => (secondary, ht40, single),
        };
        let unknown = Layout::Unknown(u16::try_from(bins).unwrap_or(u16::MAX));
        let by_side = |above, below, unsure| match secondary {
            Some(1) => above,
            Some(2) => below,
            _ => unsure,
        };
        Ok(match (bins, order) {
            (64, Some(Order::Natural)) => single,
            (64, Some(_)) => by_side(Layout::Above64, Layout::Below64, Layout::Centred64),
            // Legacy and HT40 field together have 192 bins, so 128 of an HT40 packet are the HT field alone.
            (128, _) if ht40 == Some(true) && secondary != Some(0) => Layout::HtLtf128,
            (128, Some(Order::Natural)) => Layout::LltfHt128,
            (128, Some(Order::Centred)) => by_side(Layout::Above128, Layout::Below128, Layout::Paired128),
            (128, Some(Order::Wide)) => Layout::Centred128,
            (192, Some(Order::Natural)) => Layout::Stbc192,
            (192, Some(Order::Centred)) => by_side(Layout::Above192, Layout::Below192, Layout::Ht40x192),
            (256, Some(Order::Natural)) => Layout::Natural256,
            (256, Some(Order::Wide)) => Layout::Centred256,
            (190, _) => Layout::Below190,
            (188, _) => Layout::Above188,
            (306, _) => by_side(Layout::Above306, Layout::Below306, Layout::Ht40Stbc306),
            (52, _) => by_side(Layout::CompactAscending52, Layout::CompactAscending52, Layout::Compact52),
            (53, _) => Layout::C5Legacy53,
            (57, _) => Layout::C5Ht57,
            (114, _) => Layout::C5Stbc114,
            (117, _) => Layout::C5Ht117,
            (234, _) => Layout::C5Stbc234,
            (245, _) => Layout::C5He245,
            // Known lengths of unknown order: undecided buffers, and the compacted HT buffers of esp-radar.
            (64 | 128 | 192 | 256 | 108 | 164 | 276, _) => unknown,
            _ => return Err(Reject::UnknownLayout),
        })
    }
}

/// How it is known whether the first word is junk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstWord {
    /// A column or flag says so.
    Told(bool),
    /// No column: bin 0, DC or guard in every order of the driver's buffer, is not zero exactly when the radio left
    /// junk there.
    Look,
}

/// What makes two frames of one transmitter the same frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// The radio's own time stamp.
    Stamp(u64),
    /// The board's sequence number, of so many bits.
    Seq(u32, u8),
    /// Nothing does.
    None,
}

/// Result of parsing one frame into the scratch frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) rule: LayoutRule,
    pub(super) first_word: FirstWord,
    pub(super) identity: Identity,
}

/// RSSI as a measurement. Zero, positive values and the sentinels −1, −2 and −128 of the firmwares are none.
pub(super) fn plausible_rssi(dbm: i64) -> Option<i8> {
    i8::try_from(dbm).ok().filter(|dbm| (-127..=-3).contains(dbm))
}

/// Noise floor as a measurement; some firmwares print the byte unsigned (159 = −97).
pub(super) fn plausible_noise(dbm: i64) -> Option<i8> {
    let dbm = if (128..=255).contains(&dbm) { dbm - 256 } else { dbm };
    i8::try_from(dbm).ok().filter(|dbm| (-127..=-20).contains(dbm))
}
