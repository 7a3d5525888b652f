//! Any recording -> our own form.

use super::{CountedAs, Damage, Reader, RecordingError, Unit, Writer};
use crate::frame::Payload;

/// What an import carried over, and what it could not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Datagrams written.
    pub datagrams: u64,
    /// Lines written.
    pub lines: u64,
    /// Entries of recognised packets whose bytes the recording does not have.
    pub without_bytes: u64,
    /// Entries that no rule accepts, of recordings that are not made of wire bytes.
    pub rejected: u64,
    /// Where the source stops being readable.
    pub damage: Option<Damage>,
}

/// Writes every unit of `reader` with `writer`. An archive must be opened at one member. Create the writer with
/// [`super::RecordingMeta::of_import`], so that names, hints and provenance come along.
pub fn import(reader: &mut Reader, writer: &mut Writer) -> Result<ImportSummary, RecordingError> {
    let mut summary = ImportSummary::default();
    reader.refuse_second_member();
    while let Some(unit) = reader.next() {
        match unit? {
            Unit::Captured(captured, hint) => {
                writer.write(&captured, hint)?;
                match captured.payload {
                    Payload::Datagram(_) => summary.datagrams += 1,
                    Payload::Line(_) => summary.lines += 1,
                }
            }
            Unit::Counted(counted) => match counted.what {
                CountedAs::Other(_) => summary.without_bytes += 1,
                CountedAs::Reject(_) => summary.rejected += 1,
            },
        }
    }
    summary.damage = reader.damage().cloned();
    Ok(summary)
}
