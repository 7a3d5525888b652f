//! A UDP socket as a source of datagrams.
//!
//! The loop waits for the socket, then takes what is there without waiting, up to a batch, so that a flood costs one wake-up
//! per batch; between batches it yields, so that other tasks of the runtime get their turn.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::{Captured, Origin, Payload, SensingClock, UdpSettings};

/// More than any packet has, so that an over-long one shows itself by its length.
const BUFFER_BYTES: usize = 65_536;
const BATCH: usize = 256;

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// Binding failed.
    #[error("cannot listen on UDP {addr}: {source}. Is another program (or a second aetherd) using the port?")]
    Bind {
        /// Address asked for.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The socket failed while in use.
    #[error("reading UDP {addr} failed: {source}")]
    Receive {
        /// Address listened on.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// What a socket has seen; shared with whoever reports it.
#[derive(Debug, Default)]
pub struct UdpCounters {
    received: AtomicU64,
    not_allowed: AtomicU64,
}

impl UdpCounters {
    /// Datagrams that were handed on.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Datagrams dropped because their sender is not on the list of allowed addresses.
    pub fn not_allowed(&self) -> u64 {
        self.not_allowed.load(Ordering::Relaxed)
    }
}

/// One socket that is listened on.
#[derive(Debug)]
pub struct UdpSource {
    socket: UdpSocket,
    addr: SocketAddr,
    allow: Vec<IpAddr>,
    buffer: Box<[u8]>,
    counters: Arc<UdpCounters>,
}

impl UdpSource {
    /// Opens a socket on `addr`. Must be called inside a tokio runtime.
    pub fn bind(addr: SocketAddr, settings: &UdpSettings) -> Result<Self, UdpError> {
        let open = || -> io::Result<UdpSocket> {
            let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
            // The port is not shared: two daemons on one port would each get a part of the frames.
            socket.set_nonblocking(true)?;
            // The kernel grants what it may; a smaller buffer is no reason not to start.
            let _ = socket.set_recv_buffer_size(settings.receive_buffer_bytes);
            socket.bind(&addr.into())?;
            UdpSocket::from_std(socket.into())
        };
        let socket = open().map_err(|source| UdpError::Bind { addr, source })?;
        let addr = socket.local_addr().unwrap_or(addr);
        Ok(Self {
            socket,
            addr,
            allow: settings.allow.iter().map(IpAddr::to_canonical).collect(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            counters: Arc::default(),
        })
    }

    /// The address listened on, with the real port where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Counts of this socket.
    pub fn counters(&self) -> Arc<UdpCounters> {
        Arc::clone(&self.counters)
    }

    /// Receives until the socket fails; dropping the future ends it at any time.
    pub async fn run(
        &mut self,
        clock: &SensingClock,
        sink: &mut (dyn FnMut(Captured<'_>) + Send),
    ) -> Result<(), UdpError> {
        loop {
            self.socket.readable().await.map_err(|source| UdpError::Receive { addr: self.addr, source })?;
            for _ in 0..BATCH {
                match self.socket.try_recv_from(&mut self.buffer) {
                    Ok((length, from)) => self.hand_on(length, from, clock, sink),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // An ICMP answer to a packet that somebody sent from this port; the socket is fine.
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted) => {}
                    Err(source) => return Err(UdpError::Receive { addr: self.addr, source }),
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn hand_on(
        &self,
        length: usize,
        from: SocketAddr,
        clock: &SensingClock,
        sink: &mut (dyn FnMut(Captured<'_>) + Send),
    ) {
        let addr = from.ip().to_canonical();
        if !self.allow.is_empty() && !self.allow.contains(&addr) {
            self.counters.not_allowed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.counters.received.fetch_add(1, Ordering::Relaxed);
        sink(Captured {
            at: clock.now(),
            origin: Origin::Udp { addr, port: from.port() },
            payload: Payload::Datagram(&self.buffer[..length]),
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    async fn receive(allow: Vec<IpAddr>, expect: usize) -> (Vec<Vec<u8>>, u64) {
        let settings = UdpSettings { allow, ..UdpSettings::default() };
        let mut source = UdpSource::bind("127.0.0.1:0".parse().unwrap(), &settings).unwrap();
        let counters = source.counters();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for i in 0..600u32 {
            sender.send_to(&i.to_le_bytes(), source.local_addr()).unwrap();
        }
        sender.send_to(&[], source.local_addr()).unwrap();
        let mut got = Vec::new();
        let clock = SensingClock::start();
        let mut sink = |captured: Captured<'_>| {
            let Payload::Datagram(bytes) = captured.payload else { panic!("a line from a socket") };
            got.push(bytes.to_vec());
        };
        tokio::select! {
            end = source.run(&clock, &mut sink) => end.unwrap(),
            () = async {
                while counters.received() as usize + counters.not_allowed() as usize != expect {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            } => {}
            () = tokio::time::sleep(Duration::from_secs(20)) => panic!("datagrams are missing"),
        }
        (got, counters.not_allowed())
    }

    #[tokio::test]
    async fn every_datagram_arrives_in_order_and_empty_ones_too() {
        let (got, refused) = receive(vec![], 601).await;
        assert_eq!(refused, 0);
        assert_eq!(got.len(), 601);
        assert!(got[..600].iter().enumerate().all(|(i, bytes)| bytes[..] == (i as u32).to_le_bytes()));
        assert!(got[600].is_empty());
    }

    #[tokio::test]
    async fn others_than_the_allowed_are_counted_and_dropped() {
        let (got, refused) = receive(vec!["192.0.2.1".parse().unwrap()], 601).await;
        assert_eq!((got.len(), refused), (0, 601));
        let (got, refused) = receive(vec!["::ffff:127.0.0.1".parse().unwrap()], 601).await;
        assert_eq!((got.len(), refused), (601, 0));
    }

    #[tokio::test]
    async fn a_taken_port_is_an_error_that_says_so() {
        let settings = UdpSettings::default();
        let first = UdpSource::bind("127.0.0.1:0".parse().unwrap(), &settings).unwrap();
        let error = UdpSource::bind(first.local_addr(), &settings).unwrap_err();
        assert!(error.to_string().contains("another program"), "{error}");
    }
}
