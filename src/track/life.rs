//! The clock of a track's life: Tentative -> Active -> Lost -> ended, by named times.
//!
//! A tick says seen, not seen, or nothing (no link has a verdict). Seen and not seen are counted as what they are:
//! "confirmed" needs a run of ticks without a single miss, and the time without sight begins anew only with a sight.
//! Ticks that say nothing stop every clock for at most `outage_freeze_s`; beyond it they count as not seen, so that an
//! outage neither ends a track at once nor keeps it for ever.

use super::settings::Settings;
use super::types::{EndReason, Lifecycle};

/// A step counts as no longer than this, two ticks; the rest of it is a gap, seconds.
const LONGEST_S: f64 = 0.5;

/// Clocks of one track.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Life {
    /// Seconds of an unbroken run of sights, up to now.
    run_s: f64,
    /// Seconds since the last sight, as far as they count.
    missed_s: f64,
    /// Seconds since something was last known.
    unknown_s: f64,
}

/// What a tick makes of a track.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fate {
    Goes(Lifecycle),
    Ends(EndReason),
}

impl Life {
    /// One tick, `dt_s` after the one before. `seen` is `None` while nothing is known.
    pub(super) fn tick(&mut self, now: Lifecycle, seen: Option<bool>, dt_s: f64, settings: &Settings) -> Fate {
        // What is longer than two ticks is a gap, and of a gap nothing is known, whatever is seen after it.
        let gap_s = (dt_s - LONGEST_S).max(0.0);
        let dt_s = dt_s - gap_s;
        if gap_s > 0.0 {
            self.nothing(gap_s, settings);
            if let ended @ Fate::Ends(_) = self.fate(now, None, settings) {
                return ended;
            }
        }
        match seen {
            Some(true) => {
                self.run_s += dt_s;
                (self.missed_s, self.unknown_s) = (0.0, 0.0);
            }
            Some(false) => {
                self.run_s = 0.0;
                self.unknown_s = 0.0;
                self.missed_s += dt_s;
            }
            None => self.nothing(dt_s, settings),
        }
        self.fate(now, seen, settings)
    }

    /// Nothing is known for `dt_s`.
    fn nothing(&mut self, dt_s: f64, settings: &Settings) {
        let before = self.unknown_s;
        self.unknown_s += dt_s;
        // What lies beyond the freeze of this tick.
        let counts = self.unknown_s - before.max(settings.outage_freeze_s);
        if counts > 0.0 {
            self.run_s = 0.0;
            self.missed_s += counts;
        }
    }

    /// What the clocks make of a track.
    fn fate(&self, now: Lifecycle, seen: Option<bool>, settings: &Settings) -> Fate {
        // Sums of quarters of a second meet their limits exactly; other steps within a rounding.
        let reached = |time_s: f64, limit_s: f64| time_s >= limit_s - 1e-9;
        match now {
            Lifecycle::Tentative if seen == Some(true) && reached(self.run_s, settings.confirm_after_s) => {
                Fate::Goes(Lifecycle::Active)
            }
            Lifecycle::Tentative if reached(self.missed_s, settings.doubt_ends_after_s) => {
                Fate::Ends(EndReason::NotConfirmed)
            }
            Lifecycle::Active | Lifecycle::Lost if reached(self.missed_s, settings.terminate_after_s) => {
                Fate::Ends(EndReason::TimedOut)
            }
            Lifecycle::Active if reached(self.missed_s, settings.lost_after_s) => Fate::Goes(Lifecycle::Lost),
            Lifecycle::Lost if seen == Some(true) => Fate::Goes(Lifecycle::Active),
            same => Fate::Goes(same),
        }
    }

