//! In which order the bins of a buffer come, found from where its zeros are.
//!
//! A 20 MHz field in FFT order has its guard bins in the middle (29..35) and signal at the ends; an ascending one has
//! signal in the middle and guard bins at the ends. Bins 0 and 1 are left out, as the first word may be junk. The answer
//! is kept per (transmitter, number of bins) and re-opened only when several frames in a row say otherwise, because a
//! single frame may carry accidental zeros.

use crate::types::MacAddr;

const MIDDLE: [usize; 6] = [29, 30, 31, 33, 34, 35];
const ENDS: [usize; 5] = [2, 3, 61, 62, 63];
/// In a row, before a decided order is given up.
const CONTRADICTIONS: u8 = 8;

/// Order of the bins of each 64-bin field of a buffer, or of the buffer as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// FFT order.
    Natural,
    /// Each 64-bin field ascends.
    Centred,
    /// The whole buffer of more than 64 bins ascends.
    Wide,
}

/// What one frame shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    Shows(Order),
    Ambiguous,
    /// Signal where any order has guard bins: a noise burst or damage.
    GuardsOccupied,
}

fn is_zero(values: &[i16], bin: usize) -> bool {
    values.get(2 * bin) == Some(&0) && values.get(2 * bin + 1) == Some(&0)
}

fn all_zero(values: &[i16], bins: &[usize]) -> bool {
    bins.iter().all(|&bin| is_zero(values, bin))
}

fn none_zero(values: &[i16], bins: &[usize]) -> bool {
    !bins.iter().any(|&bin| is_zero(values, bin))
}

fn mean_power(values: &[i16], bins: &[usize]) -> u64 {
    let sum: u64 = bins
        .iter()
        .flat_map(|&bin| [values[2 * bin], values[2 * bin + 1]])
        .map(|v| u64::from(v.unsigned_abs()).pow(2))
        .sum();
    sum / bins.len() as u64
}

/// Looks at the pairs of a buffer whose first field is a 64-bin one, or which is one field of 128 or 256 bins.
pub(super) fn examine(values: &[i16]) -> Evidence {
    const INNER: [usize; 6] = [126, 127, 129, 130, 124, 132];
    const OUTER: [usize; 6] = [2, 3, 4, 253, 254, 255];
    let bins = values.len() / 2;
    if bins == 256 {
        return if all_zero(values, &OUTER) && none_zero(values, &INNER) {
            Evidence::Shows(Order::Wide)
        } else if all_zero(values, &INNER) && none_zero(values, &OUTER) {
            Evidence::Shows(Order::Natural)
        } else {
            Evidence::Ambiguous
        };
    }
    if bins < 64 {
        return Evidence::Ambiguous;
    }
    if all_zero(values, &MIDDLE) && none_zero(values, &ENDS) {
        return Evidence::Shows(Order::Natural);
    }
    if all_zero(values, &ENDS) && none_zero(values, &MIDDLE) {
        return Evidence::Shows(Order::Centred);
    }
    if bins == 128 && all_zero(values, &[2, 3, 4, 125, 126, 127]) && none_zero(values, &[60, 61, 62, 66, 67, 68]) {
        return Evidence::Shows(Order::Wide);
    }
    if bins == 64 && none_zero(values, &MIDDLE) && none_zero(values, &ENDS) {
        const BAND: [usize; 12] = [6, 9, 12, 15, 18, 21, 42, 45, 48, 51, 54, 57];
        let band = mean_power(values, &BAND);
        if mean_power(values, &MIDDLE) * 4 > band && mean_power(values, &ENDS) * 4 > band {
            return Evidence::GuardsOccupied;
        }
    }
    Evidence::Ambiguous
}

#[derive(Debug, Clone, Copy, Default)]
struct Latch {
    transmitter: Option<MacAddr>,
    bins: usize,
    order: Option<Order>,
    contradictions: u8,
    first_word_invalid: bool,
    used: u64,
}

/// Orders decided so far on one node; the least recently used entry gives way.
#[derive(Debug, Clone, Default)]
pub(super) struct OrderMemory {
    latches: [Latch; 8],
    ticks: u64,
}

/// What is known of a buffer after looking at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) order: Option<Order>,
    pub(super) first_word_invalid: bool,
}

