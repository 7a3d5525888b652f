//! The live view: a full screen on a terminal, lines of text elsewhere.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use crossterm::event::{Event as Key, KeyCode, KeyModifiers, poll, read};
use ratatui::DefaultTerminal;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use crate::mqtt::{HeadView, Snapshot, TrackView, ZoneView};
use crate::track::Lifecycle;
use crate::types::Provenance;

/// One MQTT message as the independent client saw it.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) at: Duration,
    pub(super) topic: String,
    pub(super) payload: String,
    pub(super) retained: bool,
}

/// What is drawn.
pub(super) struct View<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// New ones since the last drawing.
    pub(super) messages: &'a [Message],
    pub(super) connected: bool,
    pub(super) elapsed: Duration,
}

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feedback {
    Continue,
    Quit,
}

/// Messages shown at once.
const SHOWN: usize = 40;
/// Scores kept for the curve: a minute of ten a second.
const CURVE: usize = 600;

enum Kind {
    Full(Box<DefaultTerminal>),
    Plain { zones: Vec<String>, tracks: Vec<(u64, Lifecycle)>, last_rates: Duration },
}

/// The view.
pub(super) struct Screen {
    kind: Kind,
    what: String,
    broker: String,
    recent: VecDeque<Message>,
    curve: VecDeque<u64>,
}

impl Screen {
    /// Takes the terminal over, or prints the first lines.
    pub(super) fn new(plain: bool, what: String, broker: String) -> io::Result<Self> {
        let kind = if plain {
            let mut out = io::stdout().lock();
            writeln!(out, "aetherd demo: {what}")?;
            writeln!(out, "{broker}")?;
            Kind::Plain { zones: Vec::new(), tracks: Vec::new(), last_rates: Duration::ZERO }
        } else {
            Kind::Full(Box::new(ratatui::try_init()?))
        };
        Ok(Self { kind, what, broker, recent: VecDeque::new(), curve: VecDeque::new() })
    }

    /// Draws, and looks for a key.
    pub(super) fn draw(&mut self, view: &View<'_>) -> io::Result<Feedback> {
        for message in view.messages {
            self.recent.push_back(message.clone());
        }
        while self.recent.len() > SHOWN {
            self.recent.pop_front();
        }
        // The curve is the square root of the score, 100 = threshold, so that weak and strong motion both show.
        let score = view.snapshot.zones.first().and_then(|z| z.state.score).unwrap_or(0.0).max(0.0);
        self.curve.push_back((score.sqrt() * 100.0) as u64);
        while self.curve.len() > CURVE {
            self.curve.pop_front();
        }
        match &mut self.kind {
            Kind::Plain { zones, tracks, last_rates } => {
                plain(view, zones, tracks, last_rates)?;
                Ok(Feedback::Continue)
            }
            Kind::Full(terminal) => {
                let (what, broker, recent, curve) = (&self.what, &self.broker, &self.recent, &self.curve);
                terminal.draw(|frame| full(frame, view, what, broker, recent, curve))?;
                key()
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Kind::Full(_) = self.kind {
            ratatui::restore();
        }
    }
}

fn key() -> io::Result<Feedback> {
    while poll(Duration::ZERO)? {
        if let Key::Key(key) = read()? {
            let ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(Feedback::Quit);
            }
        }
    }
    Ok(Feedback::Continue)
}

fn word(value: Option<bool>, yes: &'static str, no: &'static str) -> &'static str {
    match value {
        Some(true) => yes,
        Some(false) => no,
        None => "unknown",
    }
}

/// One track in words.
fn track_text(track: &TrackView, head: Option<&HeadView>) -> String {
    let state = format!("{:?}", track.state).to_lowercase();
    let place = track.placement.map_or(String::new(), |p| {
        let [x, y] = p.position_m;
        format!(", at {x:.1}, {y:.1} m (+-{:.1})", p.sigma_m)
    });
    let cache = match head {
        Some(head) if track.cache_bytes > 0 => {
            format!(", {} tokens, cache {:.1} kB ({})", track.tokens, track.cache_bytes as f64 / 1000.0, head.policy)
        }
        _ => ", no cache".to_owned(),
    };
    format!("track {} {} {state} for {:.0} s{place}{cache}", track.id, track.zone, track.age_s)
}

/// "at least 1", "2", or nothing while unknown.
fn people_text(zone: &ZoneView) -> String {
    zone.state
        .people
        .map_or(String::new(), |c| format!(", people {}{}", if c.at_least { "at least " } else { "" }, c.people))
}

