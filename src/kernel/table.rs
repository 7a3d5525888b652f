//! One table of functions, chosen once.
#![allow(unsafe_code)]

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use half::f16;

#[cfg(target_arch = "x86_64")]
use super::avx2;
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::quant::{BlockQ4, BlockQ8, blocks_for};
use super::{KernelError, Segment, scalar};

/// Which code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KernelKind {
    /// Plain Rust, the specification.
    Scalar,
    /// 128-bit vectors of aarch64.
    Neon,
    /// 256-bit vectors of x86-64 with FMA and F16C.
    Avx2,
}

impl fmt::Display for KernelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
        })
    }
}

impl FromStr for KernelKind {
    type Err = KernelError;
    fn from_str(text: &str) -> Result<Self, KernelError> {
        match text {
            "scalar" => Ok(Self::Scalar),
            "neon" => Ok(Self::Neon),
            "avx2" => Ok(Self::Avx2),
            other => Err(KernelError::Unknown(other.to_owned())),
        }
    }
}

/// The functions of one kind. Copy a reference around; there is one of each kind for the life of the process.
#[derive(Debug)]
pub struct Kernel {
    kind: KernelKind,
    features: &'static str,
    functions: Functions,
}

/// Queries, head dimension, segments, scale, results, weights; false if something is not finite.
type Decode = unsafe fn(&[f32], usize, &[Segment<'_>], f32, &mut [f32], Option<&mut [f32]>) -> bool;

/// Unsafe for what the vector kernels need: their processor, and shapes that have been checked.
#[derive(Debug)]
struct Functions {
    sparse_decode: Decode,
    dot: unsafe fn(&[f32], &[f32]) -> f32,
    dot_q8: unsafe fn(&[f32], &[BlockQ8]) -> f32,
    dot_q4: unsafe fn(&[f32], &[BlockQ4]) -> f32,
    matmul: unsafe fn(&[f32], &[f32], usize, &mut [f32]),
    matmul_f16: unsafe fn(&[f32], &[f16], usize, &mut [f32]),
    to_f16: unsafe fn(&[f32], &mut [f16]),
    from_f16: unsafe fn(&[f16], &mut [f32]),
    quantize_q8: unsafe fn(&[f32], &mut [BlockQ8]),
    quantize_q4: unsafe fn(&[f32], &mut [BlockQ4]),
}

/// The table of a module that has all of the functions.
macro_rules! kernel {
    ($kind:ident, $features:literal, $module:ident, $decode:expr) => {
        Kernel {
            kind: KernelKind::$kind,
            features: $features,
            functions: Functions {
                sparse_decode: $decode,
                dot: $module::dot,
                dot_q8: $module::dot_q8,
                dot_q4: $module::dot_q4,
                matmul: $module::matmul,
                matmul_f16: $module::matmul_f16,
                to_f16: $module::to_f16,
                from_f16: $module::from_f16,
                quantize_q8: $module::quantize_q8,
                quantize_q4: $module::quantize_q4,
            },
        }
    };
}

static SCALAR: Kernel = kernel!(Scalar, "scalar", scalar, scalar::sparse_decode);
#[cfg(target_arch = "x86_64")]
static AVX2: Kernel = kernel!(Avx2, "avx2+fma+f16c", avx2, avx2::sparse_decode);
/// By the set of features.
#[cfg(target_arch = "aarch64")]
static NEON: [Kernel; 4] = [
    kernel!(Neon, "neon", neon, neon::sparse_decode::<0>),
    kernel!(Neon, "neon+dotprod", neon, neon::sparse_decode::<{ neon::DOTPROD }>),
    kernel!(Neon, "neon+fp16", neon, neon::sparse_decode::<{ neon::FP16 }>),
    kernel!(Neon, "neon+dotprod+fp16", neon, neon::sparse_decode::<{ neon::DOTPROD | neon::FP16 }>),
];

static GLOBAL: OnceLock<&'static Kernel> = OnceLock::new();

/// Kernels that this processor runs, the best one first.
fn available() -> impl Iterator<Item = &'static Kernel> {
    #[cfg(target_arch = "x86_64")]
    let vector = avx2::is_supported().then_some(&AVX2);
    #[cfg(target_arch = "aarch64")]
    let vector = Some(&NEON[usize::from(neon::features())]);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let vector = None;
    vector.into_iter().chain([&SCALAR])
}

impl Kernel {
    /// The best kernel of this processor, or the one asked for.
    pub fn select(forced: Option<KernelKind>) -> Result<&'static Self, KernelError> {
        let Some(kind) = forced else { return Ok(available().next().unwrap_or(&SCALAR)) };
        available().find(|k| k.kind == kind).ok_or_else(|| {
            let have: Vec<String> = available().map(|k| k.kind.to_string()).collect();
            KernelError::Unsupported { kind, have: have.join(", ") }
        })
    }

    /// The kernel of this process: the one of [`set_global`](Self::set_global), or else the best one.
    pub fn global() -> &'static Self {
        GLOBAL.get_or_init(|| available().next().unwrap_or(&SCALAR))
    }

    /// Chooses the kernel of this process, once and before its first use.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`], and [`KernelError::Chosen`] where another one has been chosen or used already.
    pub fn set_global(forced: Option<KernelKind>) -> Result<&'static Self, KernelError> {
        let kernel = Self::select(forced)?;
        let now = *GLOBAL.get_or_init(|| kernel);
        if now.kind == kernel.kind { Ok(now) } else { Err(KernelError::Chosen { kind: kernel.kind, now: now.kind }) }
    }

    /// What the code uses of this processor, for the log: `avx2+fma+f16c`, `scalar`, or `neon` with `+dotprod` and `+fp16`
    /// where the core has them.
    pub fn features(&self) -> String {
        self.features.to_owned()
    }

    /// Which one it is.
    pub const fn kind(&self) -> KernelKind {
        self.kind
    }

    /// Attention of one token for the query heads of one kv head, see [`Segment`]. `queries` and `out` hold one vector of
    /// `head_dim` per query head; `weights`, where wanted, receives the softmax weights (rows x query heads).
    ///
    /// Allocates nothing (but in the scalar kernel). Shapes are checked; finite numbers are the caller's word (caches
    /// refuse others when they are appended).
    pub fn sparse_decode(
        &self,
        queries: &[f32],
        head_dim: usize,
        segments: &[Segment<'_>],
        scale: f32,
        out: &mut [f32],
        weights: Option<&mut [f32]>,
    ) -> Result<(), KernelError> {
        self.decode(queries, head_dim, segments, scale, out, weights).map(|_| ())
    }

    /// As [`sparse_decode`](Self::sparse_decode); false if a score or a result is not finite.
    #[inline]
    pub(super) fn decode(
        &self,
        queries: &[f32],
        head_dim: usize,
        segments: &[Segment<'_>],
        scale: f32,
        out: &mut [f32],
        weights: Option<&mut [f32]>,
    ) -> Result<bool, KernelError> {
        if head_dim == 0 {
            return Err(KernelError::Zero("head_dim"));
        }
        if queries.is_empty() || !queries.len().is_multiple_of(head_dim) {
            return Err(KernelError::Ragged { what: "queries", got: queries.len(), of: head_dim });
        }
        if out.len() != queries.len() {
            return Err(KernelError::Shape { what: "out", expected: queries.len(), got: out.len() });
        }
        let group = queries.len() / head_dim;
        let mut rows = 0usize;
        for segment in segments {
            segment.check(head_dim)?;
            // A stride of 0 makes any number of rows fit.
            rows = rows.saturating_add(segment.len);
        }
        if let Some(weights) = &weights {
            let expected = rows.saturating_mul(group);
            if weights.len() != expected {
                return Err(KernelError::Shape { what: "weights", expected, got: weights.len() });
            }
        }
        // SAFETY: shapes are checked above; a kernel is only handed out where it runs.
        Ok(unsafe { (self.functions.sparse_decode)(queries, head_dim, segments, scale, out, weights) })
    }

    /// Sum of products of two vectors of the same length.
    pub fn dot(&self, a: &[f32], b: &[f32]) -> Result<f32, KernelError> {
        same("b", a.len(), b.len())?;
        // SAFETY: as above.
        Ok(unsafe { (self.functions.dot)(a, b) })
    }

    /// Product of a vector with quantised values of the same length.
    pub fn dot_q8(&self, a: &[f32], b: &[BlockQ8]) -> Result<f32, KernelError> {
        same("blocks", blocks_for(a.len()), b.len())?;
        // SAFETY: as above.
        Ok(unsafe { (self.functions.dot_q8)(a, b) })
    }

    /// Product of a vector with quantised values of the same length.
    pub fn dot_q4(&self, a: &[f32], b: &[BlockQ4]) -> Result<f32, KernelError> {
        same("blocks", blocks_for(a.len()), b.len())?;
        // SAFETY: as above.
        Ok(unsafe { (self.functions.dot_q4)(a, b) })
    }

    /// `y = x W` for several rows x at once: x is rows x `inputs`, W `inputs` x outputs, y rows x outputs, row-major.
    pub fn matmul(&self, x: &[f32], w: &[f32], inputs: usize, y: &mut [f32]) -> Result<(), KernelError> {
        check_matmul(x.len(), w.len(), inputs, y.len())?;
        // SAFETY: as above.
        unsafe { (self.functions.matmul)(x, w, inputs, y) };
        Ok(())
    }

    /// As [`matmul`](Self::matmul) with weights in half precision, read in place.
    pub fn matmul_f16(&self, x: &[f32], w: &[f16], inputs: usize, y: &mut [f32]) -> Result<(), KernelError> {
        check_matmul(x.len(), w.len(), inputs, y.len())?;
        // SAFETY: as above.
        unsafe { (self.functions.matmul_f16)(x, w, inputs, y) };
        Ok(())
    }

    /// Rounds to half precision, ties to even; beyond its range to infinity.
    pub fn to_f16(&self, from: &[f32], to: &mut [f16]) -> Result<(), KernelError> {
        same("to", from.len(), to.len())?;
        // SAFETY: as above.
        unsafe { (self.functions.to_f16)(from, to) };
        Ok(())
    }

    /// Reads half precision.
    pub fn from_f16(&self, from: &[f16], to: &mut [f32]) -> Result<(), KernelError> {
        same("to", from.len(), to.len())?;
        // SAFETY: as above.
        unsafe { (self.functions.from_f16)(from, to) };
        Ok(())
    }

    /// Quantises finite values, see [`BlockQ8::quantize`].
    pub fn quantize_q8(&self, from: &[f32], to: &mut [BlockQ8]) -> Result<(), KernelError> {
        same("to", blocks_for(from.len()), to.len())?;
        // SAFETY: as above.
        unsafe { (self.functions.quantize_q8)(from, to) };
        Ok(())
    }

    /// Quantises finite values, see [`BlockQ4::quantize`].
    pub fn quantize_q4(&self, from: &[f32], to: &mut [BlockQ4]) -> Result<(), KernelError> {
        same("to", blocks_for(from.len()), to.len())?;
        // SAFETY: as above.
        unsafe { (self.functions.quantize_q4)(from, to) };
        Ok(())
    }
}

fn same(what: &'static str, expected: usize, got: usize) -> Result<(), KernelError> {
    if expected == got { Ok(()) } else { Err(KernelError::Shape { what, expected, got }) }
}

fn check_matmul(x: usize, w: usize, inputs: usize, y: usize) -> Result<(), KernelError> {
    if inputs == 0 {
        return Err(KernelError::Zero("inputs"));
    }
    if w == 0 {
        return Err(KernelError::Zero("outputs"));
    }
    for (what, got) in [("x", x), ("weights", w)] {
        if !got.is_multiple_of(inputs) {
            return Err(KernelError::Ragged { what, got, of: inputs });
        }
    }
    same("y", x / inputs * (w / inputs), y)
}
