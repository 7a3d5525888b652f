//! What the numbers are for: the JSON block.

use serde::{Deserialize, Serialize};

use super::{WeightBlobHeader, WeightError};
use crate::head::schema::FeatureSchema;

/// Longest JSON block, bytes.
pub(super) const INFO_LIMIT: usize = 64 * 1024;

/// Deepest nesting of the JSON block; what we write has 3 levels.
const DEPTH_LIMIT: usize = 16;

/// Which tokens the weights understand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaId {
    /// Name of the [`FeatureSchema`].
    pub name: String,
    /// Its hash, 16 hexadecimal digits.
    pub hash: String,
}

impl SchemaId {
    /// The id of a schema.
    pub fn of(schema: &FeatureSchema) -> Self {
        Self { name: schema.name.to_owned(), hash: schema.hash_text() }
    }
}

/// Mean and standard deviation of each feature over the training tokens: the network sees (x - mean) / std.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Normalisation {
    /// Means, one per feature.
    pub mean: Vec<f32>,
    /// Standard deviations, one per feature, above 0.
    pub std: Vec<f32>,
}

impl Normalisation {
    /// Leaves tokens of `n` features as they are.
    pub fn identity(n: usize) -> Self {
        Self { mean: vec![0.0; n], std: vec![1.0; n] }
    }
}

/// Everything about the weights that is not a weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WeightInfo {
    /// Feature schema of the tokens.
    pub schema: SchemaId,
    /// Class names, in the order of the logits.
    pub classes: Vec<String>,
    /// Statistics of the features.
    pub normalisation: Normalisation,
    /// False as long as the numbers are random: then neither embedding nor classes mean anything.
    pub trained: bool,
    /// What it was trained on, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_on: Option<String>,
    /// How it scored, in words, with the command that gives the figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<String>,
    /// Seed of the random numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The command that wrote the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl WeightInfo {
    /// Reads the block; its length has been checked. Unknown fields are left alone, so that later versions can add some.
    pub(super) fn parse(bytes: &[u8], header: &WeightBlobHeader) -> Result<Self, WeightError> {
        let depth = depth(bytes);
        if depth > DEPTH_LIMIT {
            let expected = format!("at most {DEPTH_LIMIT} levels");
            return Err(WeightError::Info { what: "nesting of the JSON", expected, got: depth.to_string() });
        }
        let info: Self = serde_json::from_slice(bytes).map_err(WeightError::Json)?;
        info.check(header)?;
        Ok(info)
    }

    /// Checks lengths against the shape, and that the statistics can be used.
    pub(super) fn check(&self, header: &WeightBlobHeader) -> Result<(), WeightError> {
        let length = |what, expected: u16, got: usize| {
            if usize::from(expected) == got {
                return Ok(());
            }
            Err(WeightError::Info { what, expected: format!("{expected} of them"), got: got.to_string() })
        };
        length("classes", header.n_classes, self.classes.len())?;
        length("means", header.input_dim, self.normalisation.mean.len())?;
        length("standard deviations", header.input_dim, self.normalisation.std.len())?;
        let wrong =
            |what, expected: &str, got: String| Err(WeightError::Info { what, expected: expected.to_owned(), got });
        if let Some(mean) = self.normalisation.mean.iter().find(|m| !m.is_finite()) {
            return wrong("mean", "a finite number", mean.to_string());
        }
        // Its inverse must be finite too.
        if let Some(std) = self.normalisation.std.iter().find(|s| !(s.is_finite() && **s >= 1e-30)) {
            return wrong("standard deviation", "a finite number of at least 1e-30", std.to_string());
        }
        let mut names: Vec<&str> = self.classes.iter().map(String::as_str).collect();
        names.sort_unstable();
        if names.first() == Some(&"") {
            return wrong("class name", "a word", "an empty one".to_owned());
        }
        if let Some(pair) = names.windows(2).find(|w| w[0] == w[1]) {
            return wrong("class names", "different ones", format!("`{}` twice", pair[0]));
        }
        if self.trained && self.trained_on.as_deref().is_none_or(|t| t.trim().is_empty()) {
            return wrong(
                "trained_on",
                "what the weights were trained on, since `trained` is true",
                "nothing".to_owned(),
            );
        }
        Ok(())
    }

    /// Refuses weights for tokens of another meaning.
    ///
    /// # Errors
    /// [`WeightError::Schema`] with both names; [`WeightError::Info`] if the schema is ours and the width is not.
    pub fn check_schema(&self, ours: &FeatureSchema) -> Result<(), WeightError> {
        if self.schema.hash.eq_ignore_ascii_case(&ours.hash_text()) {
            let (expected, got) = (ours.features.len(), self.normalisation.mean.len());
            if expected == got {
                return Ok(());
            }
            let expected = format!("{expected} by its schema `{}`", ours.name);
            return Err(WeightError::Info { what: "features of a token", expected, got: got.to_string() });
        }
        Err(WeightError::Schema {
            theirs: self.schema.name.clone(),
            their_hash: self.schema.hash.clone(),
            ours: ours.name,
            our_hash: ours.hash_text(),
        })
    }
}

/// Deepest nesting of brackets and braces outside of strings; right for valid JSON, and harmless for anything else.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut most, mut quoted, mut escaped) = (0usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                most = most.max(depth);
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_outside_of_strings() {
        for (json, levels) in
            [("1", 0), ("[]", 1), ("[[1],{}]", 2), (r#"{"[[[":"{{{\"[["}"#, 1), (r#"["\\",[[]]]"#, 3), ("]]]]", 0)]
        {
            assert_eq!(depth(json.as_bytes()), levels, "{json}");
        }
    }
}
