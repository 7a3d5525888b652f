//! The configuration: the shipped file is the reference and changes nothing, mistakes name file, line and cure.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use aetherd::config::{Findings, Loaded, Settings, Severity, load};

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/aetherd.toml")
}

fn load_text(text: &str) -> Result<Loaded, Findings> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    fs::write(&path, text).unwrap();
    load(Some(&path), std::iter::empty(), &[])
}

fn errors(text: &str) -> Vec<String> {
    let findings = load_text(text).unwrap_err().0;
    findings.iter().map(|f| f.to_string().rsplit_once("a.toml:").unwrap().1.to_owned()).collect()
}

#[test]
fn the_shipped_file_is_what_the_program_does_without_it() {
    let loaded = load(Some(&shipped()), std::iter::empty(), &[]).unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.warnings.is_empty());
}

#[test]
fn the_shipped_file_names_every_key() {
    let text = fs::read_to_string(shipped()).unwrap();
    let mut keys = Vec::new();
    let mut settings = Settings { state_dir: Some("/x".into()), ..Settings::default() };
    settings.mqtt.port = Some(1);
    let toml = toml::Table::try_from(&settings).unwrap();
    fn walk(prefix: &str, table: &toml::Table, keys: &mut Vec<String>) {
        for (key, value) in table {
            match value {
                toml::Value::Table(t) => walk(&format!("{prefix}{key}."), t, keys),
                _ => keys.push(format!("{prefix}{key}")),
            }
        }
    }
    walk("", &toml, &mut keys);
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        let last = key.rsplit('.').next().unwrap();
        let named = text.lines().any(|l| {
            let l = l.trim_start_matches('#').trim_start();
            l.starts_with(&format!("{last} ="))
                || l.starts_with(&format!("[[{last}]]"))
                || l.starts_with(&format!("[[frames.{last}]]"))
        });
        assert!(named, "{key} is not explained in config/aetherd.toml");
    }
}

#[test]
fn the_commented_examples_of_the_shipped_file_are_valid() {
    let text = fs::read_to_string(shipped()).unwrap();
    let is_example =
        |l: &str| l.strip_prefix('#').is_some_and(|r| r.starts_with(|c: char| c.is_ascii_lowercase() || c == '['));
    let uncommented: String = text
        .lines()
        .map(|l| if is_example(l) { &l[1..] } else { l })
        .map(|l| {
            if l.starts_with("port = \"/dev/serial/by-id/...\"")
                || l.starts_with("ca_file")
                || l.starts_with("client_")
                || l.starts_with("password_file")
            {
                ""
            } else {
                l
            }
        })
        .map(|l| format!("{l}\n"))
        .collect();
    let loaded = load_text(&uncommented).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(loaded.settings.zone[0].nodes, ["kitchen"]);
    assert_eq!(loaded.settings.frames.serial.len(), 1);
}

#[test]
fn mistakes_name_line_reason_and_cure() {
    assert_eq!(errors("[mqtt]\nhots = \"x\"\n"), ["2: unknown key `hots`: did you mean `host`?"]);
    let e = errors("version = 1\n[occupancy]\nhold_s = 0.0\n");
    assert_eq!(e, ["3: occupancy.hold_s: expected 1 to 3600, got 0: choose a value in that range"]);
    let e = errors("[[zone]]\nname = \"A b\"\n\n[[zone]]\nname = \"a  B\"\n");
    assert!(e[0].starts_with("5: zone.1.name: zones 1 and 2 both have the id `a_b`"), "{e:?}");
    let e = errors("[[zone]]\nname = \"A\"\nnodes = [\"attic\"]\n[[node]]\nname = \"Cellar\"\nnode_id = 1\n");
    assert!(e[0].starts_with("3: zone.0.nodes: no board is called `attic`: known boards: Cellar"), "{e:?}");
    let e = errors("[[node]]\nname = \"Cellar\"\n");
    assert!(e[0].contains("nothing says which board"), "{e:?}");
    let e = errors("version = 2\n");
    assert!(e[0].starts_with("1: version: expected version 1, got 2"), "{e:?}");
    let e = errors("[mqtt]\nbase_topic = \"homeassistant\"\n");
    assert!(e[0].starts_with("1: mqtt:"), "{e:?}");
    let e = errors("[frames.udp]\nlisten = []\n");
    assert!(e[0].contains("no source of frames"), "{e:?}");
}

#[test]
fn an_unstable_port_name_is_a_warning_not_an_error() {
    let loaded = load_text("[[frames.serial]]\nport = \"/dev/ttyUSB0\"\n").unwrap();
    assert_eq!(loaded.warnings.len(), 1);
    assert_eq!(loaded.warnings[0].severity, Severity::Warning);
    assert!(loaded.warnings[0].to_string().contains("by-id"));
}

#[test]
fn conf_d_environment_and_flags_come_in_this_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("aetherd.toml");
    fs::write(&path, "[mqtt]\nhost = \"file\"\nuser = \"file\"\ninstance = \"file\"\nbase_topic = \"file\"\n").unwrap();
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    fs::write(dir.path().join("conf.d/10.toml"), "[mqtt]\nuser = \"d\"\ninstance = \"d\"\nbase_topic = \"d\"\n")
        .unwrap();
    fs::write(dir.path().join("conf.d/ignored.txt"), "nonsense").unwrap();
    let env = [("AETHERD_MQTT__INSTANCE", "env"), ("AETHERD_MQTT__BASE_TOPIC", "env"), ("OTHER", "x")];
    let env = env.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
    let m = load(Some(&path), env, &["mqtt.base_topic=flag".to_owned()]).unwrap().settings.mqtt;
    assert_eq!(
        (m.host.as_str(), m.user.as_str(), m.instance.as_str(), m.base_topic.as_str()),
        ("file", "d", "env", "flag")
    );
}

#[test]
fn secrets_are_never_printed() {
    let loaded = load_text("[mqtt]\nuser = \"u\"\npassword = \"hunter2\"\n").unwrap();
    assert!(!format!("{loaded:?}").contains("hunter2"));
}