    /// Seconds since the last sight, as far as they count.
    pub(super) fn missed_s(&self) -> f64 {
        self.missed_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Vec<Fate> {
        let settings = Settings {
            confirm_after_s: 1.0,
            doubt_ends_after_s: 0.5,
            lost_after_s: 1.0,
            terminate_after_s: 3.0,
            outage_freeze_s: 2.0,
            ..Settings::default()
        };
        let mut life = Life::default();
        let mut now = Lifecycle::Tentative;
        let mut out = Vec::new();
        for c in script.chars() {
            let seen = match c {
                '+' => Some(true),
                '-' => Some(false),
                _ => None,
            };
            let fate = life.tick(now, seen, 0.25, &settings);
            out.push(fate);
            match fate {
                Fate::Goes(to) => now = to,
                Fate::Ends(_) => break,
            }
        }
        out
    }

    fn last(script: &str) -> Option<Fate> {
        run(script).last().copied()
    }

    #[test]
    fn confirmation_needs_an_unbroken_run() {
        assert_eq!(last("++++"), Some(Fate::Goes(Lifecycle::Active)));
        assert_eq!(last("+++"), Some(Fate::Goes(Lifecycle::Tentative)));
        // Two hits ever, or many with gaps, are no confirmation.
        assert_eq!(last("+-+-+-+-+-+-+-+-+"), Some(Fate::Goes(Lifecycle::Tentative)));
        assert_eq!(last("+++-++++"), Some(Fate::Goes(Lifecycle::Active)));
        assert_eq!(last("+++-+++"), Some(Fate::Goes(Lifecycle::Tentative)));
        assert_eq!(last("+--"), Some(Fate::Ends(EndReason::NotConfirmed)));
    }

    #[test]
    fn lost_and_ended_at_the_named_times_and_found_again() {
        assert_eq!(last("++++---"), Some(Fate::Goes(Lifecycle::Active)));
        assert_eq!(last("++++----"), Some(Fate::Goes(Lifecycle::Lost)));
        assert_eq!(last("++++----+"), Some(Fate::Goes(Lifecycle::Active)));
        assert_eq!(last("++++----+---"), Some(Fate::Goes(Lifecycle::Active)), "a sight begins the time anew");
        assert_eq!(run("++++------------").len(), 16);
        assert_eq!(last("++++------------"), Some(Fate::Ends(EndReason::TimedOut)));
        assert_eq!(last("++++-----------"), Some(Fate::Goes(Lifecycle::Lost)));
    }

    #[test]
    fn a_gap_between_ticks_is_an_outage_and_no_long_sight() {
        let settings = Settings { outage_freeze_s: 60.0, terminate_after_s: 30.0, ..Settings::default() };
        for seen in [Some(true), Some(false), None] {
            let ends = |dt_s| Life::default().tick(Lifecycle::Active, seen, dt_s, &settings);
            assert_eq!(ends(91.0), Fate::Ends(EndReason::TimedOut), "{seen:?}");
            assert!(matches!(ends(50.0), Fate::Goes(Lifecycle::Active)), "{seen:?}");
        }
        let mut life = Life::default();
        assert_eq!(life.tick(Lifecycle::Tentative, Some(true), 50.0, &settings), Fate::Goes(Lifecycle::Tentative));
        assert_eq!(life.tick(Lifecycle::Tentative, Some(true), 50.0, &settings), Fate::Goes(Lifecycle::Active));
    }

    #[test]
    fn an_outage_stops_the_clocks_for_a_while_only() {
        // 2 s of nothing: no clock runs.
        assert_eq!(last("++++????????"), Some(Fate::Goes(Lifecycle::Active)));
        assert_eq!(last("++++---????????"), Some(Fate::Goes(Lifecycle::Active)));
        assert_eq!(last("++++---????????-"), Some(Fate::Goes(Lifecycle::Lost)));
        // Beyond them it counts as not seen: 2 + 1 s to lost, 2 + 3 s to the end.
        assert_eq!(last("++++???????????"), Some(Fate::Goes(Lifecycle::Active)));
        assert_eq!(last("++++????????????"), Some(Fate::Goes(Lifecycle::Lost)));
        assert_eq!(last("++++????????????????????"), Some(Fate::Ends(EndReason::TimedOut)));
        // A run that an outage interrupts goes on after it; an outage is no sight.
        assert_eq!(last("+++????+"), Some(Fate::Goes(Lifecycle::Active)));
        assert_eq!(last("+++????"), Some(Fate::Goes(Lifecycle::Tentative)));
        // A doubtful track does not outlive the freeze for long.
        assert_eq!(last("+??????????"), Some(Fate::Ends(EndReason::NotConfirmed)));
    }
}
