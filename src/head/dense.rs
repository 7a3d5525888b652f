//! Exact attention over everything cached: the yardstick of the sparse patterns.

use super::sparse::Core;
use super::{TemporalError, TemporalHeadConfig, Tensor3};
use crate::kernel::{Kernel, Segment};

/// The dense head. Its cache may slide, then it is exact over what is left.
#[derive(Debug, Clone)]
pub struct DenseHead {
    core: Core,
}

impl DenseHead {
    /// A head with the best kernel of this processor.
    ///
    /// # Errors
    /// [`TemporalError::Config`] for a configuration that is not valid.
    pub fn new(config: &TemporalHeadConfig) -> Result<Self, TemporalError> {
        Self::with_kernel(config, Kernel::select(None)?)
    }

    /// A head with a kernel of choice.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_kernel(config: &TemporalHeadConfig, kernel: &'static Kernel) -> Result<Self, TemporalError> {
        Ok(Self { core: Core::new(config, kernel)? })
    }

    pub(super) const fn core(&self) -> &Core {
        &self.core
    }

    /// Attention of a whole window, shapes as for the sparse head; causal where the configuration says so.
    ///
    /// # Errors
    /// [`TemporalError::Shape`] and [`TemporalError::NotFinite`].
    pub fn forward(&self, q: &Tensor3, k: &Tensor3, v: &Tensor3) -> Result<Tensor3, TemporalError> {
        let (core, c) = (&self.core, self.core.config());
        let seq = core.check_window(q, k, v)?;
        let mut out = Tensor3::zeros(seq, c.q_heads, c.head_dim)?;
        let group = c.group() * c.head_dim;
        for (i, out) in out.as_mut_slice().chunks_exact_mut(c.q_heads * c.head_dim).enumerate() {
            let rows = if c.causal { i + 1 } else { seq };
            for head in 0..c.kv_heads {
                let segments = [Segment::tokens(core.window_rows(k, v, head, 0), rows)];
                let queries = &q.position(i)[head * group..][..group];
                let out = &mut out[head * group..][..group];
                core.kernel().sparse_decode(queries, c.head_dim, &segments, c.scale(), out, None)?;
            }
        }
        Ok(out)
    }
}