fn plain(
    view: &View<'_>,
    zones: &mut Vec<String>,
    tracks: &mut Vec<(u64, Lifecycle)>,
    last_rates: &mut Duration,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let t = view.elapsed.as_secs_f64();
    for m in view.messages {
        // Discovery documents are long; their topic tells enough here.
        let short =
            if m.topic.ends_with("/config") { format!("({} bytes)", m.payload.len()) } else { m.payload.clone() };
        let mark = if m.retained { " (retained)" } else { "" };
        writeln!(out, "{:6.1} s  mqtt  {} {short}{mark}", m.at.as_secs_f64(), m.topic)?;
    }
    let now: Vec<String> = view
        .snapshot
        .zones
        .iter()
        .map(|z| {
            let s = &z.state;
            let (occupied, moving) = (word(s.occupied, "occupied", "empty"), word(s.moving, "moving", "quiet"));
            format!("{}: {occupied}, {moving}{}", z.name, people_text(z))
        })
        .collect();
    if now != *zones {
        let score = view.snapshot.zones.first().and_then(|z| z.state.score);
        let score = score.map_or("-".to_owned(), |s| format!("{s:.2}"));
        writeln!(out, "{t:6.1} s  zone  {} (score {score}, {})", now.join("; "), view.snapshot.source)?;
        *zones = now;
    }
    let head = view.snapshot.head.as_ref();
    let every_five = view.elapsed >= *last_rates + Duration::from_secs(5);
    for track in &view.snapshot.tracks {
        if every_five || !tracks.contains(&(track.id, track.state)) {
            writeln!(out, "{t:6.1} s  {}", track_text(track, head))?;
        }
    }
    for (id, _) in tracks.iter().filter(|(id, _)| !view.snapshot.tracks.iter().any(|t| t.id == *id)) {
        writeln!(out, "{t:6.1} s  track {id} ended")?;
    }
    *tracks = view.snapshot.tracks.iter().map(|t| (t.id, t.state)).collect();
    if every_five {
        *last_rates = view.elapsed;
        for n in &view.snapshot.nodes {
            let rssi = n.rssi_dbm.map_or(String::new(), |r| format!(", {r:.0} dBm"));
            writeln!(out, "{t:6.1} s  board {}: {:.0} frames/s{rssi}, {} frames", n.name, n.rate_hz, n.frames)?;
        }
    }
    out.flush()
}

fn full(
    frame: &mut ratatui::Frame<'_>,
    view: &View<'_>,
    what: &str,
    broker: &str,
    recent: &VecDeque<Message>,
    curve: &VecDeque<u64>,
) {
    let s = view.snapshot;
    let boards = u16::try_from(s.nodes.len().clamp(1, 8)).unwrap_or(1);
    let zones = u16::try_from(s.zones.len().clamp(1, 6)).unwrap_or(1);
    let tracks = u16::try_from(s.tracks.len().clamp(1, 8)).unwrap_or(1);
    let [head, zone_area, track_area, curve_area, board_area, message_area] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(zones + 2),
        Constraint::Length(tracks + 2),
        Constraint::Length(7),
        Constraint::Length(boards + 3),
        Constraint::Min(4),
    ])
    .areas(frame.area());

    let simulated = s.source == Provenance::Simulated;
    let banner = Style::default().fg(if simulated { Color::Yellow } else { Color::Cyan }).add_modifier(Modifier::BOLD);
    let connected = if view.connected { "connected" } else { "not connected" };
    frame.render_widget(
        Paragraph::new(vec![
            Line::from(Span::styled(format!("aetherd demo: {what}"), banner)),
            Line::from(format!("{broker}, {connected}")),
            Line::from(format!("{:.0} s, q to quit", view.elapsed.as_secs_f64())),
        ]),
        head,
    );

    let rows: Vec<Line<'_>> = s
        .zones
        .iter()
        .map(|z| {
            let colour = match z.state.occupied {
                Some(true) => Color::Red,
                Some(false) => Color::Green,
                None => Color::DarkGray,
            };
            let why = z.state.why.map_or(String::new(), |w| format!(" ({w:?})").to_lowercase());
            let score = z.state.score.map_or("no score".to_owned(), |v| format!("score {v:.2}"));
            Line::from(vec![
                Span::styled(format!("{:<16}", z.name), Style::default().add_modifier(Modifier::BOLD)),
                Span::styled(
                    format!("{:<9}{why:<10}", word(z.state.occupied, "occupied", "empty")),
                    Style::default().fg(colour),
                ),
                Span::raw(format!("{:<8} {score}{}", word(z.state.moving, "moving", "quiet"), people_text(z))),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(rows).block(Block::bordered().title("Zones")), zone_area);

    let rows: Vec<Line<'_>> = s.tracks.iter().map(|t| Line::from(track_text(t, s.head.as_ref()))).collect();
    let title = match &s.head {
        Some(head) => format!("Tracks (head: {}, kernel {})", head.weights, head.kernel),
        None => "Tracks (no temporal head)".to_owned(),
    };
    frame.render_widget(Paragraph::new(rows).block(Block::bordered().title(title)), track_area);

    let visible = usize::from(curve_area.width.saturating_sub(2));
    let data: Vec<u64> = curve.iter().skip(curve.len().saturating_sub(visible)).copied().collect();
    let line = Sparkline::default()
        .block(Block::bordered().title("Motion score, last seconds (half height = threshold)"))
        .max(200)
        .style(Style::default().fg(Color::Blue))
        .data(&data);
    frame.render_widget(line, curve_area);

    let rows = s.nodes.iter().map(|n| {
        Row::new(vec![
            n.name.clone(),
            format!("{:.0}/s", n.rate_hz),
            n.loss.map_or("-".to_owned(), |l| format!("{:.0} %", l * 100.0)),
            n.rssi_dbm.map_or("-".to_owned(), |r| format!("{r:.0} dBm")),
            n.frames.to_string(),
            n.rejects.iter().map(|(_, c)| c).sum::<u64>().to_string(),
        ])
    });
    let widths = [
        Constraint::Min(20),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
    ];
    let header = Row::new(vec!["board", "rate", "loss", "rssi", "frames", "rejected"]);
    frame.render_widget(Table::new(rows, widths).header(header).block(Block::bordered().title("Links")), board_area);

    let room = usize::from(message_area.height.saturating_sub(2));
    let lines: Vec<Line<'_>> = recent
        .iter()
        .skip(recent.len().saturating_sub(room))
        .map(|m| {
            Line::from(vec![
                Span::styled(format!("{:6.1} ", m.at.as_secs_f64()), Style::default().fg(Color::DarkGray)),
                Span::styled(m.topic.clone(), Style::default().fg(Color::Cyan)),
                Span::raw(format!(" {}", m.payload)),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("MQTT messages")), message_area);
}
