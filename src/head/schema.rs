//! The feature token by name: what each of its numbers is, so that weights trained on one meaning are never fed another.
//!
//! The numbers themselves are computed elsewhere; here stands what they are called, their unit and how they are scaled
//! before the statistics of a weight file ([`WeightInfo`](super::weights::WeightInfo)) are applied.

/// One number of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Name, unique within the schema.
    pub name: &'static str,
    /// Unit before scaling.
    pub unit: &'static str,
    /// Scaling applied when the feature is computed.
    pub normalisation: &'static str,
}

/// All numbers of a token, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureSchema {
    /// Name with a version number.
    pub name: &'static str,
    /// 64-bit FNV-1a hash over the features' names, units and scalings; changes whenever one of them or the order does.
    pub hash: u64,
    /// The numbers.
    pub features: &'static [Feature],
}

impl FeatureSchema {
    /// Names the features and computes their hash.
    pub const fn new(name: &'static str, features: &'static [Feature]) -> Self {
        Self { name, hash: hash(features), features }
    }

    /// The hash as weight files carry it: 16 lower-case hexadecimal digits.
    pub fn hash_text(&self) -> String {
        format!("{:016x}", self.hash)
    }
}

/// What a change is measured in, and how it is scaled.
const NOISE: &str = "receiver-noise variance";
const LOG: &str = "ln(1 + x)";

const fn change(name: &'static str) -> Feature {
    Feature { name, unit: NOISE, normalisation: LOG }
}

/// The schema of this version: 16 numbers per track and fused frame.
///
/// `change_L_cN` is the squared change over the lag L of cosine component N of the gain-free amplitude profile across
/// the bins, halved (so that noise alone gives 1), mean over the track's links by their share. `link_spread` is the
/// participation ratio of the links' change energies, from 1/links to 1. `since_last` is the time since the track's last
/// token, so that gaps are visible.
pub static TOKEN_SCHEMA: FeatureSchema = FeatureSchema::new(
    "aetherd-token-1",
    &[
        change("change_50ms_c1"),
        change("change_50ms_c2"),
        change("change_50ms_c3"),
        change("change_100ms_c1"),
        change("change_100ms_c2"),
        change("change_100ms_c3"),
        change("change_200ms_c1"),
        change("change_200ms_c2"),
        change("change_200ms_c3"),
        change("change_400ms_c1"),
        change("change_400ms_c2"),
        change("change_400ms_c3"),
        Feature { name: "link_spread", unit: "share", normalisation: "none" },
        Feature { name: "speed", unit: "m/s", normalisation: "0 where unknown" },
        Feature { name: "placed", unit: "flag", normalisation: "1 with a position, 0 without" },
        Feature { name: "since_last", unit: "nominal token periods", normalisation: "ln(x)" },
    ],
);

const fn hash(features: &[Feature]) -> u64 {
    // Canonical text: per feature "name\tunit\tscaling\n".
    let mut state = 0xcbf2_9ce4_8422_2325;
    let mut i = 0;
    while i < features.len() {
        state = fnv(state, features[i].name.as_bytes(), b'\t');
        state = fnv(state, features[i].unit.as_bytes(), b'\t');
        state = fnv(state, features[i].normalisation.as_bytes(), b'\n');
        i += 1;
    }
    state
}

/// Goes on with a 64-bit FNV-1a hash over `bytes` and the byte that ends them.
const fn fnv(mut state: u64, bytes: &[u8], end: u8) -> u64 {
    let mut i = 0;
    while i <= bytes.len() {
        let byte = if i < bytes.len() { bytes[i] } else { end };
        state = (state ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a_of_the_canonical_text() {
        // Published vector of 64-bit FNV-1a: "foobar" -> 85944171f73967e8.
        assert_eq!(fnv(0xcbf2_9ce4_8422_2325, b"fooba", b'r'), 0x8594_4171_f739_67e8);
        let text: String =
            TOKEN_SCHEMA.features.iter().map(|f| format!("{}\t{}\t{}\n", f.name, f.unit, f.normalisation)).collect();
        let (body, end) = text.as_bytes().split_at(text.len() - 1);
        assert_eq!(TOKEN_SCHEMA.hash, fnv(0xcbf2_9ce4_8422_2325, body, end[0]));
    }

    #[test]
    fn the_schema_of_version_1_never_changes() {
        assert_eq!(TOKEN_SCHEMA.features.len(), 16);
        assert_eq!(TOKEN_SCHEMA.hash_text(), "7f96711c751b32f0", "weights carry it: a change needs a new name");
        let mut names: Vec<_> = TOKEN_SCHEMA.features.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 16);
    }

    #[test]
    fn order_unit_and_scaling_count() {
        static A: [Feature; 2] = [change("a"), change("b")];
        static B: [Feature; 2] = [change("b"), change("a")];
        static C: [Feature; 2] = [change("a"), Feature { name: "b", unit: "m", normalisation: LOG }];
        static D: [Feature; 2] = [change("a"), Feature { name: "b", unit: NOISE, normalisation: "none" }];
        let hashes = [&A, &B, &C, &D].map(|f| hash(f));
        for i in 0..4 {
            for j in 0..i {
                assert_ne!(hashes[i], hashes[j]);
            }
        }
    }
}
