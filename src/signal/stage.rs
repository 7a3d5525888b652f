//! provisional
use serde::{Deserialize, Serialize};

use super::features::{LinkFeatures, NoVerdict, Verdict};
use crate::frame::{CsiFrame, LinkKey, SampleKind};
use crate::types::{NodeKey, SensingTime};

/// Settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {}

struct Link {
    key: LinkKey,
    rows: std::collections::VecDeque<(SensingTime, Vec<f32>)>,
}

/// The stage.
pub struct Signal {
    links: Vec<Link>,
}

impl Signal {
    /// New.
    pub fn new(_: Settings) -> Self {
        Self { links: Vec::new() }
    }
    /// Sensitivity.
    pub fn set_sensitivity(&mut self, _: NodeKey, _: f32) {}
    /// Push.
    pub fn push(&mut self, frame: &CsiFrame) {
        let key = frame.link();
        let i = match self.links.iter().position(|l| l.key == key) {
            Some(i) => i,
            None => {
                self.links.push(Link { key, rows: Default::default() });
                self.links.len() - 1
            }
        };
        let mut row: Vec<f32> = match frame.kind {
            SampleKind::Iq => frame.values.chunks_exact(2).map(|p| f32::from(p[0]).hypot(f32::from(p[1]))).collect(),
            SampleKind::Amplitude => frame.values.iter().map(|v| f32::from(*v)).collect(),
        };
        let mean = row.iter().sum::<f32>() / row.len() as f32;
        row.iter_mut().for_each(|v| *v /= mean);
        let l = &mut self.links[i];
        l.rows.push_back((frame.host_time, row));
        while l.rows.front().is_some_and(|f| frame.host_time.secs_since(f.0) > 1.0) {
            l.rows.pop_front();
        }
    }
    /// Tick.
    pub fn tick(&mut self, now: SensingTime, out: &mut Vec<LinkFeatures>) {
        for l in &self.links {
            let n = l.rows.len();
            let silent = l.rows.back().is_none_or(|b| now.secs_since(b.0) > 0.5);
            let mut num = 0.0;
            let mut den = 1e-9;
            if n > 8 {
                for b in 2..l.rows[0].1.len() {
                    let mean = l.rows.iter().map(|r| r.1[b]).sum::<f32>() / n as f32;
                    for i in 1..n {
                        num += (l.rows[i].1[b] - mean) * (l.rows[i - 1].1[b] - mean);
                        den += (l.rows[i].1[b] - mean).powi(2);
                    }
                }
            }
            let score = num / den / 0.35;
            let verdict = if silent {
                Verdict::None(NoVerdict::Silent)
            } else if n <= 8 {
                Verdict::None(NoVerdict::WarmingUp)
            } else if score > 1.0 {
                Verdict::Moving
            } else {
                Verdict::Still
            };
            let has = !matches!(verdict, Verdict::None(_));
            out.push(LinkFeatures {
                link: l.key,
                at: now,
                verdict,
                score: has.then_some(score),
                rate_hz: n as f32,
                coverage: 1.0,
                rssi_dbm: None,
            });
        }
    }
}
