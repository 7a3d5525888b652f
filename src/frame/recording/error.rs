//! What can stop a recording from being opened, read or written.

use std::io;
use std::path::PathBuf;

use super::Format;

/// Why a recording cannot be used. Damage inside a recording is no error: see [`super::Reader::damage`].
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be opened.
    #[error("cannot open recording {}: {source}", path.display())]
    Open {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The input failed while it was read.
    #[error("reading the recording failed: {0}")]
    Read(#[source] io::Error),
    /// Nothing tells what the input is.
    #[error(
        "cannot tell the format of this recording (it starts with {start}); pass the format by name, one of: {}",
        Format::NAMES
    )]
    Unrecognised {
        /// The first bytes, made printable.
        start: String,
    },
    /// A format name that is none.
    #[error("unknown recording format `{given}`; expected one of: {}", Format::NAMES)]
    UnknownFormat {
        /// The name as given.
        given: String,
    },
    /// The content is not what the format says.
    #[error("not a {format} recording: {what}")]
    Malformed {
        /// The format that was asked for or detected.
        format: Format,
        /// What was expected and what came.
        what: String,
    },
    /// A file of amplitudes that are no longer what a radio gave.
    #[error(
        "{what} holds amplitudes that were filtered by their authors, not frames as a radio gives them; it cannot be \
         read as a recording. Use the raw capture it was made from, if there is one"
    )]
    NotFrames {
        /// The file or archive member.
        what: String,
    },
    /// Lines of data without any time in them.
    #[error("the lines of this recording carry no time; pass the frame rate they were taken at (rate_hz, e.g. 100)")]
    NoTime,
    /// A rate that is none.
    #[error("rate_hz must be a number above 0 and at most 100000, got {0}")]
    BadRate(f64),
    /// No such archive member.
    #[error("the archive has no recording `{wanted}`; it has: {}", list(found))]
    NoMember {
        /// The member asked for, empty if any would do.
        wanted: String,
        /// Names that are there (the first few).
        found: Vec<String>,
    },
    /// More than one recording where one is needed.
    #[error("the archive holds several recordings (`{first}`, `{second}`, …); name one as ARCHIVE#MEMBER")]
    SeveralMembers {
        /// Name of the first.
        first: String,
        /// Name of the second.
        second: String,
    },
    /// The recording cannot be created.
    #[error("cannot create recording {}: {source}; choose another name or remove the file", path.display())]
    Create {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Writing failed.
    #[error("writing the recording failed: {0}; what was written before is kept and readable")]
    Write(#[source] io::Error),
    /// A unit that the file format cannot hold.
    #[error("{what} is too large for a recording: {value}, at most {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        value: usize,
        /// The limit.
        limit: usize,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "no file that ends in .txt, .csv, .log, .jsonl, .npz, .pcap or .pcapng".into();
    }
    let mut text = names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > 8 {
        text.push_str(", …");
    }
    text
}
