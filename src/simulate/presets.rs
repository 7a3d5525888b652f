//! Scenarios that are there by name.

use super::scenario::{
    Doing, NodeFormat, NodeSetup, PersonSetup, Phase, RadioSetup, Room, Scenario, ScenarioError, TransmitterSetup,
};
use crate::types::MacAddr;

/// Names for [`Scenario::preset`].
pub const PRESETS: &[&str] =
    &["empty", "walk", "breathe", "visit", "house", "demo", "crossing", "two", "return", "party"];

impl Scenario {
    /// A scenario by name:
    /// - `empty`: a room of 5 by 4 m with two nodes, nobody there, 60 s;
    /// - `walk`: somebody walks about, 60 s;
    /// - `breathe`: somebody lies still and breathes 15 times a minute, 60 s;
    /// - `visit`: empty for 20 s, somebody comes in and walks, stands from 40 to 55 s, leaves at 62 s; 90 s;
    /// - `house`: two rooms with three nodes of three formats, people come and go, 120 s;
    /// - `demo`: a short visit that begins after 6 s; 3 minutes.
    ///
    /// And in a room of 6 by 5 m with a mesh of 16 links (four boards, an access point and three more transmitters, 20
    /// frames a second each), where people stroll at 0.5 to 0.9 m/s, for tracking:
    /// - `crossing`: after 40 s of nobody, somebody walks across the room and back and leaves; 80 s;
    /// - `two`: two people whose ways cross again and again; 120 s;
    /// - `return`: somebody comes, leaves, and comes again ten seconds later; 130 s;
    /// - `party`: ten people come and go, walk and stand, up to three at a time; an hour.
    pub fn preset(name: &str) -> Result<Self, ScenarioError> {
        let mut scenario = base(name);
        match name {
            "empty" => {}
            "walk" => scenario.people.push(person("living", vec![phase(0.0, 60.0, Doing::Walk)])),
            "breathe" => {
                let mut sleeper = person("living", vec![phase(0.0, 60.0, Doing::Lie)]);
                sleeper.via_m = vec![[2.2, 2.9]];
                scenario.people.push(sleeper);
            }
            "visit" => {
                scenario.duration_s = 90.0;
                let plan = vec![
                    phase(20.0, 40.0, Doing::Walk),
                    phase(40.0, 55.0, Doing::Stand),
                    phase(55.0, 62.0, Doing::Walk),
                ];
                scenario.people.push(person("living", plan));
            }
            "house" => house(&mut scenario),
            "crossing" | "two" | "return" | "party" => mesh(&mut scenario),
            "demo" => {
                scenario.duration_s = 180.0;
                let plan = vec![
                    phase(6.0, 16.0, Doing::Walk),
                    phase(16.0, 24.0, Doing::Stand),
                    phase(24.0, 30.0, Doing::Walk),
                ];
                scenario.people.push(person("living", plan));
            }
            _ => {
                return Err(ScenarioError::UnknownPreset { given: name.to_owned(), known: PRESETS.join(", ") });
            }
        }
        Ok(scenario)
    }
}

fn base(name: &str) -> Scenario {
    let node = |node_id: u8, position_m, clock_ppm| NodeSetup {
        zone: "living".into(),
        position_m,
        format: NodeFormat::Adr018,
        node_id,
        address: Some([192, 0, 2, 10 + node_id].into()),
        rate_hz: 50.0,
        clock_ppm,
    };
    Scenario {
        name: name.to_owned(),
        duration_s: 60.0,
        repeat: false,
        channel: 6,
        start_unix_s: 1_767_225_600,
        radio: RadioSetup::default(),
        rooms: vec![Room {
            zone: "living".into(),
            size_m: [5.0, 4.0, 2.5],
            access_point_m: [0.4, 0.5, 1.2],
            door_m: [4.5, 0.3],
            transmitters: Vec::new(),
        }],
        nodes: vec![node(1, [4.6, 3.4, 1.0], 12.0), node(2, [0.5, 3.5, 1.0], -8.0)],
        people: Vec::new(),
    }
}

fn house(scenario: &mut Scenario) {
    scenario.duration_s = 120.0;
    scenario.rooms.push(Room {
        zone: "bedroom".into(),
        size_m: [4.0, 3.5, 2.5],
        access_point_m: [0.3, 0.4, 1.0],
        door_m: [3.6, 0.3],
        transmitters: Vec::new(),
    });
    scenario.nodes[1].format = NodeFormat::EspectreV2;
    scenario.nodes[1].rate_hz = 100.0;
    scenario.nodes.push(NodeSetup {
        zone: "bedroom".into(),
        position_m: [3.6, 3.1, 0.8],
        format: NodeFormat::EspCsi25,
        node_id: 0,
        address: None,
        rate_hz: 100.0,
        clock_ppm: 25.0,
    });
    scenario.people = vec![
        person(
            "living",
            vec![phase(15.0, 35.0, Doing::Walk), phase(35.0, 60.0, Doing::Stand), phase(60.0, 68.0, Doing::Walk)],
        ),
        person("bedroom", vec![phase(70.0, 85.0, Doing::Walk), phase(85.0, 120.0, Doing::Lie)]),
    ];
}

