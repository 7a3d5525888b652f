//! Attention of one token: scores, softmax and mean in two passes over a piece of rows, which all queries share.
//!
//! Queries are taken `G` = 4, 2 or 1 at a time and rows 8 / G at a time, so that there are always eight sums on the way (what
//! the latency of FMA asks for) and one vector of eight scores comes out: lane = row * G + query.

use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;
use std::mem::MaybeUninit;

use super::first_lanes;
use super::rows::{F16, F32, Format, Q4, Q8};
use super::softmax::{Softmax, exp2, exponentials, fold, most_of_query, sum_folded, sum_of_query};
use crate::kernel::BLOCK;
use crate::kernel::chunk::{self, Chunk, ROWS, Span};
use crate::kernel::rows::Segment;

/// As the scalar function of this name. False if a score or a result is not finite.
///
/// # Safety
/// Needs AVX2, FMA and F16C; shapes must have been checked.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn sparse_decode(
    queries: &[f32],
    head_dim: usize,
    segments: &[Segment<'_>],
    scale: f32,
    out: &mut [f32],
    weights: Option<&mut [f32]>,
) -> bool {
    let group = queries.len() / head_dim;
    let weights = weights.map_or(std::ptr::null_mut(), |w| w.as_mut_ptr());
    let mut finite = true;
    let mut first = 0;
    while first < group {
        // SAFETY: `first` is below the group, so all three stay inside what was checked; a null pointer stays null in
        // effect, as `Task::weights` tells.
        let task = unsafe {
            Task {
                queries: queries.as_ptr().add(first * head_dim),
                out: out.as_mut_ptr().add(first * head_dim),
                weights: if weights.is_null() { weights } else { weights.add(first) },
                group,
                head_dim,
                segments,
                scale: scale * LOG2_E,
            }
        };
        // SAFETY: at least as many queries are left as are taken, and D is the head dimension or 0.
        unsafe {
            match (group - first, head_dim) {
                (4.., 32) => finite &= task.run::<4, 32>(),
                (4.., 64) => finite &= task.run::<4, 64>(),
                (4.., _) => finite &= task.run::<4, 0>(),
                (2.., 32) => finite &= task.run::<2, 32>(),
                (2.., _) => finite &= task.run::<2, 0>(),
                (_, 32) => finite &= task.run::<1, 32>(),
                _ => finite &= task.run::<1, 0>(),
            }
        }
        first += match group - first {
            4.. => 4,
            2.. => 2,
            _ => 1,
        };
    }
    finite
}

/// What is asked, for some of the queries.
struct Task<'a> {
    queries: *const f32,
    out: *mut f32,
    /// Where the weight of the first row and query goes, or null; `group` further is the next row.
    weights: *mut f32,
    group: usize,
    head_dim: usize,
    segments: &'a [Segment<'a>],
    /// In units of log 2.
    scale: f32,
}

#[repr(align(64))]
struct Aligned([MaybeUninit<f32>; 256]);

/// Whether queries of this shape are scaled and copied first.
const fn is_copied(g: usize, d: usize) -> bool {
    d > 0 && d.is_multiple_of(8) && g * d <= 256
}

type Scores = [MaybeUninit<f32>; ROWS * 4 + 32];

