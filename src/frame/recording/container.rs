//! Compression and archives around a recording, opened by what the bytes say.
//!
//! *In*: a path, `-`, or bytes. *Out*: one or more streams of plain bytes, each with a name. *State*: the decompressor's
//! window and one read buffer; an archive is walked once, forwards, so that memory does not grow with it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use super::RecordingError;

/// Bytes looked at to tell what the input is.
pub(super) const PEEK_BYTES: usize = 64 * 1024;
/// Compression inside compression is unwrapped this often, no deeper.
const MAX_LAYERS: usize = 3;
/// Memory that an xz header may ask for.
const XZ_MEMORY: u64 = 128 * 1024 * 1024;
/// Longest name an archive header may carry.
const MAX_NAME: u64 = 4096;

/// A stream whose first bytes were read ahead; an error met while doing so is kept for the reader.
struct Peeked {
    head: Cursor<Vec<u8>>,
    error: Option<io::Error>,
    rest: Box<dyn Read + Send>,
}

impl Peeked {
    fn new(mut rest: Box<dyn Read + Send>, want: usize) -> Self {
        let mut head = vec![0u8; want];
        let mut filled = 0;
        let mut error = None;
        while filled < want {
            match rest.read(&mut head[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
        }
        head.truncate(filled);
        Self { head: Cursor::new(head), error, rest }
    }
}

impl Read for Peeked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.head.read(buf)? {
            0 if !buf.is_empty() => match self.error.take() {
                Some(e) => Err(e),
                None => self.rest.read(buf),
            },
            n => Ok(n),
        }
    }
}

/// Plain bytes of one recording, or of an archive of several.
pub(super) enum Input {
    Plain(Box<dyn BufRead + Send>),
    Tar(TarStream),
}

impl Input {
    /// The bytes of the recording in hand.
    pub(super) fn stream(&mut self) -> &mut dyn BufRead {
        match self {
            Self::Plain(r) => r,
            Self::Tar(t) => t,
        }
    }
}

/// Unwraps compression; returns the input and its first bytes (not consumed).
pub(super) fn unwrap(mut raw: Box<dyn Read + Send>) -> Result<(Input, Vec<u8>), RecordingError> {
    for _ in 0..MAX_LAYERS {
        let peeked = Peeked::new(raw, 6);
        let magic = peeked.head.get_ref().clone();
        raw = match magic.as_slice() {
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Box::new(bzip2::read::MultiBzDecoder::new(peeked)),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => {
                let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, liblzma::stream::CONCATENATED)
                    .map_err(|e| RecordingError::Read(e.into()))?;
                Box::new(liblzma::read::XzDecoder::new_stream(peeked, stream))
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                Box::new(zstd::stream::read::Decoder::new(peeked).map_err(RecordingError::Read)?)
            }
            [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(peeked)),
            _ => {
                raw = Box::new(peeked);
                break;
            }
        };
    }
    let peeked = Peeked::new(raw, PEEK_BYTES);
    let head = peeked.head.get_ref().clone();
    let buffered: Box<dyn BufRead + Send> = Box::new(BufReader::with_capacity(PEEK_BYTES, peeked));
    let is_tar = head.get(257..262).is_some_and(|m| m == b"ustar");
    let input = if is_tar { Input::Tar(TarStream::new(buffered)) } else { Input::Plain(buffered) };
    Ok((input, head))
}

/// Raw bytes, the file they come from, and the archive member that was named with it.
pub(super) struct Opened {
    pub(super) raw: Box<dyn Read + Send>,
    pub(super) path: PathBuf,
    pub(super) member: Option<String>,
}

