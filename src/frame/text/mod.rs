//! Lines of text: which format a line is of, and what to do with the dirt around it.
//!
//! The format is chosen per line by its prefix, the number of its fields and the style of its brackets, never from a
//! header line, which is printed once after boot and lost to whoever attaches later. A console line may carry log text,
//! colour codes and a prompt before the data, and two lines are glued where a newline was lost: what is whole is taken,
//! what is damaged is refused.

pub(super) mod albany;
mod array_list;
mod base64_field;
pub(super) mod csi_data;
mod csi_raw;
pub(super) mod ialr;
mod scan;

use super::shape::Shape;
use super::{CsiFrame, Other, Reject};

/// What was found at the start of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Frame(Shape),
    Other(Other),
    Reject(Reject),
}

impl From<Result<Shape, Reject>> for Found {
    fn from(result: Result<Shape, Reject>) -> Self {
        match result {
            Ok(shape) => Self::Frame(shape),
            Err(reject) => Self::Reject(reject),
        }
    }
}

const CSI_DATA: &[u8] = b"CSI_DATA,";
const CSI_RAW: &[u8] = b"CSIRAW ";
const RADAR: &[u8] = b"RADAR_DADA,";
const DEVICE: &[u8] = b"DEVICE_INFO,";

/// Removes ANSI control sequences, into `clean` where there are any.
pub(super) fn without_colours<'a>(line: &'a [u8], clean: &'a mut Vec<u8>) -> &'a [u8] {
    if !line.contains(&0x1b) {
        return line;
    }
    clean.clear();
    let mut rest = line;
    while let Some(at) = rest.iter().position(|&byte| byte == 0x1b) {
        clean.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(sequence) = rest.strip_prefix(b"[") {
            // Parameters, then one final letter; a cut sequence simply ends.
            let end = sequence.iter().position(|&byte| !matches!(byte, b'0'..=b'9' | b';' | b'?'));
            rest = match end {
                Some(end) if matches!(sequence[end], 0x40..=0x7e) => &sequence[end + 1..],
                Some(end) => &sequence[end..],
                None => &[],
            };
        }
    }
    clean.extend_from_slice(rest);
    clean
}

/// Where the next prefix of a known format begins.
fn find_prefix(text: &[u8]) -> Option<usize> {
    (0..text.len()).find(|&at| {
        matches!(text[at], b'C' | b'R' | b'D')
            && [CSI_DATA, CSI_RAW, RADAR, DEVICE].iter().any(|prefix| text[at..].starts_with(prefix))
    })
}

/// Reads what `text` begins with; gives that, and how many bytes it took.
pub(super) fn next(text: &[u8], frame: &mut CsiFrame) -> (Found, usize) {
    let skipped = text.len() - skip_prompt(text).len();
    let body = &text[skipped..];
    if body.starts_with(CSI_DATA) || body.starts_with(CSI_RAW) {
        let (found, consumed) = data(body, frame);
        return (found, skipped + consumed);
    }
    if body.is_empty() {
        return (Found::Other(Other::Blank), text.len());
    }
    if body.starts_with(RADAR) || body.starts_with(DEVICE) {
        let end = find_prefix(&body[1..]).map_or(body.len(), |at| at + 1);
        return (result_line(&body[..end]), skipped + end);
    }
    if is_header(body) {
        return (Found::Other(Other::Header), text.len());
    }
    if let Some(at) = find_prefix(body) {
        // Log text, or the end of a cut line, before the data.
        return (no_data(&body[..at]), skipped + at);
    }
    if body[0] == b'['
        && let Some(found) = array_list::line(body, frame)
    {
        return (found, text.len());
    }
    (no_data(body), text.len())
}

/// Leaves out white space, NULs and the console's prompt.
fn skip_prompt(mut text: &[u8]) -> &[u8] {
    loop {
        let trimmed = text.trim_ascii_start();
        let trimmed = trimmed.strip_prefix(b"\0").unwrap_or(trimmed);
        let trimmed = trimmed.strip_prefix(b"csi>").unwrap_or(trimmed);
        if trimmed.len() == text.len() {
            return text;
        }
        text = trimmed;
    }
}

/// A line that begins with the prefix of a data line.
fn data(body: &[u8], frame: &mut CsiFrame) -> (Found, usize) {
    let parse = |body: &[u8], frame: &mut CsiFrame| {
        if body.starts_with(CSI_RAW) { csi_raw::line(body, frame) } else { csi_data::line(body, frame) }
    };
    match parse(body, frame) {
        Ok((shape, consumed)) => (Found::Frame(shape), consumed),
        Err(reject) => match find_prefix(&body[1..]) {
            None => (Found::Reject(reject), body.len()),
            Some(at) => {
                // A second line was glued on. The reason is judged on the damaged part alone.
                let damaged = &body[..at + 1];
                frame.values.clear();
                match parse(damaged, frame) {
                    Ok((shape, _)) => (Found::Frame(shape), damaged.len()),
                    Err(reject) => (Found::Reject(reject), damaged.len()),
                }
            }
        },
    }
}

/// esp-radar's results and device line, which carry no CSI.
fn result_line(body: &[u8]) -> Found {
    let fields = body.trim_ascii().split(|&byte| byte == b',').count();
    match (body.starts_with(RADAR), fields) {
        (true, 9 | 11) => Found::Other(Other::RadarResult),
        (false, 12) => Found::Other(Other::DeviceInfo),
        _ => Found::Reject(Reject::FieldCount),
    }
}

/// A line of column names; some firmwares print it through the log macro, behind `I (ms) tag: `.
fn is_header(body: &[u8]) -> bool {
    const NAMES: [&[u8]; 4] = [b"type,id,", b"type,seq", b"type,role,", b"session_id,"];
    let behind = match body.windows(2).position(|pair| pair == b": ") {
        Some(at) if body.starts_with(b"I (") => &body[at + 2..],
        _ => &[],
    };
    NAMES.iter().any(|name| body.starts_with(name) || behind.starts_with(name))
}

/// Text without a known prefix: of the console, or numbers that have lost their head.
fn no_data(text: &[u8]) -> Found {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Found::Other(Other::Blank);
    }
    let numeric = text.iter().filter(|b| matches!(b, b'0'..=b'9' | b',' | b'-' | b' ' | b'"' | b'[' | b']')).count();
    let separators = text.iter().filter(|b| matches!(b, b',' | b' ')).count();
    if separators < 12 || numeric * 10 < text.len() * 9 {
        return Found::Other(Other::ConsoleText);
    }
    let bracket = text.iter().any(|b| matches!(b, b'[' | b']'));
    Found::Reject(if bracket { Reject::Truncated } else { Reject::FieldCount })
}
