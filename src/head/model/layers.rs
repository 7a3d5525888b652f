//! The arithmetic around the attention: normalisation, projections, residual, embedding. Rows are tokens.

use super::{HeadOutput, ModelError};
use crate::head::schema::TOKEN_SCHEMA;
use crate::head::weights::{EMBEDDING_DIM, FLAG_PROJECTION, WeightBlob, WeightTensor, WeightValues};
use crate::kernel::Kernel;

/// Added to the mean square before its root is taken.
const RMS_EPSILON: f32 = 1e-5;

#[derive(Debug)]
pub(super) struct Weights {
    pub(super) blob: WeightBlob,
    pub(super) kernel: &'static Kernel,
    pub(super) mean: Vec<f32>,
    /// 1 / standard deviation.
    pub(super) scale: Vec<f32>,
    /// A row per layer and a final one, single precision.
    pub(super) gains: Vec<f32>,
}

/// A row per token each.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) residual: Vec<f32>,
    pub(super) normed: Vec<f32>,
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    pub(super) attended: Vec<f32>,
    pub(super) hidden: Vec<f32>,
    pub(super) failed: Vec<bool>,
}

impl Weights {
    /// Tokens in a slice.
    pub(super) fn count(&self, tokens: &[f32]) -> Result<usize, ModelError> {
        let input = self.mean.len();
        if tokens.is_empty() || !tokens.len().is_multiple_of(input) {
            let expected = tokens.len().next_multiple_of(input).max(input);
            return Err(ModelError::Shape { what: "numbers of the tokens", expected, got: tokens.len() });
        }
        Ok(tokens.len() / input)
    }

    /// (x - mean) / std.
    pub(super) fn normalise(&self, tokens: &[f32], out: &mut Vec<f32>) -> Result<(), ModelError> {
        out.clear();
        for (token, row) in tokens.chunks_exact(self.mean.len()).enumerate() {
            out.extend(row.iter().zip(&self.mean).zip(&self.scale).map(|((x, mean), scale)| (x - mean) * scale));
            let done = &out[token * self.mean.len()..];
            if let Some(feature) = done.iter().position(|x| !x.is_finite()) {
                let name = TOKEN_SCHEMA.features.get(feature).map_or("", |f| f.name);
                return Err(ModelError::NotFinite { token, feature, name });
            }
        }
        Ok(())
    }

    /// Residual -> normed -> queries, keys, values.
    pub(super) fn project_in(&self, layer: usize, s: &mut Scratch) -> Result<(), ModelError> {
        self.norm(layer, &s.residual, &mut s.normed);
        self.product(WeightTensor::Wq(layer), &s.normed, &mut s.q)?;
        self.product(WeightTensor::Wk(layer), &s.normed, &mut s.k)?;
        self.product(WeightTensor::Wv(layer), &s.normed, &mut s.v)
    }

    /// Attention output -> added to the residual.
    pub(super) fn project_out(&self, layer: usize, s: &mut Scratch) -> Result<(), ModelError> {
        self.product(WeightTensor::Wo(layer), &s.attended, &mut s.normed)?;
        s.residual.iter_mut().zip(&s.normed).for_each(|(x, y)| *x += y);
        Ok(())
    }

    /// Residual -> logits; last attention output -> embedding.
    pub(super) fn finish(&self, s: &mut Scratch, n: usize, out: &mut HeadOutput) -> Result<(), ModelError> {
        let header = self.blob.header();
        self.norm(usize::from(header.n_layers), &s.residual, &mut s.normed);
        (out.tokens, out.classes) = (n, usize::from(header.n_classes));
        self.product(WeightTensor::Classifier, &s.normed, &mut out.logits)?;
        out.embedding_dim = 0;
        out.embeddings.clear();
        if header.has(FLAG_PROJECTION) {
            self.product(WeightTensor::Projection1, &s.attended, &mut s.hidden)?;
            s.hidden.iter_mut().for_each(|x| *x = x.max(0.0));
            self.product(WeightTensor::Projection2, &s.hidden, &mut out.embeddings)?;
            out.embedding_dim = EMBEDDING_DIM;
            out.embeddings.chunks_exact_mut(EMBEDDING_DIM).for_each(to_unit_length);
        }
        Ok(())
    }

    /// RMSNorm of each row with the gain of a layer (the number of layers means the final one).
    pub(super) fn norm(&self, layer: usize, x: &[f32], out: &mut Vec<f32>) {
        let input = self.mean.len();
        let gain = &self.gains[layer * input..][..input];
        out.clear();
        for row in x.chunks_exact(input) {
            let square = row.iter().map(|x| x * x).sum::<f32>() / input as f32;
            let scale = 1.0 / (square + RMS_EPSILON).sqrt();
            out.extend(row.iter().zip(gain).map(|(x, gain)| x * scale * gain));
        }
    }

    /// `y = x W` for all rows of x, in the precision of the file.
    pub(super) fn product(&self, tensor: WeightTensor, x: &[f32], y: &mut Vec<f32>) -> Result<(), ModelError> {
        let (inputs, outputs) = tensor.shape(self.blob.header());
        resize(y, x.len() / inputs * outputs);
        match self.blob.tensor(tensor).expect("the header has it") {
            WeightValues::F32(w) => self.kernel.matmul(x, w, inputs, y)?,
            WeightValues::F16(w) => self.kernel.matmul_f16(x, w, inputs, y)?,
        }
        Ok(())
    }
}

/// Sets the length; what was there is written over by the caller.
pub(super) fn resize(v: &mut Vec<f32>, len: usize) {
    v.resize(len, 0.0);
}

/// Divides by the Euclidean norm; zeros, and what is too small to have a direction, become zeros.
pub(super) fn to_unit_length(v: &mut [f32]) {
    // Scaled by the largest magnitude first, so that squares neither overflow nor vanish.
    let most = v.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    if !(most.is_finite() && most >= f32::MIN_POSITIVE) {
        return v.fill(0.0);
    }
    v.iter_mut().for_each(|x| *x /= most);
    let norm = v.iter().map(|x| x * x).sum::<f32>().sqrt();
    v.iter_mut().for_each(|x| *x /= norm);
}
