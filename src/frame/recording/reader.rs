//! [`Reader`]: any recording as a stream of [`Unit`]s.

use std::io::{BufRead, Cursor, Read};
use std::path::Path;

use super::capture::Capture;
use super::container::{self, Input, PEEK_BYTES};
use super::npz::{self, Npz};
use super::ruview::Ruview;
use super::text::Text;
use super::textclock::TextClock;
use super::{Damage, Event, Format, Notes, Options, RecordingError, RecordingMeta, SerialPort, Unit, format};
use crate::frame::{Captured, Origin, Payload};
use crate::types::Provenance;

/// Highest frame rate that is taken for one.
const MAX_RATE_HZ: f64 = 100_000.0;
/// Names of archive members that may be recordings.
const MEMBER_SUFFIXES: [&str; 7] = [".txt", ".csv", ".log", ".jsonl", ".npz", ".pcap", ".pcapng"];

enum Source {
    Capture(Capture),
    Npz(Box<Npz>),
    Ruview(Ruview),
    Text(Text),
}

impl Source {
    fn advance(&mut self, input: &mut dyn BufRead) -> std::io::Result<Option<Event>> {
        match self {
            Self::Capture(s) => Ok(s.advance(input)?.map(Event::Bytes)),
            Self::Npz(s) => Ok(s.advance().map(Event::Bytes)),
            Self::Ruview(s) => s.advance(input),
            Self::Text(s) => Ok(s.advance(input)?.map(Event::Bytes)),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Capture(s) => s.bytes(),
            Self::Npz(s) => s.bytes(),
            Self::Ruview(s) => s.bytes(),
            Self::Text(s) => s.bytes(),
        }
    }

    fn damage(&self) -> Option<&Damage> {
        match self {
            Self::Capture(s) => s.damage.as_ref(),
            Self::Npz(s) => s.damage.as_ref(),
            Self::Ruview(s) => s.damage.as_ref(),
            Self::Text(s) => s.damage.as_ref(),
        }
    }

    fn notes(&self) -> Notes {
        match self {
            Self::Capture(s) => s.notes,
            Self::Text(s) => s.notes,
            Self::Npz(_) | Self::Ruview(_) => Notes::default(),
        }
    }
}

/// A recording being read.
///
/// An archive without a named member is read member by member; [`Reader::segment`] changes between them, and times start
/// anew.
pub struct Reader {
    input: Input,
    source: Source,
    asked: Format,
    format: Format,
    options: Options,
    /// File or member name, for detection and for the port of text lines.
    name: String,
    in_archive: bool,
    one_member: bool,
    /// A second member is an error.
    single: bool,
    segment: u32,
    ports: Vec<SerialPort>,
    earlier_notes: Notes,
    container_damage: Option<Damage>,
    failed: bool,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("name", &self.name).field("format", &self.format).finish_non_exhaustive()
    }
}

/// Opens the recording at `path` (`-` is standard input; `archive.tar.xz#member` or `archive.tar.xz:member` names a member).
/// Compression (bzip2, xz, zstd, gzip) and tar archives are seen by their bytes.
pub fn open(path: &Path, format: Format, options: &Options) -> Result<Reader, RecordingError> {
    let container::Opened { raw, path, member } = container::open(path)?;
    let mut options = options.clone();
    options.member = member.or(options.member);
    start(raw, plain_name(&path), format, options)
}

/// Opens a recording held in memory; `name` stands for the file name.
pub fn open_bytes(bytes: Vec<u8>, name: &str, format: Format, options: &Options) -> Result<Reader, RecordingError> {
    start(Box::new(Cursor::new(bytes)), plain_name(Path::new(name)), format, options.clone())
}

