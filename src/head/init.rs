//! Weights to begin with: random, the same for the same seed, and marked untrained.
//!
//! Every matrix is uniform with mean 0 and variance 1/inputs (LeCun), the one before the ReLU 2/inputs (He), and all gains
//! are 1: tokens of unit variance then give queries, keys, values, attention scores and class logits of unit variance,
//! in every layer, whatever the shape. Uniform numbers need nothing but multiplication and a square root, so a seed
//! gives the same bytes on every processor.
//!
//! LeCun et al., "Efficient BackProp" (1998); He et al., "Delving deep into rectifiers" (2015).

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::schema::TOKEN_SCHEMA;
use super::weights::{Normalisation, SchemaId, WeightDtype, WeightError, WeightInfo, WeightTensor, WeightTensors};

/// Shape and seed of new weights for tokens of [`TOKEN_SCHEMA`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitSettings {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Layers.
    pub layers: u16,
    /// Query heads.
    pub q_heads: u16,
    /// Key/value heads; divides the query heads.
    pub kv_heads: u16,
    /// Numbers per head.
    pub head_dim: u16,
    /// Class names.
    pub classes: Vec<String>,
    /// Half precision (for the note in the file; precision is chosen when it is written).
    pub dtype: WeightDtype,
}

impl Default for InitSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            layers: 2,
            q_heads: 4,
            kv_heads: 1,
            head_dim: 32,
            classes: class_names(4),
            dtype: WeightDtype::F32,
        }
    }
}

impl InitSettings {
    /// The command that writes these weights.
    pub fn command(&self) -> String {
        format!(
            "aetherd head init --seed {} --layers {} --q-heads {} --kv-heads {} --head-dim {} --classes {}{}",
            self.seed,
            self.layers,
            self.q_heads,
            self.kv_heads,
            self.head_dim,
            self.classes.len(),
            if self.dtype == WeightDtype::F16 { " --f16" } else { "" }
        )
    }
}

/// `class_0`, `class_1`, …: an untrained classifier knows no activities, so its classes have no better names.
pub fn class_names(n: u16) -> Vec<String> {
    (0..n).map(|i| format!("class_{i}")).collect()
}

/// New weights with gains, projection head and an information block that says `trained: false`.
///
/// # Errors
/// [`WeightError`] where a dimension is 0, the heads do not divide, or the network does not fit the format.
pub fn init(settings: &InitSettings) -> Result<WeightTensors, WeightError> {
    let input_dim = TOKEN_SCHEMA.features.len();
    let n_classes = u16::try_from(settings.classes.len()).map_err(|_| WeightError::Dimension {
        what: "classes",
        got: settings.classes.len() as u64,
        expected: format!("at most {}", u16::MAX),
    })?;
    let mut weights = WeightTensors {
        input_dim: input_dim as u16,
        n_q_heads: settings.q_heads,
        n_kv_heads: settings.kv_heads,
        head_dim: settings.head_dim,
        n_layers: settings.layers,
        n_classes,
        payload: Vec::new(),
        gains: Some(Vec::new()),
        projection: Some(Vec::new()),
        info: Some(WeightInfo {
            schema: SchemaId::of(&TOKEN_SCHEMA),
            classes: settings.classes.clone(),
            // Nothing has been measured yet: features go in as they are.
            normalisation: Normalisation::identity(input_dim),
            trained: false,
            trained_on: None,
            scores: None,
            seed: Some(settings.seed),
            command: Some(settings.command()),
        }),
    };
    let header = weights.header(settings.dtype)?;
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let (mut gains, mut projection) = (Vec::new(), Vec::new());
    for tensor in WeightTensor::all(&header) {
        let (rows, columns) = tensor.shape(&header);
        let n = rows * columns;
        match tensor {
            WeightTensor::Gain(_) | WeightTensor::FinalGain => gains.extend(std::iter::repeat_n(1.0, n)),
            WeightTensor::Projection1 => fill(&mut rng, &mut projection, n, 2.0 / rows as f32),
            WeightTensor::Projection2 => fill(&mut rng, &mut projection, n, 1.0 / rows as f32),
            _ => fill(&mut rng, &mut weights.payload, n, 1.0 / rows as f32),
        }
    }
    (weights.gains, weights.projection) = (Some(gains), Some(projection));
    Ok(weights)
}

/// Appends `n` uniform numbers with mean 0 and the given variance.
fn fill(rng: &mut ChaCha8Rng, out: &mut Vec<f32>, n: usize, variance: f32) {
    let bound = (3.0 * variance).sqrt();
    // 24 bits at the middle of their interval: symmetric, and exact in single precision.
    out.extend((0..n).map(|_| bound * (((rng.next_u32() >> 8) as f32 + 0.5) * (1.0 / (1 << 23) as f32) - 1.0)));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::head::weights::WeightBlob;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let bytes =
            |seed| init(&InitSettings { seed, ..Default::default() }).unwrap().to_bytes(WeightDtype::F32).unwrap();
        assert_eq!(bytes(7), bytes(7));
        assert_ne!(bytes(7), bytes(8));
        // Pinned, so that no version of a library changes the weights behind a seed.
        let blob = WeightBlob::parse(&bytes(7)).unwrap();
        let wq = blob.tensor(WeightTensor::Wq(0)).unwrap();
        let first: Vec<u32> = (0..3).map(|i| wq.get(i).unwrap().to_bits()).collect();
        assert_eq!(first, PINNED, "{first:#010x?}");
    }
    const PINNED: [u32; 3] = [0xbe9f_9fd1, 0xbe97_bc23, 0xbe8c_fa76];

    #[test]
    fn every_matrix_has_the_variance_that_keeps_activations_at_one() {
        let weights = init(&InitSettings { head_dim: 64, classes: class_names(40), ..Default::default() }).unwrap();
        let blob = WeightBlob::parse(&weights.to_bytes(WeightDtype::F32).unwrap()).unwrap();
        for (tensor, values) in blob.tensors() {
            let (rows, _) = tensor.shape(blob.header());
            let v = values.to_f32();
            let mean = v.iter().sum::<f32>() / v.len() as f32;
            let variance = v.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / v.len() as f32 * rows as f32;
            let expected = match tensor {
                WeightTensor::Gain(_) | WeightTensor::FinalGain => {
                    assert!(v.iter().all(|x| *x == 1.0));
                    continue;
                }
                WeightTensor::Projection1 => 2.0,
                _ => 1.0,
            };
            assert!((variance / expected - 1.0).abs() < 0.12, "{tensor}: {variance} of {expected}");
            assert!(mean.abs() < 4.0 / (v.len() as f32 * rows as f32).sqrt() * expected, "{tensor}: mean {mean}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_filled() {
        let wrong = |s: InitSettings| init(&s).unwrap_err().to_string();
        let d = InitSettings::default;
        assert!(wrong(InitSettings { q_heads: 3, kv_heads: 2, ..d() }).contains("n_kv_heads is 2"));
        assert!(wrong(InitSettings { layers: 0, ..d() }).contains("n_layers is 0"));
        let huge = InitSettings { q_heads: 256, kv_heads: 256, head_dim: 256, layers: 65_535, ..d() };
        assert!(wrong(huge).contains("fit the format"));
    }
}
