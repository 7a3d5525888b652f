//! Recordings of text lines. The very framer that serial input goes through cuts the lines.

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::ops::Range;

use super::textclock::TextClock;
use super::{Damage, Found, Notes};
use crate::frame::{LineFramer, LineHint, Origin};

/// Reader state for one text recording.
pub(super) struct Text {
    framer: LineFramer,
    clock: TextClock,
    hint: LineHint,
    /// Lines cut from the last chunk, back to back.
    flat: Vec<u8>,
    lines: VecDeque<Range<usize>>,
    ended: bool,
    position: u64,
    pub(super) notes: Notes,
    pub(super) damage: Option<Damage>,
}

impl Text {
    pub(super) fn new(clock: TextClock, hint: LineHint) -> Self {
        Self {
            framer: LineFramer::new(),
            clock,
            hint,
            flat: Vec::new(),
            lines: VecDeque::new(),
            ended: false,
            position: 0,
            notes: Notes::default(),
            damage: None,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.flat
    }

    pub(super) fn is_wall(&self) -> bool {
        self.clock.is_wall()
    }

    pub(super) fn advance(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Found>> {
        loop {
            if let Some(range) = self.lines.pop_front() {
                let at = self.clock.time(&self.flat[range.clone()], &mut self.notes);
                return Ok(Some(Found { at, origin: Origin::Serial { port: 0 }, hint: self.hint, range }));
            }
            if self.ended {
                return Ok(None);
            }
            self.flat.clear();
            let (flat, lines) = (&mut self.flat, &mut self.lines);
            let mut keep = |line: &[u8]| {
                lines.push_back(flat.len()..flat.len() + line.len());
                flat.extend_from_slice(line);
            };
            let used = match input.fill_buf() {
                Ok(chunk) => {
                    self.framer.push(chunk, &mut keep);
                    chunk.len()
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    self.damage = Some(Damage::from_io(&e, self.position).ok_or(e)?);
                    0
                }
            };
            if used == 0 {
                self.framer.finish(&mut keep);
                self.ended = true;
            }
            input.consume(used);
            self.position += used as u64;
        }
    }
}