/// Opens `path` (or standard input for `-`). `archive.tar.xz#member` and `archive.tar.xz:member` name a member.
pub(super) fn open(path: &Path) -> Result<Opened, RecordingError> {
    if path.as_os_str() == "-" {
        return Ok(Opened { raw: Box::new(io::stdin()), path: PathBuf::new(), member: None });
    }
    let (file_path, member) = split_member(path);
    let open_error = |source| RecordingError::Open { path: path.to_owned(), source };
    let file = File::open(&file_path).map_err(open_error)?;
    if file.metadata().map_err(open_error)?.is_dir() {
        return Err(open_error(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    Ok(Opened { raw: Box::new(file), path: file_path, member })
}

fn split_member(path: &Path) -> (PathBuf, Option<String>) {
    if path.exists() {
        return (path.to_owned(), None);
    }
    let Some(text) = path.to_str() else { return (path.to_owned(), None) };
    for (at, _) in text.match_indices(['#', ':']) {
        if at > 0 && Path::new(&text[..at]).is_file() {
            return (PathBuf::from(&text[..at]), Some(text[at + 1..].to_owned()));
        }
    }
    (path.to_owned(), None)
}

/// A tar archive read forwards: [`TarStream::next_member`] moves to a member, reading gives that member's bytes.
pub(super) struct TarStream {
    inner: Box<dyn BufRead + Send>,
    /// First bytes of the member, read ahead.
    head: Vec<u8>,
    head_read: usize,
    /// Bytes of the member not read yet, behind `head`.
    left: u64,
    /// Zero bytes behind the member, up to the next 512.
    padding: u64,
}

impl TarStream {
    fn new(inner: Box<dyn BufRead + Send>) -> Self {
        Self { inner, head: Vec::new(), head_read: 0, left: 0, padding: 0 }
    }

    /// Name of the next regular file, or `None` at the end.
    pub(super) fn next_member(&mut self) -> io::Result<Option<String>> {
        let mut long_name: Option<String> = None;
        loop {
            let skip = self.left.saturating_add(self.padding);
            if io::copy(&mut (&mut self.inner).take(skip), &mut io::sink())? < skip {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (self.left, self.padding) = (0, 0);
            self.drop_head();
            let mut header = [0u8; 512];
            match read_full(&mut self.inner, &mut header)? {
                0 => return Ok(None),
                512 => {}
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
            if header.iter().all(|&b| b == 0) {
                return Ok(None);
            }
            if !checksum_holds(&header) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "damaged archive: header checksum is wrong"));
            }
            let size = number(&header[124..136])
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "damaged archive: size is no number"))?;
            self.left = size;
            self.padding = (512 - size % 512) % 512;
            match header[156] {
                b'0' | 0 | b'7' => return Ok(Some(long_name.unwrap_or_else(|| ustar_name(&header)))),
                b'L' if size <= MAX_NAME => long_name = Some(text(&self.take_all()?)),
                b'x' if size <= 16 * MAX_NAME => {
                    let records = self.take_all()?;
                    long_name = pax_path(&records).or(long_name);
                }
                // Folders, links, devices and the rest hold no recording.
                b'5' => long_name = None,
                _ => {}
            }
        }
    }

    /// The first bytes of the member just entered (at most `want`), not consumed.
    pub(super) fn peek(&mut self, want: usize) -> io::Result<&[u8]> {
        let mut head = vec![0; want];
        let n = read_full(self, &mut head)?;
        head.truncate(n);
        (self.head, self.head_read) = (head, 0);
        Ok(&self.head)
    }

    fn drop_head(&mut self) {
        self.head.clear();
        self.head_read = 0;
    }

    fn take_all(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for TarStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut ahead = &self.head[self.head_read..];
        if !ahead.is_empty() {
            let n = ahead.read(buf)?;
            self.head_read += n;
            return Ok(n);
        }
        let want = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.inner.read(&mut buf[..want])?;
        if n == 0 && want > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= n as u64;
        Ok(n)
    }
}

impl BufRead for TarStream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.head_read < self.head.len() {
            return Ok(&self.head[self.head_read..]);
        }
        if self.left == 0 {
            return Ok(&[]);
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let buf = self.inner.fill_buf()?;
        if buf.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(&buf[..buf.len().min(left)])
    }
    fn consume(&mut self, n: usize) {
        if self.head_read < self.head.len() {
            self.head_read += n;
            return;
        }
        self.inner.consume(n);
        self.left = self.left.saturating_sub(n as u64);
    }
}

