//! Bytes of a serial port -> lines.

/// Longest line that any format makes, with room to spare: 612 values of up to seven characters and two dozen fields.
pub const MAX_LINE_BYTES: usize = 8192;

/// Cuts a byte stream into lines at `\n`, `\r` and NUL; empty lines are left out.
///
/// Bytes are passed on as they are, valid UTF-8 or not. A line longer than [`MAX_LINE_BYTES`] comes out once, cut to one
/// byte more than that, so that the decoder refuses it as too long; the rest of it is skipped.
#[derive(Debug)]
pub struct LineFramer {
    pending: Vec<u8>,
    skipping: bool,
}

impl Default for LineFramer {
    fn default() -> Self {
        Self::new()
    }
}

fn is_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | 0)
}

impl LineFramer {
    /// With nothing pending.
    pub fn new() -> Self {
        Self { pending: Vec::with_capacity(MAX_LINE_BYTES + 1), skipping: false }
    }

    /// Takes in bytes and gives every line that they complete.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|&byte| is_end(byte)) {
            let (head, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.skipping {
                self.skipping = false;
            } else if self.pending.is_empty() {
                if !head.is_empty() {
                    sink(&head[..head.len().min(MAX_LINE_BYTES + 1)]);
                }
            } else {
                self.append(head, sink);
                if !std::mem::take(&mut self.skipping) {
                    sink(&self.pending);
                    self.pending.clear();
                }
            }
        }
        if !self.skipping {
            self.append(bytes, sink);
        }
    }

    fn append(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) {
        let room = MAX_LINE_BYTES + 1 - self.pending.len();
        self.pending.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if self.pending.len() > MAX_LINE_BYTES {
            sink(&self.pending);
            self.pending.clear();
            self.skipping = true;
        }
    }

    /// Gives what is left when the stream has ended without a line ending.
    pub fn finish(&mut self, sink: &mut dyn FnMut(&[u8])) {
        if !self.pending.is_empty() {
            sink(&self.pending);
        }
        self.clear();
    }

    /// Forgets a begun line, as after a re-opened port.
    pub fn clear(&mut self) {
        self.pending.clear();
        self.skipping = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut framer = LineFramer::new();
        let mut lines = Vec::new();
        for chunk in chunks {
            framer.push(chunk, &mut |line| lines.push(line.to_vec()));
        }
        framer.finish(&mut |line| lines.push(line.to_vec()));
        lines
    }

    #[test]
    fn all_endings_and_partial_reads() {
        let whole = lines(&[b"one\r\ntwo\n\n\xff\xfe\0three"]);
        assert_eq!(whole, [&b"one"[..], b"two", b"\xff\xfe", b"three"]);
        let bytes: Vec<&[u8]> = b"one\r\ntwo\n\n\xff\xfe\0three".chunks(1).collect();
        assert_eq!(lines(&bytes), whole);
    }

    #[test]
    fn an_over_long_line_comes_out_once_and_the_next_is_whole() {
        let long = vec![b'x'; 3 * MAX_LINE_BYTES];
        let cut = vec![b'x'; MAX_LINE_BYTES + 1];
        let mut text = long.clone();
        text.extend_from_slice(b"\nnext\n");
        assert_eq!(lines(&[&text]), [cut.clone(), b"next".to_vec()]);
        for size in [1, 7, 4096, MAX_LINE_BYTES, MAX_LINE_BYTES + 1, MAX_LINE_BYTES + 2] {
            let chunks: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(lines(&chunks), [cut.clone(), b"next".to_vec()], "{size}");
        }
        assert_eq!(lines(&[&long]), [cut]);
    }

    #[test]
    fn a_line_of_the_greatest_length_is_whole() {
        let mut text = vec![b'x'; MAX_LINE_BYTES];
        text.push(b'\n');
        for size in [1, 100, text.len()] {
            let chunks: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(lines(&chunks), [vec![b'x'; MAX_LINE_BYTES]]);
        }
    }
}
