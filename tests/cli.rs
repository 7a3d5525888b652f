//! The program as a user calls it: exit codes, standard output, standard error.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn aetherd(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_aetherd")).args(args).env_remove("AETHERD_CONFIG").output().unwrap()
}

fn ok(args: &[&str]) -> (String, String) {
    let out = aetherd(args);
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{args:?}: {:?}\n{stderr}", out.status);
    (stdout, stderr)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect()
}

fn summary(stderr: &str) -> Value {
    serde_json::from_str(stderr.lines().last().unwrap()).unwrap()
}

/// The recordings, or `None` (said on standard error) where they are not there.
fn data() -> Option<PathBuf> {
    let root = std::env::var_os("AETHERD_DATA").map(PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"));
    if root.is_dir() {
        return Some(root);
    }
    assert!(std::env::var_os("AETHERD_REQUIRE_DATA").is_none(), "the recordings are missing");
    eprintln!("skipped: no recordings");
    None
}

#[test]
fn help_teaches_and_unknown_words_are_refused() {
    let (help, _) = ok(&["--help"]);
    for word in [
        "run",
        "check",
        "ports",
        "decode",
        "record",
        "import",
        "replay",
        "evaluate",
        "simulate",
        "discovery",
        "demo",
        "head",
    ] {
        assert!(help.contains(word), "{word}");
    }
    assert!(help.contains("First steps"));
    assert!(!aetherd(&["decoed"]).status.success());
}

#[test]
fn a_simulated_recording_decodes_imports_and_replays_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (a, b) = (path("a.pcapng"), path("b.pcapng"));
    ok(&["simulate", "house", "--out", &a, "--seed", "7", "--for", "30s"]);
    ok(&["simulate", "house", "--out", &b, "--seed", "7", "--for", "30s"]);
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap(), "the same seed gives the same bytes");
    let refused = aetherd(&["simulate", "house", "--out", &a]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"), "an existing file is not written over");

    let (frames, stderr) = ok(&["decode", &a, "--iq"]);
    let decoded = lines(&frames);
    let summary = summary(&stderr);
    assert_eq!(summary["frames"], decoded.len());
    assert_eq!(summary["rejects"], serde_json::json!({}));
    assert!(decoded.len() > 4000);
    for frame in &decoded {
        let (bins, iq) = (frame["bins"].as_array().unwrap(), frame["iq"].as_array().unwrap());
        assert_eq!(2 * bins.len(), iq.len());
        assert!(frame.get("freq_mhz").is_some() || frame.get("channel").is_some() || frame["format"] == "espectre-v2");
    }

    let zst = path("c.pcapng.zst");
    ok(&["import", &a, &zst, "--label", "kept"]);
    let (again, _) = ok(&["decode", &zst, "--iq"]);
    assert_eq!(frames, again, "an import changes nothing");

    let (replayed, _) = ok(&["replay", "--json", &a]);
    assert_eq!(replayed, ok(&["replay", "--json", &zst]).0);
    assert!(replayed.contains("\"kind\":\"zone\"") && replayed.contains("\"kind\":\"link\""));
    let tracks: Vec<Value> = lines(&replayed).into_iter().filter(|l| l["kind"] == "track").collect();
    let last = tracks.iter().rfind(|t| t["state"] == "active").expect("the walker is followed");
    assert!(last["tokens"].as_u64().unwrap() > 20 && last["cache_bytes"].as_u64().unwrap() > 10_000, "{last}");
    assert_eq!((&last["cache"], &last["placement"]), (&Value::from("pyramid, f32"), &Value::Null));
    let scalar = ok(&["replay", "--json", "--kernel", "scalar", &a]).0;
    assert_eq!(replayed, scalar, "with untrained weights no number that is shown depends on the kernel");
    let (text, _) = ok(&["replay", &a]);
    assert!(text.contains("tokens, cache") && text.contains("people at least 1"), "{text}");
    let refused = aetherd(&["replay", "--set", "head.kernel=turbo", &a]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("`turbo`; expected scalar, neon or avx2"), "{error}");
    for line in lines(&replayed).iter().filter(|l| l["kind"] == "zone") {
        assert_eq!(line["source"], "simulated", "a recording of simulated frames stays simulated");
        assert!(line["t"].as_str().unwrap().len() > 24 && line["t_s"].is_number());
    }
    let events: Vec<Value> = lines(&replayed).into_iter().filter(|l| l["kind"] == "event").collect();
    assert_eq!(events[0]["event"], "entered", "somebody walks from second 15 on: {events:?}");
    assert!(events[0]["t_s"].as_f64().unwrap() > 14.0);
}

