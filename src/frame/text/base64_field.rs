//! The array of an esp-radar line as base64 of the driver's signed bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::{CsiFrame, Reject};

/// Decodes into `values`, which must come to `len` bytes.
pub(super) fn decode(field: &[u8], len: usize, values: &mut Vec<i16>) -> Result<(), Reject> {
    let field = field.strip_prefix(b"\"").unwrap_or(field);
    let field = field.strip_suffix(b"\"").unwrap_or(field);
    let mut bytes = [0u8; CsiFrame::MAX_VALUES + 3];
    if field.len() / 4 * 3 > bytes.len() {
        return Err(Reject::LengthMismatch);
    }
    let n = STANDARD.decode_slice(field, &mut bytes).map_err(|_| Reject::BadBase64)?;
    if n != len {
        return Err(Reject::LengthMismatch);
    }
    values.extend(bytes[..n].iter().map(|&byte| i16::from(byte as i8)));
    Ok(())
}