impl OrderMemory {
    /// Takes in one frame's evidence. `prior` is what chip or columns say. `first_word_junk` says that bin 0 is not zero;
    /// bin 0 is DC or guard in every order, so something there is the radio's junk, and stays so for this series.
    pub(super) fn decide(
        &mut self,
        transmitter: Option<MacAddr>,
        bins: usize,
        evidence: Evidence,
        prior: Option<Order>,
        first_word_junk: bool,
    ) -> Decision {
        self.ticks += 1;
        let found = self.latches.iter().position(|l| l.used > 0 && l.transmitter == transmitter && l.bins == bins);
        let index = found.unwrap_or_else(|| {
            let (oldest, _) = self
                .latches
                .iter()
                .enumerate()
                .min_by_key(|(_, l)| l.used)
                .expect("there is a fixed number of latches");
            self.latches[oldest] = Latch { transmitter, bins, order: prior, ..Latch::default() };
            oldest
        });
        let latch = &mut self.latches[index];
        latch.used = self.ticks;
        latch.first_word_invalid |= first_word_junk;
        if let Evidence::Shows(shown) = evidence {
            if latch.order.is_none() || latch.order == Some(shown) {
                latch.order = Some(shown);
                latch.contradictions = 0;
            } else {
                latch.contradictions += 1;
                if latch.contradictions >= CONTRADICTIONS {
                    latch.order = Some(shown);
                    latch.contradictions = 0;
                }
            }
        }
        Decision { order: latch.order, first_word_invalid: latch.first_word_invalid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(zero: impl Fn(usize) -> bool, bins: usize) -> Vec<i16> {
        (0..bins).flat_map(|bin| if zero(bin) { [0, 0] } else { [7, -5] }).collect()
    }

    #[test]
    fn zeros_tell_the_order() {
        let natural = buffer(|bin| bin == 0 || (29..36).contains(&bin), 64);
        let centred = buffer(|bin| bin < 4 || bin == 32 || bin > 60, 64);
        let wide = buffer(|bin| bin < 6 || bin == 64 || bin > 122, 128);
        assert_eq!(examine(&natural), Evidence::Shows(Order::Natural));
        assert_eq!(examine(&centred), Evidence::Shows(Order::Centred));
        assert_eq!(examine(&wide), Evidence::Shows(Order::Wide));
        assert_eq!(examine(&buffer(|_| false, 64)), Evidence::GuardsOccupied);
        assert_eq!(examine(&buffer(|bin| bin % 2 == 0, 64)), Evidence::Ambiguous);
        assert_eq!(examine(&buffer(|bin| !(6..250).contains(&bin), 256)), Evidence::Shows(Order::Wide));
        assert_eq!(examine(&buffer(|bin| (123..134).contains(&bin), 256)), Evidence::Shows(Order::Natural));
    }

    #[test]
    fn a_decision_survives_a_stray_frame_but_not_a_change() {
        let mut memory = OrderMemory::default();
        let natural = Evidence::Shows(Order::Natural);
        let centred = Evidence::Shows(Order::Centred);
        let mut step = |evidence| memory.decide(None, 64, evidence, None, false).order;
        assert_eq!(step(Evidence::Ambiguous), None);
        assert_eq!(step(natural), Some(Order::Natural));
        assert_eq!(step(centred), Some(Order::Natural));
        assert_eq!(step(Evidence::Ambiguous), Some(Order::Natural));
        assert_eq!(step(natural), Some(Order::Natural));
        for _ in 0..CONTRADICTIONS - 1 {
            assert_eq!(step(centred), Some(Order::Natural));
        }
        assert_eq!(step(centred), Some(Order::Centred));
    }

    #[test]
    fn series_are_apart_and_junk_sticks() {
        let mut memory = OrderMemory::default();
        let a = Some(MacAddr([1; 6]));
        assert!(memory.decide(a, 64, Evidence::Ambiguous, Some(Order::Centred), true).first_word_invalid);
        assert!(memory.decide(a, 64, Evidence::Ambiguous, None, false).first_word_invalid);
        assert!(!memory.decide(None, 64, Evidence::Ambiguous, None, false).first_word_invalid);
        for i in 0..20 {
            memory.decide(Some(MacAddr([i; 6])), 128, Evidence::Ambiguous, None, false);
        }
        assert_eq!(memory.decide(a, 64, Evidence::Ambiguous, None, false).order, None, "the entry gave way");
    }
}