impl Task<'_> {
    /// Attention of G queries; D is the head dimension, or 0 if it is not known here.
    ///
    /// # Safety
    /// Needs AVX2, FMA and F16C, and pointers to G queries and results.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run<const G: usize, const D: usize>(&self) -> bool {
        let mut chunk = Chunk::new(self.segments);
        let mut scores: Scores = [const { MaybeUninit::uninit() }; ROWS * 4 + 32];
        let scores: *mut f32 = scores.as_mut_ptr().cast();
        let mut aligned = Aligned([const { MaybeUninit::uninit() }; 256]);
        // SAFETY: the caller's queries; the copy has room where `is_copied` says so.
        let queries = unsafe { self.copy_queries::<G, D>(&mut aligned) };
        let mut done = 0;
        let zero = _mm256_setzero_ps();
        let mut soft = Softmax { most: _mm256_set1_ps(f32::NEG_INFINITY), sum: zero, all: zero };
        // SAFETY (this function): the scores hold ROWS * G numbers and 32 more; the chunk has at most ROWS rows, each as long
        // as the head; pointers to queries, results and weights are the caller's word.
        unsafe {
            loop {
                let rows = chunk.advance(LOG2_E);
                if rows == 0 {
                    break;
                }
                let before = soft.most;
                let mut start = 0;
                for run in chunk.runs() {
                    soft.most = match run.format {
                        chunk::Format::F32 => {
                            self.score::<F32, G, D>(&chunk, queries, start, run.end, scores, soft.most)
                        }
                        chunk::Format::F16 => {
                            self.score::<F16, G, D>(&chunk, queries, start, run.end, scores, soft.most)
                        }
                        chunk::Format::Q8 => self.score::<Q8, G, D>(&chunk, queries, start, run.end, scores, soft.most),
                        chunk::Format::Q4 => self.score::<Q4, G, D>(&chunk, queries, start, run.end, scores, soft.most),
                    };
                    start = run.end;
                }
                soft.most = most_of_query::<G>(soft.most);
                if !self.weights.is_null() {
                    self.keep::<G>(scores, done, rows);
                }
                if done > 0 {
                    // Results so far were relative to a lower maximum.
                    let factor = exp2([_mm256_sub_ps(before, soft.most)])[0];
                    soft.sum = _mm256_mul_ps(soft.sum, factor);
                    self.multiply_out::<G, D>(factor);
                }
                soft = exponentials(scores, rows * G, soft);
                let mut start = 0;
                for run in chunk.runs() {
                    let fresh = done + start == 0;
                    let span = Span { start, end: run.end, to_value: run.to_value };
                    match run.format {
                        chunk::Format::F32 => self.accumulate::<F32, G, D>(&chunk, span, scores, fresh),
                        chunk::Format::F16 => self.accumulate::<F16, G, D>(&chunk, span, scores, fresh),
                        chunk::Format::Q8 => self.accumulate::<Q8, G, D>(&chunk, span, scores, fresh),
                        chunk::Format::Q4 => self.accumulate::<Q4, G, D>(&chunk, span, scores, fresh),
                    }
                    start = run.end;
                }
                done += rows;
            }
            if done == 0 {
                std::ptr::write_bytes(self.out, 0, G * self.head_dim);
                return true;
            }
            let inverse = _mm256_div_ps(_mm256_set1_ps(1.0), sum_of_query::<G>(soft.sum));
            let results = self.multiply_out::<G, D>(inverse);
            if !self.weights.is_null() {
                self.finish_weights::<G>(done, soft.most, inverse);
            }
            // x - x is 0 for finite x only.
            let difference = _mm256_sub_ps(soft.all, soft.all);
            let difference = _mm256_or_ps(difference, _mm256_sub_ps(results, results));
            let wrong = _mm256_cmp_ps::<_CMP_NEQ_UQ>(difference, zero);
            _mm256_movemask_ps(wrong) == 0
        }
    }

    /// Where the length is known the queries are scaled and copied to whole cache lines: they are read for every row.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn copy_queries<const G: usize, const D: usize>(&self, to: &mut Aligned) -> *const f32 {
        if !is_copied(G, D) {
            return self.queries;
        }
        let scale = _mm256_set1_ps(self.scale);
        let copy: *mut f32 = to.0.as_mut_ptr().cast();
        for i in 0..G * D / 8 {
            // SAFETY: G * D numbers, a multiple of 8, at both ends.
            unsafe {
                _mm256_store_ps(copy.add(8 * i), _mm256_mul_ps(scale, _mm256_loadu_ps(self.queries.add(8 * i))));
            }
        }
        copy
    }

    /// Scores of the rows `start..end` of the chunk, in units of log 2; gives the maximum by lane.
    ///
    /// The sums of lanes are finished one turn later than they are begun: waiting for them in the same turn would fill the
    /// processor's queues before the next rows come in sight.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn score<F: Format, const G: usize, const D: usize>(
        &self,
        chunk: &Chunk<'_>,
        queries: *const f32,
        start: usize,
        end: usize,
        scores: *mut f32,
        mut most: __m256,
    ) -> __m256 {
        let d = if D == 0 { self.head_dim } else { D };
        let scale = _mm256_set1_ps(if is_copied(G, D) { 1.0 } else { self.scale });
        let finish = |folded, at: usize, most| {
            let mut score = sum_folded(folded);
            if !is_copied(G, D) {
                score = _mm256_mul_ps(score, scale);
            }
            // SAFETY: row numbers are kept below `end`; the last scores may reach 8 numbers too far, where the buffer has
            // room.
            unsafe {
                if is_raw::<F>(D) {
                    let scale = per_row::<G>(|r| F::scale_of(chunk.key((at + r).min(end - 1))));
                    score = _mm256_mul_ps(score, scale);
                }
                if chunk.is_weighted() {
                    score = _mm256_add_ps(score, per_row::<G>(|r| *chunk.log_weights().add((at + r).min(end - 1))));
                }
                _mm256_storeu_ps(scores.add(at * G), score);
            }
            _mm256_max_ps(most, score)
        };
        // SAFETY: `start` is below `end`.
        let mut folded = unsafe { self.begin::<F, G, D>(d, chunk, queries, start, end) };
        let mut at = start + 8 / G;
        while at < end {
            // SAFETY: `at` is below `end`.
            let next = unsafe { self.begin::<F, G, D>(d, chunk, queries, at, end) };
            most = finish(folded, at - 8 / G, most);
            folded = next;
            at += 8 / G;
        }
        finish(folded, at - 8 / G, most)
    }

    /// Products of 8 / G rows from `at` on with all queries, each eight lanes folded to four.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    #[allow(clippy::pointers_in_nomem_asm_block, reason = "the assembly is empty")]
    unsafe fn begin<F: Format, const G: usize, const D: usize>(
        &self,
        d: usize,
        chunk: &Chunk<'_>,
        mut queries: *const f32,
        at: usize,
        end: usize,
    ) -> [__m256; 4] {
        let mut sums = [_mm256_setzero_ps(); 8];
        // SAFETY: row numbers are kept below `end`; loads stay below the head dimension. The empty assembly makes the
        // compiler forget that the queries are the same in each turn: it would keep all of them "in registers", that is,
        // copy them to the stack.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) queries, options(nomem, nostack, preserves_flags));
            let row: [*const u8; 8] = std::array::from_fn(|r| chunk.key((at + r.min(8 / G - 1)).min(end - 1)));
            for c in 0..d / 8 {
                let k: [__m256; 8] = std::array::from_fn(|r| {
                    let row = row[r.min(8 / G - 1)];
                    if is_raw::<F>(D) { F::load_raw(row, c) } else { F::load(row, c) }
                });
                for g in 0..G {
                    let q = _mm256_loadu_ps(queries.add(g * d + 8 * c));
                    for r in 0..8 / G {
                        sums[r * G + g] =
                            if c == 0 { _mm256_mul_ps(k[r], q) } else { _mm256_fmadd_ps(k[r], q, sums[r * G + g]) };
                    }
                }
            }
            if !d.is_multiple_of(8) {
                let (c, rest) = (d / 8, d % 8);
                let mask = first_lanes(rest);
                for r in 0..8 / G {
                    let k = F::load_tail(row[r], c, rest);
                    for g in 0..G {
                        let q = _mm256_maskload_ps(queries.add(g * d + 8 * c), mask);
                        sums[r * G + g] = _mm256_fmadd_ps(k, q, sums[r * G + g]);
                    }
                }
            }
        }
        fold(sums)
    }

    /// Adds the values of a span of rows, times their weights, to the results; `fresh` begins them.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn accumulate<F: Format, const G: usize, const D: usize>(
        &self,
        chunk: &Chunk<'_>,
        span: Span,
        weights: *mut f32,
        fresh: bool,
    ) {
        let d = if D == 0 { self.head_dim } else { D };
        let mut c = 0;
        // SAFETY: the rows are in the list, and their vectors up to d / 8 in the rows and results.
        unsafe {
            if is_raw::<F>(D) {
                scale_weights::<F, G>(chunk, span, weights);
            }
            while c + 8 / G <= d / 8 {
                match G {
                    4 => self.columns::<F, G, D, 2>(d, c, chunk, span, weights, fresh),
                    2 => self.columns::<F, G, D, 4>(d, c, chunk, span, weights, fresh),
                    _ => self.columns::<F, G, D, 8>(d, c, chunk, span, weights, fresh),
                }
                c += 8 / G;
            }
            if G == 1 && c + 4 <= d / 8 {
                self.columns::<F, G, D, 4>(d, c, chunk, span, weights, fresh);
                c += 4;
            }
            while c < d / 8 {
                self.columns::<F, G, D, 1>(d, c, chunk, span, weights, fresh);
                c += 1;
            }
            if !d.is_multiple_of(8) {
                let (rest, mask) = (d % 8, first_lanes(d % 8));
                let at = |g: usize| self.out.add(g * d + 8 * c);
                let begin = |g| if fresh { _mm256_setzero_ps() } else { _mm256_maskload_ps(at(g), mask) };
                let mut sums: [__m256; G] = std::array::from_fn(begin);
                for i in span.start..span.end {
                    let v = F::load_tail(chunk.value(i, span.to_value), c, rest);
                    for (g, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm256_fmadd_ps(_mm256_broadcast_ss(&*weights.add(i * G + g)), v, *sum);
                    }
                }
                for (g, sum) in sums.into_iter().enumerate() {
                    _mm256_maskstore_ps(at(g), mask, sum);
                }
            }
        }
    }

    /// `C` vectors of all results from vector `c` on.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    #[allow(clippy::too_many_arguments, reason = "inlined inner loop")]
    unsafe fn columns<F: Format, const G: usize, const D: usize, const C: usize>(
        &self,
        d: usize,
        c: usize,
        chunk: &Chunk<'_>,
        span: Span,
        weights: *const f32,
        fresh: bool,
    ) {
        let mut sums = [[_mm256_setzero_ps(); C]; G];
        // SAFETY: as in `accumulate`.
        unsafe {
            if !fresh {
                for g in 0..G {
                    for v in 0..C {
                        sums[g][v] = _mm256_loadu_ps(self.out.add(g * d + 8 * (c + v)));
                    }
                }
            }
            for i in span.start..span.end {
                let row = chunk.value(i, span.to_value);
                let value: [__m256; C] =
                    std::array::from_fn(|v| if is_raw::<F>(D) { F::load_raw(row, c + v) } else { F::load(row, c + v) });
                for g in 0..G {
                    let weight = _mm256_broadcast_ss(&*weights.add(i * G + g));
                    for v in 0..C {
                        sums[g][v] = _mm256_fmadd_ps(weight, value[v], sums[g][v]);
                    }
                }
            }
            for g in 0..G {
                for v in 0..C {
                    _mm256_storeu_ps(self.out.add(g * d + 8 * (c + v)), sums[g][v]);
                }
            }
        }
    }

    /// Multiplies each result by its query's factor; gives their sum by lane.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn multiply_out<const G: usize, const D: usize>(&self, factor: __m256) -> __m256 {
        let d = if D == 0 { self.head_dim } else { D };
        let mut all = _mm256_setzero_ps();
        let mut lanes = [0.0f32; 8];
        // SAFETY: G results of d numbers, the tail masked.
        unsafe {
            _mm256_storeu_ps(lanes.as_mut_ptr(), factor);
            for g in 0..G {
                let factor = _mm256_set1_ps(lanes[g]);
                let out = self.out.add(g * d);
                for c in 0..d / 8 {
                    let product = _mm256_mul_ps(factor, _mm256_loadu_ps(out.add(8 * c)));
                    _mm256_storeu_ps(out.add(8 * c), product);
                    all = _mm256_add_ps(all, product);
                }
                if !d.is_multiple_of(8) {
                    let mask = first_lanes(d % 8);
                    let out = out.add(d / 8 * 8);
                    let product = _mm256_mul_ps(factor, _mm256_maskload_ps(out, mask));
                    _mm256_maskstore_ps(out, mask, product);
                    all = _mm256_add_ps(all, product);
                }
            }
        }
        all
    }

    /// Writes the scores of a chunk where the weights go.
    unsafe fn keep<const G: usize>(&self, scores: *const f32, done: usize, rows: usize) {
        for i in 0..rows {
            for g in 0..G {
                // SAFETY: the weights have a place for every row and query.
                unsafe { *self.weights.add((done + i) * self.group + g) = *scores.add(i * G + g) }
            }
        }
    }

    /// Makes weights of the scores that are kept there.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn finish_weights<const G: usize>(&self, rows: usize, most: __m256, inverse: __m256) {
        let mut lanes = [0.0f32; 8];
        for i in 0..rows {
            // SAFETY: as in `keep`.
            unsafe {
                let at = self.weights.add(i * self.group);
                std::ptr::copy_nonoverlapping(at, lanes.as_mut_ptr(), G);
                let weight = exp2([_mm256_sub_ps(_mm256_loadu_ps(lanes.as_ptr()), most)])[0];
                _mm256_storeu_ps(lanes.as_mut_ptr(), _mm256_mul_ps(weight, inverse));
                std::ptr::copy_nonoverlapping(lanes.as_ptr(), at, G);
            }
        }
    }
}