/// Names of the recordings in the archive at `path`; empty if it is no archive.
pub fn members(path: &Path) -> Result<Vec<String>, RecordingError> {
    let (input, _) = container::unwrap(container::open(path)?.raw)?;
    let Input::Tar(mut tar) = input else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    while let Some(name) = tar.next_member().map_err(RecordingError::Read)? {
        if is_recording(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The file name without a compression suffix.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    for suffix in [".bz2", ".xz", ".zst", ".gz"] {
        if let Some(stem) = name.strip_suffix(suffix) {
            return stem.to_owned();
        }
    }
    name
}

fn is_recording(member: &str) -> bool {
    let base = member.rsplit('/').next().unwrap_or(member);
    // "._name" files are metadata that another system's archiver adds.
    !base.starts_with('.') && MEMBER_SUFFIXES.iter().any(|s| base.to_ascii_lowercase().ends_with(s))
}

fn start(raw: Box<dyn Read + Send>, name: String, format: Format, options: Options) -> Result<Reader, RecordingError> {
    if let Some(rate) = options.rate_hz.filter(|r| !(*r > 0.0 && *r <= MAX_RATE_HZ)) {
        return Err(RecordingError::BadRate(rate));
    }
    let (mut input, head) = container::unwrap(raw)?;
    let (name, in_archive, head) = match &mut input {
        Input::Plain(_) => (name, false, head),
        Input::Tar(tar) => {
            let (mut seen, mut amplitudes) = (Vec::new(), None);
            loop {
                let Some(member) = tar.next_member().map_err(RecordingError::Read)? else {
                    return Err(match (amplitudes, options.member) {
                        (Some(what), _) if seen.is_empty() => RecordingError::NotFrames { what },
                        (_, wanted) => RecordingError::NoMember { wanted: wanted.unwrap_or_default(), found: seen },
                    });
                };
                if wanted(&member, options.member.as_deref()) {
                    let head = tar.peek(PEEK_BYTES).map_err(RecordingError::Read)?.to_vec();
                    break (member, true, head);
                }
                if is_recording(&member) && seen.len() <= 8 {
                    seen.push(member);
                } else if member.ends_with(".npy") {
                    amplitudes = amplitudes.or(Some(member));
                }
            }
        }
    };
    let one_member = options.member.is_some();
    let (found, source, ports) = source(&mut input, &head, &name, format, &options)?;
    Ok(Reader {
        input,
        source,
        asked: format,
        format: found,
        options,
        name,
        in_archive,
        one_member,
        single: false,
        segment: 0,
        ports,
        earlier_notes: Notes::default(),
        container_damage: None,
        failed: false,
    })
}

/// A named member matches by its whole path or by its last parts; without a name, every recording does.
fn wanted(member: &str, name: Option<&str>) -> bool {
    match name {
        Some(name) => {
            let member = member.strip_prefix("./").unwrap_or(member);
            member == name || member.strip_suffix(name).is_some_and(|rest| rest.ends_with('/'))
        }
        None => is_recording(member),
    }
}

fn source(
    input: &mut Input,
    head: &[u8],
    name: &str,
    asked: Format,
    options: &Options,
) -> Result<(Format, Source, Vec<SerialPort>), RecordingError> {
    let format = if asked == Format::Auto { format::detect(head, name)? } else { asked };
    let malformed = |what: String| RecordingError::Malformed { format, what };
    if name.ends_with(".npy") {
        return Err(RecordingError::NotFrames { what: name.to_owned() });
    }
    let source = match format {
        Format::Pcapng => {
            let mut capture = Capture::new(options.udp_port);
            capture.start(input.stream()).map_err(RecordingError::Read)?;
            Source::Capture(capture)
        }
        Format::EspectreNpz => {
            let mut bytes = Vec::new();
            input.stream().take(npz::MAX_ARCHIVE + 1).read_to_end(&mut bytes).map_err(RecordingError::Read)?;
            if bytes.len() as u64 > npz::MAX_ARCHIVE {
                return Err(malformed(format!("larger than {} MB", npz::MAX_ARCHIVE >> 20)));
            }
            Source::Npz(Box::new(Npz::new(bytes, options.rate_hz, options.start).map_err(malformed)?))
        }
        Format::RuviewJsonl => Source::Ruview(Ruview::new()),
        _ => {
            debug_assert!(format.is_text());
            let clock = TextClock::new(head, format.hint(), options.rate_hz, options.start)
                .map_err(|_| RecordingError::NoTime)?;
            Source::Text(Text::new(clock, format.hint()))
        }
    };
    let ports = match &source {
        Source::Text(_) => vec![SerialPort { name: name.to_owned(), hint: format.hint() }],
        _ => Vec::new(),
    };
    Ok((format, source, ports))
}

impl Reader {
    /// The next unit; `None` at the end, or where the recording is damaged (then [`Reader::damage`] says so).
    #[allow(clippy::should_implement_trait)] // a unit borrows the reader's buffer, which an iterator's item cannot
    pub fn next(&mut self) -> Option<Result<Unit<'_>, RecordingError>> {
        self.next_in_segment().map(|next| next.map(|(_, unit)| unit))
    }

    /// The next unit with its segment: a unit of a new segment belongs to another recording, with another clock.
    pub fn next_in_segment(&mut self) -> Option<Result<(u32, Unit<'_>), RecordingError>> {
        if self.failed {
            return None;
        }
        let event = loop {
            match self.source.advance(self.input.stream()) {
                Ok(Some(event)) => break event,
                Ok(None) => match self.next_member() {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(e) => {
                        self.failed = true;
                        return Some(Err(e));
                    }
                },
                Err(e) => {
                    self.failed = true;
                    return Some(Err(RecordingError::Read(e)));
                }
            }
        };
        let unit = match event {
            Event::Counted(counted) => Unit::Counted(counted),
            Event::Bytes(found) => {
                let bytes = &self.source.bytes()[found.range];
                let payload = match found.origin {
                    Origin::Udp { .. } => Payload::Datagram(bytes),
                    Origin::Serial { .. } => Payload::Line(bytes),
                };
                Unit::Captured(Captured { at: found.at, origin: found.origin, payload }, found.hint)
            }
        };
        Some(Ok((self.segment, unit)))
    }

    /// Moves on to the next member of an archive that is read as a whole.
    fn next_member(&mut self) -> Result<bool, RecordingError> {
        if self.one_member || self.container_damage.is_some() {
            return Ok(false);
        }
        loop {
            let Input::Tar(tar) = &mut self.input else { return Ok(false) };
            let peeked = tar.next_member().and_then(|m| match m {
                Some(name) if is_recording(&name) => Ok(Some((name, tar.peek(PEEK_BYTES)?.to_vec()))),
                Some(_) => Ok(Some((String::new(), Vec::new()))),
                None => Ok(None),
            });
            let (name, head) = match peeked {
                Ok(Some(member)) => member,
                Ok(None) => return Ok(false),
                Err(e) => {
                    self.container_damage = Some(Damage::from_io(&e, 0).ok_or(RecordingError::Read(e))?);
                    return Ok(false);
                }
            };
            if name.is_empty() {
                continue;
            }
            if self.single {
                return Err(RecordingError::SeveralMembers { first: self.name.clone(), second: name });
            }
            let (format, source, ports) = source(&mut self.input, &head, &name, self.asked, &self.options)?;
            self.earlier_notes.add(&self.source.notes());
            let earlier_damage = self.source.damage().cloned();
            self.container_damage = self.container_damage.take().or(earlier_damage);
            (self.format, self.source, self.ports, self.name) = (format, source, ports, name);
            self.segment += 1;
            return Ok(true);
        }
    }

    /// From now on a second member of the archive is an error: what is being made of it holds one recording.
    pub fn refuse_second_member(&mut self) {
        self.single = true;
    }

    /// What the frames are: a recording, or the simulator's output that was recorded. Never `Sensed`.
    pub fn provenance(&self) -> Provenance {
        match self.meta().map(|m| m.provenance) {
            Some(Provenance::Simulated) => Provenance::Simulated,
            _ => Provenance::Recorded,
        }
    }

    /// The recording's description of itself, if it is one of ours.
    pub fn meta(&self) -> Option<&RecordingMeta> {
        match &self.source {
            Source::Capture(s) => s.meta.as_ref(),
            _ => None,
        }
    }

    /// The format in use: as asked for, or as found.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Name of the archive member being read.
    pub fn member(&self) -> Option<&str> {
        self.in_archive.then_some(self.name.as_str())
    }

    /// Counts up with each archive member; times and nodes of different segments have nothing to do with each other.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// Text sources met so far; the port number of a line is its place here.
    pub fn ports(&self) -> &[SerialPort] {
        match &self.source {
            Source::Capture(s) => &s.ports,
            _ => &self.ports,
        }
    }

    /// True if the times are wall-clock times, false if they count from an unknown start.
    pub fn wall_clock(&self) -> bool {
        match &self.source {
            Source::Capture(s) => s.meta.as_ref().is_none_or(|m| m.wall_clock),
            Source::Npz(_) => false,
            Source::Ruview(_) => true,
            Source::Text(s) => s.is_wall(),
        }
    }

    /// Where the recording stops being readable, once that is reached.
    pub fn damage(&self) -> Option<&Damage> {
        self.source.damage().or(self.container_damage.as_ref())
    }

    /// What was met besides units.
    pub fn notes(&self) -> Notes {
        let mut notes = self.earlier_notes;
        notes.add(&self.source.notes());
        notes
    }
}
