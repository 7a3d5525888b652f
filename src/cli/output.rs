//! Writing to standard output and error, in one place.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

/// Standard output, locked and buffered: JSON lines go through here.
pub(super) struct Lines {
    out: BufWriter<StdoutLock<'static>>,
}

impl Lines {
    /// Locks standard output.
    pub(super) fn stdout() -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, io::stdout().lock()) }
    }

    /// One JSON object and a line feed.
    pub(super) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")
    }

    /// One line of text.
    pub(super) fn text(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{line}")
    }

    /// Sends what is buffered.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// One line on standard error. A closed standard error is nobody's business.
pub(super) fn complain(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}