#[test]
fn decode_reads_standard_input_and_counts_what_it_refuses() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_aetherd"))
        .args(["decode", "-", "--rate-hz", "10", "--format", "text"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let zeros = "0,".repeat(127);
    let text = format!(
        "I (331) wifi:mode\nCSI_DATA,0,94:d9:b3:80:8c:81,-30,11,1,6,1,0,1,0,1,0,0,-93,0,13,2,2751923,0,67,0,128,1,\"[1,{zeros}\n\
         CSI_DATA,1,2,3\n"
    );
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(65), "not one frame");
    let summary = summary(&String::from_utf8(out.stderr).unwrap());
    assert_eq!(summary["frames"], 0);
    assert_eq!(summary["rejects"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum::<u64>(), 2);
    assert_eq!(summary["other"]["console_text"], 1);
}

#[test]
fn errors_say_what_was_expected() {
    let out = aetherd(&["decode", "/nonexistent/x.pcapng"]);
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("/nonexistent/x.pcapng"));
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("bad.toml");
    std::fs::write(&config, "[mqtt]\nhots = \"x\"\n").unwrap();
    let out = aetherd(&["check", "--config", config.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&out.stdout).contains("bad.toml:2: unknown key `hots`: did you mean `host`?"));
    let out = aetherd(&["run", "--config", config.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(78), "a daemon does not start with a wrong configuration");
    let out = aetherd(&["check", "--format", "json", "--config", config.to_str().unwrap()]);
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&json["ok"], &json["findings"][0]["line"]), (&Value::Bool(false), &serde_json::json!(2)));
}

#[test]
fn discovery_print_names_what_is_configured_and_sends_nothing() {
    let (text, _) = ok(&["discovery", "print", "--set", "mqtt.instance=test", "--set", "mqtt.host=nowhere.invalid"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    let zone = &json["homeassistant/device/aetherd_test_zone_home/config"];
    assert_eq!(zone["components"]["occupancy"]["device_class"], "occupancy");
    assert!(json["homeassistant/device/aetherd_test/config"]["origin"]["name"].is_string());
}

#[test]
fn evaluate_judges_a_simulated_visit_and_writes_the_agreed_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    ok(&["simulate", "empty", "--out", &path("empty.pcapng"), "--for", "40s"]);
    ok(&["simulate", "walk", "--out", &path("walk.pcapng"), "--for", "40s"]);
    let manifest = path("m.toml");
    std::fs::write(
        &manifest,
        "[[recording]]\npath = \"empty.pcapng\"\nsession = \"a\"\nlabel = \"empty\"\n\
         [[recording]]\npath = \"walk.pcapng\"\nformat = \"pcapng\"\nsession = \"b\"\ntruth = [{ from_s = 5.0, to_s = 38.0, label = \"motion\" }]\n",
    )
    .unwrap();
    let (json, svg) = (path("out.json"), path("out.svg"));
    let (table, _) = ok(&["evaluate", &manifest, "--json", &json, "--svg", &svg]);
    assert!(table.contains("pooled") && table.contains("empty.pcapng"));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["task"], "motion");
    for key in ["recall", "precision", "fp_rate", "f1", "balanced_accuracy", "auc", "coverage", "n_windows", "ci95"] {
        assert!(!report["pooled"][key].is_null(), "{key}");
        assert!(report["recordings"][0].get(key).is_some(), "{key}");
    }
    for key in ["path", "session", "alarms", "first_alarm_s", "onset_s"] {
        assert!(report["recordings"][1].get(key).is_some(), "{key}");
    }
    assert_eq!(report["recordings"][1]["onset_s"], 5.0);
    assert_eq!(report["recordings"][0]["alarms"], 0, "an empty simulated room");
    assert!(report["pooled"]["balanced_accuracy"].as_f64().unwrap() > 0.9, "{table}");
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("walk.pcapng"));
    let again = path("again.json");
    ok(&["evaluate", &manifest, "--json", &again]);
    assert_eq!(std::fs::read(&json).unwrap(), std::fs::read(&again).unwrap(), "the same input gives the same report");

    std::fs::write(&manifest, "[[recording]]\npath = \"empty.pcapng\"\nsession = \"a\"\n").unwrap();
    let out = aetherd(&["evaluate", &manifest]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("either `label`"));
}

#[test]
fn every_public_form_decodes_from_the_command_line() {
    let Some(data) = data() else { return };
    // File, frames that the folder's README or an independent count says are good.
    for (file, frames) in [
        ("espectre/test/test_c3_64sc_20260329_130804.npz", 6068),
        ("ialr-esp32s3-motion/part_1.csv.bz2", 1276),
        ("hhjh-esp32s3-fall/still.txt.bz2", 6000),
        ("wisensing-esp32-crossing/person_200cm_1.csv.bz2", 7888),
        ("ruview-2node/pretrain-1775182186.csi.jsonl.bz2", 5309),
        ("format-samples/giovanihoff_espcsi.csv.bz2", 1010),
    ] {
        let path = data.join(file);
        let (out, err) = ok(&["decode", "--no-rejects", path.to_str().unwrap()]);
        let n = out.lines().count();
        if file.starts_with("hhjh") {
            assert!((5900..6200).contains(&n), "{file}: {n}");
        } else {
            assert_eq!(n, frames, "{file}: {}", err.lines().last().unwrap_or_default());
        }
        assert_eq!(summary(&err)["frames"], n);
    }
}