/// Reads until `buf` is full or the input ends; returns the count.
pub(super) fn read_full(input: &mut (impl Read + ?Sized), buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match input.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

fn checksum_holds(header: &[u8; 512]) -> bool {
    let sum: u64 =
        header.iter().enumerate().map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u64::from(b) }).sum();
    number(&header[148..156]) == Some(sum)
}

/// Octal digits, or big-endian binary when the first bit is set (GNU, files above 8 GB).
fn number(field: &[u8]) -> Option<u64> {
    if field.first().is_some_and(|b| b & 0x80 != 0) {
        return field[1..].iter().try_fold(0u64, |n, &b| n.checked_mul(256)?.checked_add(u64::from(b)));
    }
    let digits = field.iter().skip_while(|b| **b == b' ').take_while(|b| !matches!(b, 0 | b' '));
    digits.clone().try_fold(0u64, |n, &b| {
        (b'0'..=b'7').contains(&b).then(|| n.checked_mul(8)?.checked_add(u64::from(b - b'0')))?
    })
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn ustar_name(header: &[u8; 512]) -> String {
    let name = text(&header[..100]);
    let prefix = text(&header[345..500]);
    // GNU archives (magic "ustar  ") use the prefix field for other things.
    if header[257..263] == *b"ustar\0" && !prefix.is_empty() { format!("{prefix}/{name}") } else { name }
}

fn pax_path(mut records: &[u8]) -> Option<String> {
    while let Some(space) = records.iter().position(|&b| b == b' ') {
        let len: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
        let record = records.get(space + 1..len)?;
        if let Some(path) = record.strip_prefix(b"path=") {
            return Some(text(path.strip_suffix(b"\n").unwrap_or(path)));
        }
        records = records.get(len..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use super::*;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, body) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(body.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, *body).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn walks_an_archive_made_by_the_tar_crate() {
        let long = format!("{}/name.txt", "d".repeat(150));
        let bytes = archive(&[("a.txt", b"alpha"), (&long, &[7u8; 1000]), ("empty.txt", b"")]);
        let (input, _) = unwrap(Box::new(Cursor::new(bytes))).unwrap();
        let Input::Tar(mut tar) = input else { panic!("not seen as tar") };
        assert_eq!(tar.next_member().unwrap().unwrap(), "a.txt");
        let mut body = String::new();
        tar.read_to_string(&mut body).unwrap();
        assert_eq!(body, "alpha");
        assert_eq!(tar.next_member().unwrap().unwrap(), long);
        // Not read: the next call skips it.
        assert_eq!(tar.next_member().unwrap().unwrap(), "empty.txt");
        assert!(tar.fill_buf().unwrap().is_empty());
        assert!(tar.next_member().unwrap().is_none());
    }

    #[test]
    fn every_compression_is_seen_by_its_bytes() {
        let plain = b"CSIRAW 1 2 -40 2 00ff\n".repeat(50);
        let mut bz = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        bz.write_all(&plain).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&plain).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&plain).unwrap();
        let zst = zstd::encode_all(&plain[..], 1).unwrap();
        for packed in [bz.finish().unwrap(), gz.finish().unwrap(), xz.finish().unwrap(), zst, plain.clone()] {
            let (mut input, head) = unwrap(Box::new(Cursor::new(packed))).unwrap();
            let mut out = Vec::new();
            input.stream().read_to_end(&mut out).unwrap();
            assert_eq!(out, plain);
            assert_eq!(head, plain);
        }
    }

    #[test]
    fn a_broken_archive_is_an_error_not_a_panic() {
        let mut bytes = archive(&[("a.txt", b"alpha"), ("b.txt", b"beta")]);
        bytes[1024 + 130] ^= 1;
        let (input, _) = unwrap(Box::new(Cursor::new(bytes.clone()))).unwrap();
        let Input::Tar(mut tar) = input else { panic!() };
        tar.next_member().unwrap();
        assert_eq!(tar.next_member().unwrap_err().kind(), io::ErrorKind::InvalidData);
        bytes.truncate(700);
        let (input, _) = unwrap(Box::new(Cursor::new(bytes))).unwrap();
        let Input::Tar(mut tar) = input else { panic!() };
        tar.next_member().unwrap();
        assert_eq!(tar.next_member().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
