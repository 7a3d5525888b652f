//! [`Simulator`]: all links of a scenario, merged in order of arrival.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};

use super::channel::Channel;
use super::encode::encode;
use super::person::Person;
use super::radio::Receiver;
use super::scenario::{MOST_TRANSMITTERS, NodeFormat, NodeSetup, RadioSetup, Scenario, ScenarioError, TruthSpan};
use crate::frame::{Captured, CsiFrame, Origin, Payload};
use crate::types::{MacAddr, NodeKey, Provenance, SensingTime};

/// Time between sending in the air and arrival at the host, without jitter.
const BASE_DELAY_S: f64 = 0.002;
/// Spread of the transmitter's pauses, as a part of the period.
const SENDER_JITTER: f64 = 0.03;
/// Arrivals of one node are at least this far apart.
const BACK_TO_BACK_S: f64 = 0.000_05;
/// Random streams of the links to transmitters besides the access point begin here.
const OTHER_LINKS: usize = 10_000;

/// One board and one transmitter: channel, receiver, clock and queue to the host.
struct Link {
    setup: NodeSetup,
    origin: Origin,
    channel: Channel,
    receiver: Receiver,
    rng: ChaCha8Rng,
    frame: CsiFrame,
    /// Reading of the board's clock at second 0, microseconds.
    clock_start_us: u64,
    /// Time in the air of the next packet.
    next_air_s: f64,
    last_arrival_s: f64,
    loss_until_s: f64,
    stall_until_s: f64,
    /// The next packet to arrive.
    bytes: Vec<u8>,
    arrival_s: f64,
    done: bool,
}

/// An endless or finite stream of captured input, determined by scenario and seed. It never waits: pacing is the
/// caller's.
pub struct Simulator {
    scenario: Scenario,
    people: Vec<Person>,
    links: Vec<Link>,
    out: Vec<u8>,
    start: SensingTime,
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulator").field("scenario", &self.scenario.name).finish_non_exhaustive()
    }
}

impl Simulator {
    /// Sets up `scenario`. The same scenario and seed give the same bytes.
    pub fn new(scenario: Scenario, seed: u64) -> Result<Self, ScenarioError> {
        scenario.check()?;
        // A random stream of its own for everybody: adding a person changes nobody else's noise.
        let stream = |n: usize| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(n as u64);
            rng
        };
        let mut people = Vec::new();
        for (i, person) in scenario.people.iter().enumerate() {
            let room = scenario.room(&person.zone)?;
            people.push(Person::new(person, room, scenario.duration_s, &mut stream(1000 + i)));
        }
        let mut links = Vec::new();
        let mut port = 0;
        for (i, setup) in scenario.nodes.iter().enumerate() {
            let room = scenario.room(&setup.zone)?;
            let (origin, key) = match (setup.format.is_serial(), setup.address) {
                (false, Some(addr)) => {
                    let sender_port = if setup.format == NodeFormat::EspectreV2 { 5001 } else { 50_000 + i as u16 };
                    let id = if setup.format == NodeFormat::EspectreV2 { 0 } else { setup.node_id };
                    (Origin::Udp { addr, port: sender_port }, NodeKey::Udp { addr, id })
                }
                _ => {
                    port += 1;
                    (Origin::Serial { port: port - 1 }, NodeKey::Serial { port: port - 1 })
                }
            };
            let access_point = (room.access_point_m, MacAddr([0x1a, 0, 0, 0, 0, room_number(&scenario, &setup.zone)]));
            let others = room.transmitters.iter().map(|t| (t.position_m, t.mac));
            let mut board_clock_us = None;
            for (k, (position_m, mac)) in std::iter::once(access_point).chain(others).enumerate() {
                let mut rng = stream(if k == 0 { i } else { OTHER_LINKS + i * MOST_TRANSMITTERS + k });
                let channel = Channel::new(room, position_m, setup.position_m, scenario.channel, &mut rng);
                let receiver = Receiver::new(setup.format, &channel, &scenario.radio);
                let own_clock_us = rng.random_range(0..1 << 33);
                let mut link = Link {
                    origin,
                    channel,
                    receiver,
                    frame: CsiFrame::empty(key),
                    // One board has one clock, whoever it listens to.
                    clock_start_us: *board_clock_us.get_or_insert(own_clock_us),
                    next_air_s: rng.random::<f64>() / setup.rate_hz,
                    last_arrival_s: 0.0,
                    loss_until_s: 0.0,
                    stall_until_s: 0.0,
                    bytes: Vec::new(),
                    arrival_s: 0.0,
                    done: false,
                    rng,
                    setup: setup.clone(),
                };
                // The board had counted before anybody listened.
                link.frame.seq = Some(link.rng.random_range(0..100_000));
                link.frame.transmitter = Some(mac);
                link.advance(&scenario, &people);
                links.push(link);
            }
        }
        let start = SensingTime(scenario.start_unix_s * 1_000_000);
        Ok(Self { people, links, out: Vec::new(), start, scenario })
    }

    /// Moves the time axis: second 0 is at `start`.
    #[must_use]
    pub fn starting_at(mut self, start: SensingTime) -> Self {
        self.start = start;
        self
    }

    /// The next datagram or line to arrive; `None` at the end of a scenario that does not repeat.
    #[allow(clippy::should_implement_trait)] // the item borrows the simulator's buffer
    pub fn next(&mut self) -> Option<Captured<'_>> {
        let link = self.links.iter_mut().filter(|l| !l.done).min_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s))?;
        std::mem::swap(&mut self.out, &mut link.bytes);
        let (origin, at) = (link.origin, self.start.plus_micros((link.arrival_s * 1e6).round() as i64));
        let payload =
            if link.setup.format.is_serial() { Payload::Line(&self.out) } else { Payload::Datagram(&self.out) };
        link.advance(&self.scenario, &self.people);
        Some(Captured { at, origin, payload })
    }

    /// What is true when, per zone, in seconds from the start (of each round, if the scenario repeats).
    pub fn truth(&self) -> Vec<TruthSpan> {
        self.scenario.truth()
    }

    /// Where everybody who is in a room stands `t_s` seconds after the start: index into the scenario's people, and the
    /// place on the floor in metres of the room. Who is away is left out.
    pub fn truth_positions(&self, t_s: f64) -> Vec<(usize, [f64; 2])> {
        let within = if self.scenario.repeat { t_s % self.scenario.duration_s } else { t_s };
        self.people.iter().enumerate().filter_map(|(i, p)| Some((i, p.at(within)?.at))).collect()
    }

    /// The scenario being simulated.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Time of second 0.
    pub fn start(&self) -> SensingTime {
        self.start
    }

    /// Always [`Provenance::Simulated`].
    pub fn provenance(&self) -> Provenance {
        Provenance::Simulated
    }
}

