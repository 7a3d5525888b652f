//! Hold times and sensitivities that were set from outside (Home Assistant): kept on disk, win over the file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::event::{ZoneSettings, write_atomically};

/// What was set for one zone.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct ZoneTuning {
    /// Hold time, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_s: Option<f32>,
    /// Sensitivity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<f32>,
}

/// All of it, with the file it lives in.
#[derive(Debug, Default)]
pub(super) struct Tuning {
    path: Option<PathBuf>,
    zones: BTreeMap<String, ZoneTuning>,
}

impl Tuning {
    /// Reads `tuning.json` in the state directory. What cannot be read is reported and taken as nothing.
    pub(super) fn load(state_dir: &Path) -> Self {
        let path = state_dir.join("tuning.json");
        let zones = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "settings made in Home Assistant cannot be read, starting without");
                BTreeMap::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "settings made in Home Assistant cannot be read, starting without");
                BTreeMap::new()
            }
        };
        Self { path: Some(path), zones }
    }

    /// The zones with what was set for them.
    pub(super) fn apply(&self, zones: &[ZoneSettings]) -> Vec<ZoneSettings> {
        let mut zones = zones.to_vec();
        for zone in &mut zones {
            if let Some(t) = self.zones.get(&zone.effective_id()) {
                zone.hold_s = t.hold_s.or(zone.hold_s);
                zone.sensitivity = t.sensitivity.or(zone.sensitivity);
            }
        }
        zones
    }

    /// Changes one zone's tuning and writes the file.
    ///
    /// # Errors
    /// If the file cannot be written; the change holds until the next start all the same.
    pub(super) fn change(&mut self, zone: &str, change: impl FnOnce(&mut ZoneTuning)) -> io::Result<()> {
        change(self.zones.entry(zone.to_owned()).or_default());
        let Some(path) = &self.path else { return Ok(()) };
        let bytes = serde_json::to_vec_pretty(&self.zones).map_err(io::Error::from)?;
        write_atomically(path, &bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_set_survives_and_wins() {
        let dir = tempfile::tempdir().unwrap();
        let mut tuning = Tuning::load(dir.path());
        tuning.change("hall", |t| t.hold_s = Some(12.0)).unwrap();
        tuning.change("hall", |t| t.sensitivity = Some(2.0)).unwrap();
        let zone = ZoneSettings { name: "Hall".into(), hold_s: Some(99.0), ..ZoneSettings::default() };
        let other = ZoneSettings { name: "Attic".into(), ..ZoneSettings::default() };
        let applied = Tuning::load(dir.path()).apply(&[zone, other.clone()]);
        assert_eq!((applied[0].hold_s, applied[0].sensitivity), (Some(12.0), Some(2.0)));
        assert_eq!(applied[1], other);
        std::fs::write(dir.path().join("tuning.json"), "{").unwrap();
        assert_eq!(Tuning::load(dir.path()).apply(std::slice::from_ref(&other)), [other]);
    }
}