/// Whether scales of rows are left out of the inner loops: rows of a single block.
const fn is_raw<F: Format>(d: usize) -> bool {
    F::SCALED && d == BLOCK
}

/// A number for each of 8 / G rows, repeated for the G queries.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn per_row<const G: usize>(number: impl Fn(usize) -> f32) -> __m256 {
    let w = number;
    match G {
        4 => _mm256_setr_m128(_mm_set1_ps(w(0)), _mm_set1_ps(w(1))),
        2 => {
            let (a, b, c, d) = (w(0), w(1), w(2), w(3));
            _mm256_setr_ps(a, a, b, b, c, c, d, d)
        }
        _ => _mm256_setr_ps(w(0), w(1), w(2), w(3), w(4), w(5), w(6), w(7)),
    }
}

/// Multiplies weights by the scales of their values.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scale_weights<F: Format, const G: usize>(chunk: &Chunk<'_>, span: Span, weights: *mut f32) {
    // SAFETY: the rows are in the list and have weights.
    unsafe {
        let scale = |row: usize| F::scale_of(chunk.value(row, span.to_value));
        let mut at = span.start;
        while at + 8 / G <= span.end {
            let to = weights.add(at * G);
            _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_loadu_ps(to), per_row::<G>(|r| scale(at + r))));
            at += 8 / G;
        }
        while at < span.end {
            for g in 0..G {
                *weights.add(at * G + g) *= scale(at);
            }
            at += 1;
        }
    }
}
