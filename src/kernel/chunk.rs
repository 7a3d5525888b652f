//! Rows of all segments as one list of addresses, a piece at a time: what the vector kernels loop over. A sparse pattern
//! has many segments of a single row; with addresses in a list the inner loops do not know about segments at all.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::rows::{LogWeights, Picks, Rows, Segment};

/// Rows in a piece: their scores fit on the stack, their keys and values (32 kB in F32 at 32 numbers) near the first
/// level cache.
pub(super) const ROWS: usize = 128;
/// Changes of format in a piece; one more begins the next piece.
const RUNS: usize = 16;

/// How the numbers of a row are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    F32,
    F16,
    Q8,
    Q4,
}

/// Rows of one format that follow each other in the list: up to `end`. Each value lies `to_value` bytes behind its key
/// (wrapping), so that one address a row will do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) format: Format,
    pub(super) to_value: usize,
    pub(super) end: usize,
}

/// The rows of a run that a pass is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    /// As in [`Run`].
    pub(super) to_value: usize,
}

/// The next rows of a list of segments. Not initialised beyond `len`, as writing 2 kB would cost a tenth of a step.
///
/// Addresses are kept as numbers (exposed provenance), since keys and values of a run are told by the same one.
pub(super) struct Chunk<'a> {
    segments: &'a [Segment<'a>],
    /// Row of the first segment to go on with.
    row: usize,
    len: usize,
    keys: [MaybeUninit<usize>; ROWS],
    weighted: bool,
    log_weights: [MaybeUninit<f32>; ROWS],
    runs: [Run; RUNS],
    run_count: usize,
}

/// Address and distance in bytes of a segment's rows.
struct Place {
    format: Format,
    keys: usize,
    to_value: usize,
    stride: usize,
}

impl<'a> Chunk<'a> {
    /// At the first row of segments that have been checked for the head dimension.
    pub(super) fn new(segments: &'a [Segment<'a>]) -> Self {
        Self {
            segments,
            row: 0,
            len: 0,
            keys: [const { MaybeUninit::uninit() }; ROWS],
            weighted: false,
            log_weights: [const { MaybeUninit::uninit() }; ROWS],
            runs: [Run { format: Format::F32, to_value: 0, end: 0 }; RUNS],
            run_count: 0,
        }
    }

    /// Moves on to the next rows; how many there are, 0 at the end. `unit` multiplies the log weights. Always inlined, so
    /// that it is compiled for the vectors of the kernel that calls it.
    #[inline(always)]
    pub(super) fn advance(&mut self, unit: f32) -> usize {
        let (mut n, mut runs) = (0, 0);
        let mut kind = None;
        self.weighted = false;
        while let Some(segment) = self.segments.first() {
            let take = (segment.len - self.row).min(ROWS - n);
            if take > 0 {
                let place = place(segment);
                if kind != Some((place.format, place.to_value)) {
                    if runs == RUNS {
                        break;
                    }
                    kind = Some((place.format, place.to_value));
                    runs += 1;
                }
                let to = self.keys[n..n + take].iter_mut();
                let address = |i: usize| MaybeUninit::new(place.keys.wrapping_add(i.wrapping_mul(place.stride)));
                match segment.picks {
                    None => to.zip(self.row..).for_each(|(to, i)| *to = address(i)),
                    Some(Picks::Rows(picks)) => {
                        to.zip(&picks[self.row..]).for_each(|(to, i)| *to = address(*i as usize));
                    }
                    Some(Picks::Blocks { numbers, rows }) => {
                        let (block, first) = (self.row / rows, self.row % rows);
                        let all = numbers[block..].iter().flat_map(|b| b * rows..(b + 1) * rows);
                        to.zip(all.skip(first)).for_each(|(to, i)| *to = address(i));
                    }
                }
                self.weigh(segment, n, take, unit);
                n += take;
                self.runs[runs - 1] = Run { format: place.format, to_value: place.to_value, end: n };
            }
            self.row += take;
            if self.row < segment.len {
                break;
            }
            self.segments = &self.segments[1..];
            self.row = 0;
        }
        self.len = n;
        self.run_count = runs;
        n
    }

    #[inline]
    fn weigh(&mut self, segment: &Segment<'_>, n: usize, take: usize, unit: f32) {
        let plain = matches!(segment.log_weights, LogWeights::Same(w) if w == 0.0);
        if plain && !self.weighted {
            return;
        }
        if !self.weighted {
            self.weighted = true;
            self.log_weights[..n].fill(MaybeUninit::new(0.0));
        }
        for (i, w) in self.log_weights[n..n + take].iter_mut().enumerate() {
            w.write(unit * segment.log_weight(self.row + i));
        }
    }

    /// Whether any of the rows has another log weight than 0.
    pub(super) fn is_weighted(&self) -> bool {
        self.weighted
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.runs[..self.run_count]
    }

    /// The key of row `i`.
    ///
    /// # Safety
    /// `i` is below the last `advance()`.
    #[inline(always)]
    pub(super) unsafe fn key(&self, i: usize) -> *const u8 {
        // SAFETY: `advance` wrote it.
        std::ptr::with_exposed_provenance(unsafe { self.keys.get_unchecked(i).assume_init() })
    }

    /// The value of row `i`, with the distance of its run.
    ///
    /// # Safety
    /// As [`key`](Self::key).
    #[inline(always)]
    pub(super) unsafe fn value(&self, i: usize, to_value: usize) -> *const u8 {
        // SAFETY: `advance` wrote it.
        let key = unsafe { self.keys.get_unchecked(i).assume_init() };
        std::ptr::with_exposed_provenance(key.wrapping_add(to_value))
    }

    /// Log weights times the unit; written where [`is_weighted`](Self::is_weighted).
    pub(super) fn log_weights(&self) -> *const f32 {
        self.log_weights.as_ptr().cast()
    }
}

#[inline]
fn place(segment: &Segment<'_>) -> Place {
    fn of<T>(format: Format, keys: &[T], values: &[T], stride: usize) -> Place {
        let (keys, values) = (keys.as_ptr().expose_provenance(), values.as_ptr().expose_provenance());
        Place { format, keys, to_value: values.wrapping_sub(keys), stride: stride.wrapping_mul(size_of::<T>()) }
    }
    match segment.rows {
        Rows::F32 { keys, values, stride } => of(Format::F32, keys, values, stride),
        Rows::F16 { keys, values, stride } => of(Format::F16, keys, values, stride),
        Rows::Q8 { keys, values, stride } => of(Format::Q8, keys, values, stride),
        Rows::Q4 { keys, values, stride } => of(Format::Q4, keys, values, stride),
    }
}
