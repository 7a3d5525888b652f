//! A serial port as a source of lines, opened again whenever it goes away.
//!
//! An unplugged port reads as zero bytes again and again. The handle is then dropped *before* the name is tried anew, as
//! the kernel would otherwise give the board another name; the by-id name leads to it wherever it comes back.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{sleep, timeout};
use tokio_serial::{SerialPort, SerialPortBuilderExt, SerialStream};

use super::{Captured, LineFramer, Origin, Payload, SensingClock, SerialSettings};

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 16 * 1024;

/// Why a port cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SerialError {
    /// Opening failed.
    #[error("cannot open serial port {port}: {source}. {cure}")]
    Open {
        /// Name of the port.
        port: String,
        /// What to do about it.
        cure: &'static str,
        /// What the system said.
        source: tokio_serial::Error,
    },
}

/// Why reading came to an end.
#[derive(Debug)]
enum Ended {
    Unplugged,
    Idle,
    Failed(io::Error),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unplugged => f.write_str("unplugged"),
            Self::Idle => f.write_str("no data for too long"),
            Self::Failed(error) => write!(f, "read failed: {error}"),
        }
    }
}

/// Opens a port for this program alone and lets the board run.
pub fn open(settings: &SerialSettings) -> Result<SerialStream, SerialError> {
    let name = settings.port.to_string_lossy();
    let mut stream = tokio_serial::new(name.as_ref(), settings.baud).open_native_async().map_err(|source| {
        let cure = match source.kind() {
            tokio_serial::ErrorKind::Io(io::ErrorKind::PermissionDenied) => {
                "Add the user to the group of the port (usually dialout) and log in again"
            }
            // A held port and a missing one both count as "no device"; only the latter has no name.
            _ if !settings.port.exists() => {
                "Plug the board in, and see `aetherd ports` for the names of the ports there are"
            }
            _ => "Is another program (a monitor, a second aetherd) holding it? See `aetherd ports`",
        };
        SerialError::Open { port: name.clone().into_owned(), cure, source }
    })?;
    // On the usual boards these two lines reset the chip or hold it in the loader; both released lets it run. Ports
    // without such lines (native USB, pseudo terminals) refuse, which does no harm.
    let _ = stream.write_data_terminal_ready(false);
    let _ = stream.write_request_to_send(false);
    Ok(stream)
}

