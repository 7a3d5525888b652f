//! The token of a track: 16 numbers for one fused frame, as the schema `aetherd-token-1` names them.
//!
//! *In*: a track with its shares of links, what these links' profiles did at the fused frame, the time since the track's
//! last token. *Out*: one token, or none where no link of the track gave a frame. No state. Everything is free of gain
//! and comes in units of the receiver's own noise, so that a token means the same on every board.

use crate::signal::{CHANGE_COMPONENTS, CHANGE_LAGS_S, FUSED_MICROS, LinkChange};
use crate::track::PoseTrack;

/// Numbers in a token.
pub const TOKEN: usize = 16;

const LAGS: usize = CHANGE_LAGS_S.len();
/// Change over this lag (0.2 s) tells how the links' energies spread.
const SPREAD_LAG: usize = 2;
/// A pause counts up to this, seconds.
const LONGEST_PAUSE_S: f64 = 3600.0;

/// Computes the token; false, with `out` untouched, where no link of the track has anything to say.
///
/// `since_last_s` is the time since the track's last token; `None` for its first one, which counts as one period.
///
/// Positions 0 to 11: `ln(1 + r)`, r the mean change of each smooth component over each lag, shortest lag first; a lag
/// without frames to compare takes the value of the nearest one that has. 12: participation ratio of the links'
/// energies. 13 and 14: speed in metres per second, and whether there is a position at all. 15: `ln` of the time since
/// the last token in token periods.
pub fn token(
    track: &PoseTrack,
    changes: &[Option<LinkChange>],
    since_last_s: Option<f64>,
    out: &mut [f32; TOKEN],
) -> bool {
    let mut sums = [[0.0f32; CHANGE_COMPONENTS]; LAGS];
    let mut shares = [0.0f32; LAGS];
    let (mut links, mut energy, mut energy_squared) = (0u16, 0.0f32, 0.0f32);
    for link in &track.links {
        let Some(Some(change)) = changes.get(usize::from(link.link)) else { continue };
        let mut heard = false;
        for (lag, row) in change.change.iter().enumerate() {
            if link.share > 0.0 && row.iter().all(|r| r.is_finite()) {
                heard = true;
                shares[lag] += link.share;
                sums[lag].iter_mut().zip(row).for_each(|(s, r)| *s += link.share * r);
            }
        }
        let own: f32 = change.change[SPREAD_LAG].iter().sum();
        if heard && own.is_finite() {
            links += 1;
            energy += own;
            energy_squared += own * own;
        }
    }
    let Some(nearest) = nearest_known(&shares) else { return false };
    for lag in 0..LAGS {
        let from = nearest[lag];
        for k in 0..CHANGE_COMPONENTS {
            out[lag * CHANGE_COMPONENTS + k] = (sums[from][k] / shares[from]).ln_1p();
        }
    }
    out[12] = if energy_squared > 0.0 { energy * energy / (f32::from(links) * energy_squared) } else { 1.0 };
    out[13] = track.placement.map_or(0.0, |p| p.velocity_m_s[0].hypot(p.velocity_m_s[1]) as f32);
    out[14] = if track.placement.is_some() { 1.0 } else { 0.0 };
    let period_s = FUSED_MICROS as f64 / 1e6;
    let since_s = since_last_s.unwrap_or(period_s).clamp(period_s, LONGEST_PAUSE_S);
    out[15] = (since_s / period_s).ln() as f32;
    true
}

/// For every lag the nearest one with a share, the longer of two equally near; `None` if there is none.
fn nearest_known(shares: &[f32; LAGS]) -> Option<[usize; LAGS]> {
    let mut nearest = [0; LAGS];
    for (lag, nearest) in nearest.iter_mut().enumerate() {
        let known = (0..LAGS).filter(|l| shares[*l] > 0.0);
        *nearest = known.min_by_key(|l| (l.abs_diff(lag), LAGS - l))?;
    }
    Some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::{Lifecycle, LinkShare, Placement, TrackId};
    use crate::types::SensingTime;

    fn track(shares: &[f32]) -> PoseTrack {
        PoseTrack {
            id: TrackId(1),
            lifecycle: Lifecycle::Active,
            zone: 0,
            placement: None,
            born: SensingTime(0),
            seen: SensingTime(0),
            slot: None,
            links: (0u16..).zip(shares).map(|(link, share)| LinkShare { link, share: *share }).collect(),
            embedding: None,
            keypoints: None,
        }
    }

    fn change(rows: [f32; LAGS]) -> Option<LinkChange> {
        Some(LinkChange { change: rows.map(|r| [r, 2.0 * r, 3.0 * r]) })
    }

    #[test]
    fn shares_weigh_and_spread_counts_links() {
        let mut out = [f32::NAN; TOKEN];
        let changes = [change([1.0, 2.0, 4.0, 8.0]), None, change([3.0, 2.0, 4.0, 0.0])];
        assert!(token(&track(&[0.75, 0.2, 0.05]), &changes, None, &mut out));
        let mean = (0.75 * 1.0 + 0.05 * 3.0) / 0.8;
        assert!((out[0] - f32::ln_1p(mean)).abs() < 1e-6);
        assert!((out[1] - f32::ln_1p(2.0 * mean)).abs() < 1e-6);
        assert!((out[11] - f32::ln_1p(0.75 * 24.0 / 0.8)).abs() < 1e-6);
        assert!((out[12] - 1.0).abs() < 1e-6, "two links of the same energy: {}", out[12]);
        assert_eq!(out[13..], [0.0, 0.0, 0.0]);
        let changes = [change([1.0; LAGS]), None, change([0.0; LAGS])];
        assert!(token(&track(&[0.5, 0.0, 0.5]), &changes, Some(1.0), &mut out));
        assert!((out[12] - 0.5).abs() < 1e-6, "one of two links has it all: {}", out[12]);
        assert!((out[15] - 20f32.ln()).abs() < 1e-6, "a second is twenty periods");
    }

    #[test]
    fn no_frame_no_token_and_a_missing_lag_takes_its_neighbour() {
        let mut out = [7.0; TOKEN];
        assert!(!token(&track(&[1.0]), &[None], None, &mut out));
        assert!(!token(&track(&[]), &[change([1.0; LAGS])], None, &mut out));
        assert!(!token(&track(&[1.0]), &[change([f32::NAN; LAGS])], None, &mut out));
        assert!(!token(&track(&[1.0]), &[], None, &mut out), "a link that is no more");
        assert_eq!(out, [7.0; TOKEN]);
        let mut moving = track(&[1.0]);
        moving.placement = Some(Placement { position_m: [1.0, 2.0], velocity_m_s: [0.6, -0.8], sigma_m: 0.3 });
        assert!(token(&moving, &[change([f32::NAN, f32::NAN, 5.0, 9.0])], None, &mut out));
        assert_eq!((out[0], out[3], out[6]), (5f32.ln_1p(), 5f32.ln_1p(), 5f32.ln_1p()));
        assert!((out[13] - 1.0).abs() < 1e-6 && out[14] == 1.0);
        assert!(out.iter().all(|x| x.is_finite()));
    }
}
