//! Mistakes that wait for a person: named as faults, with the cure, and gone once corrected.
#![allow(clippy::unwrap_used)]

mod mqtt_support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aetherd::mqtt::{self, Secret, Settings};
use mqtt_support::{Broker, Daemon, Subscriber, eventually, settings};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rumqttc::{AsyncClient, MqttOptions};

/// A certificate authority in `dir`, as `<name>.pem`.
fn authority(dir: &Path, name: &str) -> Issuer<'static, KeyPair> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
    Issuer::new(params, key)
}

/// A certificate for `names` in `dir`, as `<name>.pem` and `<name>.key`.
fn certificate(dir: &Path, name: &str, names: &[&str], issuer: &Issuer<'_, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.signed_by(&key, issuer).unwrap();
    std::fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
    std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

async fn fault(daemon: &Daemon) -> String {
    eventually("a fault", || daemon.handle.status().fault.is_some()).await;
    let status = daemon.handle.status();
    assert!(!status.connected);
    status.fault.unwrap()
}

async fn connects(daemon: &Daemon) {
    eventually("a connection without a fault", || {
        let status = daemon.handle.status();
        status.connected && status.fault.is_none()
    })
    .await;
}

const TLS: &str = "allow_anonymous true\ncafile DIR/ca.pem\ncertfile DIR/server.pem\nkeyfile DIR/server.key\n";

fn tls_broker(names: &[&str], more: &str) -> Option<(Broker, Issuer<'static, KeyPair>)> {
    let mut broker = Broker::mosquitto("allow_anonymous true")?;
    broker.kill();
    let issuer = authority(broker.dir.path(), "ca");
    certificate(broker.dir.path(), "server", names, &issuer);
    broker.configure(&format!("{TLS}{more}"));
    broker.start();
    Some((broker, issuer))
}

fn tls_settings(broker: &Broker, ca: &str) -> Settings {
    Settings { tls: true, ca_file: Some(broker.dir.path().join(ca)), ..settings(broker.port) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_the_right_authority_connects_and_with_another_does_not() {
    let Some((broker, _)) = tls_broker(&["localhost", "127.0.0.1"], "") else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(tls_settings(&broker, "ca.pem"), dir.path());
    connects(&daemon).await;
    eventually("acknowledgements", || daemon.handle.status().acknowledged_total > 4).await;
    daemon.stop().await;

    authority(broker.dir.path(), "other");
    let daemon = Daemon::start(tls_settings(&broker, "other.pem"), dir.path());
    let text = fault(&daemon).await;
    assert!(text.contains("not trusted") && text.contains("ca_file"), "{text}");
    // Corrected while it runs: no restart is needed.
    std::fs::copy(broker.dir.path().join("ca.pem"), broker.dir.path().join("other.pem")).unwrap();
    connects(&daemon).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_for_another_name_is_not_trusted() {
    let Some((broker, _)) = tls_broker(&["broker.example"], "") else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(tls_settings(&broker, "ca.pem"), dir.path());
    let text = fault(&daemon).await;
    assert!(text.contains("not trusted") && text.contains("host"), "{text}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_shown_where_it_is_asked_for() {
    let names = ["localhost", "127.0.0.1"];
    let Some((broker, issuer)) = tls_broker(&names, "require_certificate true\n") else { return };
    certificate(broker.dir.path(), "client", &[], &issuer);
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(tls_settings(&broker, "ca.pem"), dir.path());
    let text = fault(&daemon).await;
    assert!(text.contains("client_cert_file"), "{text}");
    daemon.stop().await;

    let with_certificate = Settings {
        client_cert_file: Some(broker.dir.path().join("client.pem")),
        client_key_file: Some(broker.dir.path().join("client.key")),
        ..tls_settings(&broker, "ca.pem")
    };
    let daemon = Daemon::start(with_certificate, dir.path());
    connects(&daemon).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_to_a_port_without_it_and_a_missing_file_are_named() {
    let Some(broker) = Broker::mosquitto("allow_anonymous true") else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(tls_settings(&broker, "ca.pem"), dir.path());
    let text = fault(&daemon).await;
    assert!(text.contains("ca_file") && text.contains("ca.pem"), "{text}");
    daemon.stop().await;
    authority(broker.dir.path(), "ca");
    let error = mqtt::probe(&tls_settings(&broker, "ca.pem")).await.unwrap_err();
    // Mosquitto closes on the unknown bytes; whether an answer comes before is up to it.
    assert!(error.to_string().contains(&broker.port.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_a_fault_and_a_corrected_file_is_enough() {
    let Some(mut broker) = Broker::mosquitto("allow_anonymous true") else { return };
    broker.kill();
    let made = Command::new("mosquitto_passwd")
        .args(["-b", "-c"])
        .arg(broker.dir.path().join("users"))
        .args(["aetherd", "right"])
        .status();
    assert!(made.is_ok_and(|s| s.success()), "mosquitto_passwd comes with mosquitto");
    broker.configure("allow_anonymous false\npassword_file DIR/users");
    broker.start();
    let dir = tempfile::tempdir().unwrap();
    let file = broker.dir.path().join("password");
    std::fs::write(&file, "wrong\n").unwrap();
    let with_file = Settings { user: "aetherd".into(), password_file: Some(file.clone()), ..settings(broker.port) };
    let daemon = Daemon::start(with_file, dir.path());
    let text = fault(&daemon).await;
    assert!(text.contains("aetherd") && text.contains("password_file") && !text.contains("wrong"), "{text}");
    std::fs::write(&file, "right\n").unwrap();
    connects(&daemon).await;
    daemon.stop().await;
    let direct = Settings { user: "aetherd".into(), password: Secret("right".into()), ..settings(broker.port) };
    mqtt::probe(&direct).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_host_is_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let unknown = Settings { host: "no-such-host.invalid".into(), connect_timeout_ms: 20_000, ..settings(1883) };
    let daemon = Daemon::start(unknown, dir.path());
    let text = fault(&daemon).await;
    assert!(text.contains("no-such-host.invalid"), "{text}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_client_with_our_id_is_recognised() {
    let Some(broker) = Broker::mosquitto("allow_anonymous true") else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(Settings { stable_ms: 2_000, ..settings(broker.port) }, dir.path());
    let port = broker.port;
    let rival = tokio::spawn(async move {
        let mut options = MqttOptions::new("aetherd_t1", ("127.0.0.1", port));
        options.set_keep_alive(5);
        let (_client, mut event_loop) = AsyncClient::builder(options).capacity(4).build();
        loop {
            if event_loop.poll().await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    eventually("the rival is named", || {
        daemon.handle.status().fault.is_some_and(|f| f.contains("another client uses the client id aetherd_t1"))
    })
    .await;
    rival.abort();
    connects(&daemon).await;
    let subscriber = Subscriber::start(broker.port, &["aetherd/#"]).await;
    subscriber.until_on("aetherd/t1/status", "online").await;
    daemon.stop().await;
}