/// Reads a port for ever, opening it again when it goes away. Dropping the future ends it.
pub async fn run(
    settings: &SerialSettings,
    index: u16,
    clock: &SensingClock,
    sink: &mut (dyn FnMut(Captured<'_>) + Send),
) {
    let port = settings.port.display();
    let mut wait = FIRST_WAIT;
    let mut lost = false;
    loop {
        match open(settings) {
            Ok(mut stream) => {
                if std::mem::take(&mut lost) {
                    tracing::warn!(%port, baud = settings.baud, "serial port is back");
                } else {
                    tracing::info!(%port, baud = settings.baud, "serial port open");
                }
                let mut bytes = 0;
                let ended = read(&mut stream, settings, index, clock, sink, &mut bytes).await;
                // Before anything else: a held handle makes the board come back under another name.
                drop(stream);
                tracing::warn!(%port, reason = %ended, bytes, "serial port lost");
                lost = true;
                if bytes > 0 {
                    wait = FIRST_WAIT;
                }
            }
            Err(error) => {
                // Said once; a loss was already said.
                if !std::mem::replace(&mut lost, true) {
                    tracing::warn!(%error, "serial port not available, trying on");
                }
            }
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    settings: &SerialSettings,
    index: u16,
    clock: &SensingClock,
    sink: &mut (dyn FnMut(Captured<'_>) + Send),
    total: &mut u64,
) -> Ended {
    let mut framer = LineFramer::new();
    let mut buffer = vec![0u8; READ_BYTES];
    let origin = Origin::Serial { port: index };
    loop {
        let next = stream.read(&mut buffer);
        let result = if settings.idle_reopen_secs == 0 {
            next.await
        } else {
            match timeout(Duration::from_secs(u64::from(settings.idle_reopen_secs)), next).await {
                Ok(result) => result,
                Err(_) => return Ended::Idle,
            }
        };
        match result {
            Ok(0) => return Ended::Unplugged,
            Ok(n) => {
                *total += n as u64;
                // A batch of lines that arrived together gets one time: when they were read.
                let at = clock.now();
                framer.push(&buffer[..n], &mut |line| sink(Captured { at, origin, payload: Payload::Line(line) }));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ended::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use std::path::Path;

    use tokio::io::AsyncWriteExt;

    use super::*;

    fn line_of(captured: Captured<'_>) -> String {
        assert_eq!(captured.origin, Origin::Serial { port: 7 });
        let Payload::Line(line) = captured.payload else { panic!("a datagram from a serial port") };
        String::from_utf8_lossy(line).into_owned()
    }

    #[tokio::test]
    async fn lines_come_out_and_an_unplugged_port_ends_the_reading() {
        let (mut board, mut port) = SerialStream::pair().unwrap();
        let settings = SerialSettings::new("pair");
        let clock = SensingClock::start();
        let mut lines = Vec::new();
        let mut bytes = 0;
        let mut sink = |captured: Captured<'_>| lines.push(line_of(captured));
        let writing = async {
            board.write_all(b"half of a li").await.unwrap();
            sleep(Duration::from_millis(20)).await;
            board.write_all(b"ne\r\nsecond\nthird is cut").await.unwrap();
            board.flush().await.unwrap();
            sleep(Duration::from_millis(50)).await;
            drop(board);
        };
        let (ended, ()) = tokio::join!(read(&mut port, &settings, 7, &clock, &mut sink, &mut bytes), writing);
        assert!(matches!(ended, Ended::Unplugged | Ended::Failed(_)), "{ended}");
        assert_eq!(lines, ["half of a line", "second"]);
        assert!(bytes >= 23);
    }

    #[tokio::test]
    async fn a_silent_port_is_given_up() {
        let (_board, mut port) = SerialStream::pair().unwrap();
        let settings = SerialSettings { idle_reopen_secs: 1, ..SerialSettings::new("pair") };
        let clock = SensingClock::start();
        let mut bytes = 0;
        let ended = read(&mut port, &settings, 7, &clock, &mut |_| panic!("no data"), &mut bytes).await;
        assert!(matches!(ended, Ended::Idle), "{ended}");
    }

    /// Ties the name a source opens to a pseudo terminal, as plugging a board in does for its by-id name.
    fn plug(link: &Path) -> SerialStream {
        let (board, far) = SerialStream::pair().unwrap();
        std::os::unix::fs::symlink(far.name().unwrap(), link).unwrap();
        board
    }

    /// qemu's user-mode emulation has no call to set a port's speed; a real kernel always has.
    fn emulated() -> bool {
        let (_board, far) = SerialStream::pair().unwrap();
        let missing = match open(&SerialSettings::new(far.name().unwrap())) {
            Err(SerialError::Open { source, .. }) => source.to_string().contains("Function not implemented"),
            _ => false,
        };
        if missing {
            eprintln!("skipped: the emulator cannot open serial ports");
        }
        missing
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_replugged_board_is_read_again_under_its_name() {
        if emulated() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("usb-board");
        let settings = SerialSettings { idle_reopen_secs: 1, ..SerialSettings::new(&link) };
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let reader = tokio::spawn(async move {
            let clock = SensingClock::start();
            run(&settings, 7, &clock, &mut |captured| sender.send(line_of(captured)).unwrap()).await;
        });
        // Not there yet; then plugged in, out, and in again as another device.
        for round in 0..2 {
            sleep(Duration::from_millis(300)).await;
            let mut board = plug(&link);
            let text = format!("line of round {round}\n");
            let line = timeout(Duration::from_secs(10), async {
                loop {
                    board.write_all(text.as_bytes()).await.unwrap();
                    if let Ok(Some(line)) = timeout(Duration::from_millis(100), received.recv()).await
                        && line == text.trim_end()
                    {
                        return line;
                    }
                }
            })
            .await
            .expect("the source opens the port when it is there");
            assert_eq!(line, text.trim_end());
            drop(board);
            std::fs::remove_file(&link).unwrap();
        }
        reader.abort();
    }

    #[tokio::test]
    async fn a_held_port_is_an_error_that_says_so() {
        if emulated() {
            return;
        }
        let (_board, far) = SerialStream::pair().unwrap();
        let settings = SerialSettings::new(far.name().unwrap());
        let _held = open(&settings).unwrap();
        let error = open(&settings).unwrap_err();
        assert!(error.to_string().contains("another program"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_port_is_an_error_with_a_cure() {
        let error = open(&SerialSettings::new("/dev/serial/by-id/usb-none")).unwrap_err();
        assert!(error.to_string().contains("aetherd ports"), "{error}");
    }
}
