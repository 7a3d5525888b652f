//! Numbers out of bytes, without going through `str`.

use super::super::{CsiFrame, Reject};

/// A whole field as a decimal number; at most ten digits, so that it cannot overflow.
pub(super) fn integer(field: &[u8]) -> Option<i64> {
    let (negative, digits) = match field {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, field),
    };
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let mut value = 0i64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// An unsigned number of up to eighteen digits.
pub(super) fn long_unsigned(field: &[u8]) -> Option<i64> {
    if field.is_empty() || field.len() > 18 || !field.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(field.iter().fold(0i64, |value, &byte| value * 10 + i64::from(byte - b'0')))
}

/// A field as a number within `min..=max`.
pub(super) fn within(field: &[u8], min: i64, max: i64) -> Result<i64, Reject> {
    integer(field).filter(|value| (min..=max).contains(value)).ok_or(Reject::BadNumber)
}

/// A 32-bit counter, printed signed or unsigned.
pub(super) fn counter(field: &[u8]) -> Result<u32, Reject> {
    within(field, i64::from(i32::MIN), i64::from(u32::MAX)).map(|value| value as u32)
}

/// What separates the numbers of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    /// A comma; spaces around it do no harm.
    Comma,
    /// Spaces, one after the last number too.
    Space,
}

/// Reads the numbers of an array (without its brackets).
pub(super) fn array(text: &[u8], separator: Separator, values: &mut Vec<i16>) -> Result<(), Reject> {
    let mut at = 0;
    loop {
        while at < text.len() && text[at] == b' ' {
            at += 1;
        }
        if at == text.len() {
            // Nothing after a comma: a number is missing.
            return if separator == Separator::Space || values.is_empty() { Ok(()) } else { Err(Reject::BadNumber) };
        }
        let negative = text[at] == b'-';
        at += usize::from(negative);
        let start = at;
        let mut value = 0i32;
        while at < text.len() {
            let digit = text[at].wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            // Six digits at most are looked at below, so this cannot overflow before it is refused.
            value = value.wrapping_mul(10).wrapping_add(i32::from(digit));
            at += 1;
        }
        let digits = at - start;
        if digits == 0 || digits > 5 {
            return Err(damage(text, start));
        }
        let value = if negative { -value } else { value };
        if values.len() == CsiFrame::MAX_VALUES {
            return Err(Reject::LengthMismatch);
        }
        values.push(i16::try_from(value).map_err(|_| Reject::ValueRange)?);
        if separator == Separator::Comma {
            while at < text.len() && text[at] == b' ' {
                at += 1;
            }
        }
        if at == text.len() {
            return Ok(());
        }
        match (separator, text[at]) {
            (Separator::Comma, b',') | (Separator::Space, b' ') => at += 1,
            _ => return Err(damage(text, at)),
        }
    }
}

/// Text of another line inside an array, or a number that is none.
fn damage(text: &[u8], at: usize) -> Reject {
    if foreign(&text[at.min(text.len())..]) { Reject::Interleaved } else { Reject::BadNumber }
}

/// Whether there is anything that no array of numbers holds.
pub(super) fn foreign(text: &[u8]) -> bool {
    text.iter().any(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b',' | b' ' | b'[' | b']' | b'"'))
}

/// Refuses values that eight signed bits do not hold.
pub(super) fn check_bytes(values: &[i16]) -> Result<(), Reject> {
    if values.iter().all(|v| (-128..=127).contains(v)) { Ok(()) } else { Err(Reject::ValueRange) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], separator: Separator) -> Result<Vec<i16>, Reject> {
        let mut values = Vec::new();
        array(text, separator, &mut values).map(|()| values)
    }

    #[test]
    fn arrays() {
        use Separator::{Comma, Space};
        assert_eq!(read(b"1,-2,300", Comma), Ok(vec![1, -2, 300]));
        assert_eq!(read(b"1, -2 , 3", Comma), Ok(vec![1, -2, 3]));
        assert_eq!(read(b"1 -2 3 ", Space), Ok(vec![1, -2, 3]));
        assert_eq!(read(b"", Comma), Ok(vec![]));
        for (text, separator, reject) in [
            (&b"1,,2"[..], Comma, Reject::BadNumber),
            (b"1,2,", Comma, Reject::BadNumber),
            (b"1-2", Comma, Reject::BadNumber),
            (b"1,--2", Comma, Reject::BadNumber),
            (b"1,2 3", Comma, Reject::BadNumber),
            (b"1,2", Space, Reject::BadNumber),
            (b"1,2I (33) wifi: x,3", Comma, Reject::Interleaved),
            (b"1,40000", Comma, Reject::ValueRange),
            (b"1,123456789012345", Comma, Reject::BadNumber),
        ] {
            assert_eq!(read(text, separator), Err(reject), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn fields() {
        assert_eq!(integer(b"-93"), Some(-93));
        assert_eq!(integer(b"4294967295"), Some(4_294_967_295));
        for bad in [&b""[..], b"-", b"+1", b"1.5", b"12345678901", b"1a"] {
            assert_eq!(integer(bad), None);
        }
        assert_eq!(counter(b"-1"), Ok(u32::MAX));
        assert_eq!(counter(b"4294967296"), Err(Reject::BadNumber));
    }
}
