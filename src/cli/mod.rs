//! The command line, one file per subcommand. Data goes to standard output, everything else to standard error.

mod check;
mod decode;
mod demo;
mod discovery;
mod evaluate;
mod head;
mod import;
mod input;
mod output;
mod ports;
mod printer;
mod record;
mod replay;
mod run;
mod simulate;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{self, Findings, Loaded};
use crate::telemetry::{self, LogFormat};

/// Exit codes of `sysexits.h`, as service managers and scripts know them.
pub(crate) mod exit {
    /// The input is not what it should be.
    pub(crate) const DATA: u8 = 65;
    /// Something that is needed is not there now (broker, port).
    pub(crate) const UNAVAILABLE: u8 = 69;
    /// The configuration is wrong.
    pub(crate) const CONFIG: u8 = 78;
}

const AFTER_HELP: &str = "\
First steps:
  aetherd demo                        see the whole pipeline work, with nothing set up
  aetherd ports                       which serial ports there are, and the lines to paste into the configuration
  aetherd check --online              is the configuration right, do the boards and the broker answer
  aetherd run                         the service

Configuration: /etc/aetherd/aetherd.toml and /etc/aetherd/conf.d/*.toml, then AETHERD_… variables, then flags.
Nothing leaves this machine but what is published to your own MQTT broker.";

/// Wi-Fi CSI sensing for small Linux machines: ESP32 boards in, occupancy for Home Assistant out.
#[derive(Debug, Parser)]
#[command(name = "aetherd", version, about, after_help = AFTER_HELP, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// Flags that every subcommand takes.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Configuration file; without it the default path if it exists, else embedded defaults
    #[arg(long, short, global = true, value_name = "FILE", env = "AETHERD_CONFIG")]
    config: Option<PathBuf>,
    /// Set one key, for example --set mqtt.host=10.0.0.2 (wins over file and environment; may be repeated)
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Attention kernel to use: auto (the best of this processor), scalar, neon or avx2
    #[arg(long, global = true, value_name = "KERNEL", value_parser = ["auto", "scalar", "neon", "avx2"])]
    kernel: Option<String>,
    /// More log (repeat for more)
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Less log (repeat for less)
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    quiet: u8,
    /// How the log is written
    #[arg(long, global = true, value_name = "FORMAT", value_parser = ["auto", "text", "json", "journal"])]
    log_format: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service: read the boards, sense, publish
    Run(run::RunArgs),
    /// Check the configuration; findings as file:line: what: cure (exit 78 if it is wrong)
    Check(check::CheckArgs),
    /// List serial ports by their stable names, who may open them, and the lines to paste
    Ports(ports::PortsArgs),
    /// Decode a recording or a stream into one JSON object per frame
    Decode(decode::DecodeArgs),
    /// Record frames as they arrive into a file that Wireshark opens
    Record(record::RecordArgs),
    /// Turn a public recording format into aetherd's own
    Import(import::ImportArgs),
    /// Run recordings through the pipeline: zone states and events
    Replay(replay::ReplayArgs),
    /// Measure accuracy on labelled recordings
    Evaluate(evaluate::EvaluateArgs),
    /// Weights of the temporal head: write untrained ones, describe a file
    Head(head::HeadArgs),
    /// Emit frames of a simulated room in true wire formats, labelled as simulated
    Simulate(simulate::SimulateArgs),
    /// Show, send or remove what Home Assistant is told about us
    Discovery(discovery::DiscoveryArgs),
    /// See the whole pipeline at work, with nothing set up: embedded broker, live view
    Demo(demo::DemoArgs),
}

/// Parses the command line, runs the command and says how it went.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Run(args) => run::run(&cli.common, &args),
        Command::Check(args) => check::run(&cli.common, &args),
        Command::Ports(args) => ports::run(&cli.common, &args),
        Command::Decode(args) => decode::run(&cli.common, &args),
        Command::Record(args) => record::run(&cli.common, &args),
        Command::Import(args) => import::run(&cli.common, &args),
        Command::Replay(args) => replay::run(&cli.common, &args),
        Command::Evaluate(args) => evaluate::run(&cli.common, &args),
        Command::Head(args) => head::run(&cli.common, &args),
        Command::Simulate(args) => simulate::run(&cli.common, &args),
        Command::Discovery(args) => discovery::run(&cli.common, &args),
        Command::Demo(args) => demo::run(&cli.common, &args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let broken_pipe = error
                .chain()
                .filter_map(|e| e.downcast_ref::<std::io::Error>())
                .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe);
            if broken_pipe {
                // `aetherd decode x | head` is no failure.
                return ExitCode::SUCCESS;
            }
            output::complain(&format!("aetherd: {error:#}"));
            let code = if error.downcast_ref::<Findings>().is_some() { exit::CONFIG } else { 1 };
            ExitCode::from(code)
        }
    }
}

impl Common {
    /// Keys set by flags; the last one wins.
    fn flags(&self) -> Vec<String> {
        let kernel = self.kernel.iter().map(|k| format!("head.kernel={k}"));
        self.set.iter().cloned().chain(kernel).collect()
    }

    /// The configuration in force for this call.
    fn load(&self) -> Result<Loaded, Findings> {
        config::load(self.config.as_deref(), std::env::vars(), &self.flags())
    }

    /// The configuration, with the log started as it says.
    fn load_and_log(&self) -> Result<Loaded, Findings> {
        let loaded = self.load()?;
        telemetry::init(&self.log_settings(&loaded.settings.log));
        Ok(loaded)
    }

    /// Log for commands that need no configuration.
    fn log_only(&self) {
        telemetry::init(&self.log_settings(&telemetry::Settings::default()));
    }

    fn log_settings(&self, configured: &telemetry::Settings) -> telemetry::Settings {
        let steps = i8::try_from(self.verbose).unwrap_or(5) - i8::try_from(self.quiet).unwrap_or(5);
        let format = match self.log_format.as_deref() {
            Some("text") => LogFormat::Text,
            Some("json") => LogFormat::Json,
            Some("journal") => LogFormat::Journal,
            Some(_) => LogFormat::Auto,
            None => configured.format,
        };
        telemetry::Settings { level: configured.level.raised(steps), format }
    }
}