/// A room in which sixteen links cross, and the people of the scenario of that name.
fn mesh(scenario: &mut Scenario) {
    let transmitter = |last, position_m| TransmitterSetup { position_m, mac: MacAddr([0x1a, 0, 0, 0, 1, last]) };
    scenario.rooms[0] = Room {
        zone: "living".into(),
        size_m: [6.0, 5.0, 2.5],
        access_point_m: [0.2, 0.2, 1.1],
        door_m: [5.6, 2.5],
        transmitters: vec![
            transmitter(1, [5.8, 0.2, 1.1]),
            transmitter(2, [0.2, 4.8, 1.1]),
            transmitter(3, [5.8, 4.8, 1.1]),
        ],
    };
    let places = [[3.0, 0.2, 1.0], [3.0, 4.8, 1.0], [0.2, 2.5, 1.0], [5.8, 3.4, 1.0]];
    scenario.nodes = places
        .iter()
        .enumerate()
        .map(|(i, position_m)| NodeSetup {
            zone: "living".into(),
            position_m: *position_m,
            format: NodeFormat::EspCsi25,
            node_id: 0,
            address: None,
            rate_hz: 20.0,
            clock_ppm: [12.0, -8.0, 25.0, -17.0][i],
        })
        .collect();
    let walker = |via_m: &[[f64; 2]], plan: Vec<Phase>| PersonSetup {
        via_m: via_m.to_vec(),
        speed_m_s: 0.7,
        ..person("living", plan)
    };
    match scenario.name.as_str() {
        "crossing" => {
            scenario.duration_s = 80.0;
            let via = [[0.8, 2.5], [3.0, 1.2], [5.2, 3.6]];
            scenario.people.push(walker(&via, vec![phase(40.0, 60.0, Doing::Walk)]));
        }
        "two" => {
            scenario.duration_s = 120.0;
            let first = [[1.0, 1.0], [5.0, 4.0]];
            let second = [[1.0, 4.0], [5.0, 1.0]];
            scenario.people.push(walker(&first, vec![phase(40.0, 95.0, Doing::Walk)]));
            scenario.people.push(walker(&second, vec![phase(46.0, 102.0, Doing::Walk)]));
        }
        "return" => {
            scenario.duration_s = 130.0;
            let plan = vec![phase(40.0, 62.0, Doing::Walk), phase(72.0, 95.0, Doing::Walk)];
            scenario.people.push(walker(&[], plan));
        }
        _ => {
            scenario.duration_s = 3600.0;
            scenario.people = (0..10).map(guest).collect();
        }
    }
}

/// Guest `i` of the party: four visits of two minutes in the hour, the second third of each standing, at times that are spread
/// so that one to three people are there, and now and then nobody.
fn guest(i: u32) -> PersonSetup {
    let plan = (0..4).flat_map(|visit| {
        let from_s = f64::from(40 + 880 * visit + (i * (67 + 9 * visit)) % 780);
        [
            phase(from_s, from_s + 40.0, Doing::Walk),
            phase(from_s + 40.0, from_s + 80.0, Doing::Stand),
            phase(from_s + 80.0, from_s + 120.0, Doing::Walk),
        ]
    });
    PersonSetup { speed_m_s: 0.5 + 0.04 * f64::from(i), ..person("living", plan.collect()) }
}

fn person(zone: &str, plan: Vec<Phase>) -> PersonSetup {
    PersonSetup {
        zone: zone.into(),
        speed_m_s: 1.0,
        breaths_per_min: 15.0,
        breath_depth_mm: 6.0,
        via_m: Vec::new(),
        plan,
    }
}

const fn phase(from_s: f64, to_s: f64, doing: Doing) -> Phase {
    Phase { from_s, to_s, doing }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::simulate::{Label, TruthSpan};

    #[test]
    fn presets_hold_their_own_rules_and_survive_toml() {
        for name in PRESETS {
            let scenario = Scenario::preset(name).unwrap();
            scenario.check().unwrap();
            let text = toml::to_string(&scenario).unwrap();
            assert_eq!(toml::from_str::<Scenario>(&text).unwrap(), scenario, "{text}");
            assert!(toml::from_str::<Scenario>(&format!("speling = 1\n{text}")).is_err());
        }
        assert!(Scenario::preset("riot").unwrap_err().to_string().contains("visit"));
    }

    #[test]
    fn truth_of_a_visit() {
        let truth = Scenario::preset("visit").unwrap().truth();
        let short: Vec<(f64, f64, Label)> = truth.iter().map(|s| (s.from_s, s.to_s, s.label)).collect();
        assert_eq!(
            short,
            [
                (0.0, 20.0, Label::Empty),
                (20.0, 40.0, Label::Motion),
                (40.0, 55.0, Label::Still),
                (55.0, 62.0, Label::Motion),
                (62.0, 90.0, Label::Empty)
            ]
        );
        let house: Vec<TruthSpan> = Scenario::preset("house").unwrap().truth();
        assert_eq!(house.iter().filter(|s| s.zone == "bedroom").count(), 3);
    }

    #[test]
    fn refusals_name_the_key() {
        let mut bad = Scenario::preset("visit").unwrap();
        bad.nodes[0].position_m = [9.0, 1.0, 1.0];
        assert!(bad.check().unwrap_err().to_string().contains("position_m"));
        let mut bad = Scenario::preset("visit").unwrap();
        bad.people[0].zone = "attic".into();
        assert_eq!(bad.check().unwrap_err(), ScenarioError::UnknownZone("attic".into()));
        let mut bad = Scenario::preset("visit").unwrap();
        bad.people[0].plan[1].from_s = 10.0;
        assert!(bad.check().is_err());
    }
}