fn room_number(scenario: &Scenario, zone: &str) -> u8 {
    scenario.rooms.iter().position(|r| r.zone == zone).unwrap_or(0) as u8
}

impl Link {
    /// Goes on to the next packet that is not lost.
    fn advance(&mut self, scenario: &Scenario, people: &[Person]) {
        loop {
            let t = self.next_air_s;
            let period = 1.0 / self.setup.rate_hz;
            let wobble = SENDER_JITTER * (self.rng.random::<f64>() - 0.5);
            self.next_air_s += period * (1.0 + wobble);
            if t >= scenario.duration_s && !scenario.repeat {
                self.done = true;
                return;
            }
            let seq = self.frame.seq.unwrap_or(0).wrapping_add(1);
            if self.is_lost(t, period, &scenario.radio) {
                self.frame.seq = Some(seq);
                continue;
            }
            self.receive(t, seq, scenario, people);
            self.arrival_s = self.arrival(t, period, &scenario.radio);
            self.last_arrival_s = self.arrival_s;
            return;
        }
    }

    fn is_lost(&mut self, t: f64, period: f64, radio: &RadioSetup) -> bool {
        if self.rng.random::<f64>() < radio.loss_bursts_per_min / 60.0 * period {
            self.loss_until_s = t + self.rng.random_range(0.05..0.3);
        }
        let single = self.rng.random::<f64>() < radio.loss;
        single || t < self.loss_until_s
    }

    fn arrival(&mut self, t: f64, period: f64, radio: &RadioSetup) -> f64 {
        if self.rng.random::<f64>() < radio.stalls_per_min / 60.0 * period {
            self.stall_until_s = t + self.rng.random_range(0.05..0.2);
        }
        let jitter: f64 = Exp1.sample(&mut self.rng);
        let free = t + BASE_DELAY_S + jitter * radio.jitter_ms / 1000.0;
        free.max(self.stall_until_s).max(self.last_arrival_s + BACK_TO_BACK_S)
    }

    fn receive(&mut self, t: f64, seq: u32, scenario: &Scenario, people: &[Person]) {
        let within = if scenario.repeat { t % scenario.duration_s } else { t };
        let bodies = people.iter().filter(|p| p.zone == self.setup.zone).filter_map(|p| p.at(within));
        let response = self.channel.response(bodies);
        let frame = &mut self.frame;
        let transmitter = frame.transmitter;
        frame.reset(frame.node, self.setup.format.wire(), SensingTime(0));
        self.receiver.measure(&response, frame, &mut self.rng);
        frame.transmitter = transmitter;
        frame.seq = Some(seq);
        frame.channel = Some(scenario.channel);
        frame.freq_mhz = Some(2407 + 5 * u16::from(scenario.channel));
        let board_us = t * 1e6 * (1.0 + self.setup.clock_ppm / 1e6);
        frame.device_us = Some((self.clock_start_us + board_us.round() as u64) & u64::from(u32::MAX));
        encode(frame, &mut self.bytes).expect("the receiver fills every field that its format needs");
    }
}
