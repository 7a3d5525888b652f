//! Layers of configuration: defaults < file < `conf.d/*.toml` < environment < flags.
//!
//! Each layer is checked by itself against the type of the settings, so that an unknown key is reported with its own
//! file and line; then the tables are merged (tables key by key, everything else replaced) and read once more.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::finding::Finding;

/// Prefix of environment variables that set a key: `AETHERD_MQTT__HOST` sets `mqtt.host`.
pub const ENV_PREFIX: &str = "AETHERD_";

/// Variables with the prefix that are not keys of the configuration; those of the tests by the beginning of their names.
fn is_key(rest: &str) -> bool {
    !["CONFIG", "LOG", "DATA"].contains(&rest)
        && !["REQUIRE_", "TEST_", "SOAK_", "FULL_DISK_"].iter().any(|p| rest.starts_with(p))
}

/// One layer.
#[derive(Debug, Clone)]
pub struct Layer {
    /// File name or variable name, as shown in findings.
    pub name: String,
    /// The text, for looking up lines; empty for variables.
    text: String,
    table: Table,
}

impl Layer {
    /// Reads a file as a layer of settings of type `T`.
    pub fn from_file<T: DeserializeOwned>(path: &Path) -> Result<Self, Finding> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| {
            Finding::error(&name, None, format!("cannot read the file: {e}"), "check the path and its permissions")
        })?;
        Self::from_text::<T>(&name, text)
    }

    /// Reads a text as a layer of settings of type `T`.
    pub fn from_text<T: DeserializeOwned>(name: &str, text: String) -> Result<Self, Finding> {
        toml::from_str::<T>(&text).map_err(|e| syntax_finding(name, &text, &e))?;
        let table = text.parse::<Table>().map_err(|e| syntax_finding(name, &text, &e))?;
        Ok(Self { name: name.to_owned(), text, table })
    }

    /// A layer that sets one key, given as `a.b.c` and a value in TOML or, where that does not fit, as plain text.
    pub fn from_assignment<T: DeserializeOwned>(name: &str, key: &str, value: &str) -> Result<Self, Finding> {
        let typed = format!("x = {value}").parse::<Table>().ok().and_then(|mut t| t.remove("x"));
        let plain = Value::String(value.to_owned());
        let mut first_error = None;
        for candidate in typed.into_iter().chain([plain]) {
            let table = nest(key, candidate);
            match T::deserialize(Value::Table(table.clone())) {
                Ok(_) => return Ok(Self { name: name.to_owned(), text: String::new(), table }),
                Err(e) => first_error = first_error.or(Some(e)),
            }
        }
        let message = first_error.map(|e: toml::de::Error| e.message().to_owned()).unwrap_or_default();
        let (what, cure) = explain(&message);
        Err(Finding::error(name, None, what, cure))
    }

    /// Line of a key, where this layer sets it in a file. List items are given by their index.
    pub fn line_of(&self, path: &[&str]) -> Option<usize> {
        let root = toml::de::DeTable::parse(&self.text).ok()?;
        let mut table = root.get_ref();
        let mut offset = None;
        let mut rest = path;
        while let Some((head, tail)) = rest.split_first() {
            let (key, value) = table.iter().find(|(k, _)| k.get_ref().as_ref() == *head)?;
            offset = Some(key.span().start);
            rest = tail;
            let mut value = value;
            while let toml::de::DeValue::Array(items) = value.get_ref() {
                let Some((index, tail)) = rest.split_first() else { break };
                value = items.get(index.parse::<usize>().ok()?)?;
                offset = Some(value.span().start);
                rest = tail;
            }
            match value.get_ref() {
                toml::de::DeValue::Table(t) => table = t,
                _ if rest.is_empty() => break,
                _ => return None,
            }
        }
        offset.map(|o| line_at(&self.text, o))
    }

    /// Whether this layer sets the key.
    pub fn sets(&self, path: &[&str]) -> bool {
        let mut value = Value::Table(self.table.clone());
        for part in path {
            let next = match &value {
                Value::Table(t) => t.get(*part).cloned(),
                Value::Array(a) => part.parse::<usize>().ok().and_then(|i| a.get(i).cloned()),
                _ => None,
            };
            match next {
                Some(v) => value = v,
                None => return false,
            }
        }
        true
    }
}

/// The layers that the environment makes, sorted by name so that the result does not depend on the order of variables.
pub fn from_environment<T: DeserializeOwned>(
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Vec<Layer>, Vec<Finding>> {
    let mut mine: Vec<(String, String)> =
        variables.filter(|(k, _)| k.strip_prefix(ENV_PREFIX).is_some_and(is_key)).collect();
    mine.sort();
    let mut layers = Vec::new();
    let mut findings = Vec::new();
    for (name, value) in mine {
        let key = name[ENV_PREFIX.len()..].to_ascii_lowercase().replace("__", ".");
        match Layer::from_assignment::<T>(&name, &key, &value) {
            Ok(layer) => layers.push(layer),
            Err(finding) => findings.push(finding),
        }
    }
    if findings.is_empty() { Ok(layers) } else { Err(findings) }
}

/// Merges the layers, later ones over earlier ones, and reads the result.
pub fn merge<T: DeserializeOwned>(layers: &[Layer]) -> Result<T, Finding> {
    let mut merged = Table::new();
    for layer in layers {
        overlay(&mut merged, &layer.table);
    }
    T::deserialize(Value::Table(merged)).map_err(|e| {
        let name = layers.iter().map(|l| l.name.as_str()).collect::<Vec<_>>().join(" + ");
        let (what, cure) = explain(e.message());
        Finding::error(&name, None, what, cure)
    })
}

fn overlay(base: &mut Table, over: &Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(b)), Value::Table(o)) => overlay(b, o),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

fn nest(key: &str, value: Value) -> Table {
    let mut table = Table::new();
    match key.split_once('.') {
        Some((head, rest)) => table.insert(head.to_owned(), Value::Table(nest(rest, value))),
        None => table.insert(key.to_owned(), value),
    };
    table
}

fn syntax_finding(name: &str, text: &str, error: &toml::de::Error) -> Finding {
    let (what, cure) = explain(error.message());
    Finding::error(name, error.span().map(|s| line_at(text, s.start)), what, cure)
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count()
}

/// Makes (what, cure) of a message of the TOML reader; an unknown key gets the nearest known one.
fn explain(message: &str) -> (String, String) {
    let message = message.trim().replace('\n', " ");
    let quoted = |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    for (kind, noun) in [("unknown field ", "key"), ("unknown variant ", "value")] {
        let Some(rest) = message.strip_prefix(kind) else { continue };
        let names = quoted(rest);
        let Some((unknown, known)) = names.split_first() else { continue };
        let nearest = known
            .iter()
            .map(|k| (strsim::damerau_levenshtein(&unknown.to_lowercase(), k), k))
            .min_by_key(|(d, _)| *d)
            .filter(|(d, k)| *d <= 2.max(k.len() / 3));
        let cure = match nearest {
            Some((_, k)) => format!("did you mean `{k}`?"),
            None if known.is_empty() => format!("no {noun} is allowed here; remove it"),
            None => format!("known here: {}", known.join(", ")),
        };
        return (format!("unknown {noun} `{unknown}`"), cure);
    }
    (message, "see the comments in config/aetherd.toml for what is allowed".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Mqtt {
        host: String,
        port: u16,
        base_topic: String,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Sample {
        mqtt: Mqtt,
        zone: Vec<Mqtt>,
    }

    fn layer(text: &str) -> Result<Layer, Finding> {
        Layer::from_text::<Sample>("a.toml", text.to_owned())
    }

    #[test]
    fn unknown_keys_name_file_line_and_the_nearest_key() {
        let f = layer("[mqtt]\nhost = \"x\"\n\nprot = 1883\n").unwrap_err();
        assert_eq!(f.to_string(), "a.toml:4: unknown key `prot`: did you mean `port`?");
        let f = layer("[mqtt]\nqwertz = 1\n").unwrap_err();
        assert_eq!(f.to_string(), "a.toml:2: unknown key `qwertz`: known here: host, port, base_topic");
        let f = layer("[mqtt]\nport = \"x\"\n").unwrap_err();
        assert_eq!(f.line, Some(2), "{f}");
        let f = layer("[mqtt\n").unwrap_err();
        assert_eq!(f.line, Some(1), "{f}");
    }

    #[test]
    fn later_layers_win_key_by_key() {
        let base = layer("[mqtt]\nhost = \"a\"\nport = 1\n").unwrap();
        let env = [("AETHERD_MQTT__PORT".to_owned(), "2".to_owned()), ("AETHERD_LOG".to_owned(), "x".to_owned())];
        let mut layers = vec![base];
        layers.extend(from_environment::<Sample>(env.into_iter()).unwrap());
        let merged: Sample = merge(&layers).unwrap();
        assert_eq!((merged.mqtt.host.as_str(), merged.mqtt.port), ("a", 2));
    }

    #[test]
    fn environment_values_may_be_text_that_looks_like_a_number() {
        let env = [("AETHERD_MQTT__HOST".to_owned(), "10".to_owned())];
        let layers = from_environment::<Sample>(env.into_iter()).unwrap();
        assert_eq!(merge::<Sample>(&layers).unwrap().mqtt.host, "10");
        let bad = [("AETHERD_MQTT__PORTT".to_owned(), "10".to_owned())];
        let f = from_environment::<Sample>(bad.into_iter()).unwrap_err();
        assert_eq!(f[0].to_string(), "AETHERD_MQTT__PORTT: unknown key `portt`: did you mean `port`?");
    }

    #[test]
    fn lines_of_keys_in_tables_and_lists() {
        let l = layer("[mqtt]\nhost = \"a\"\n\n[[zone]]\nhost = \"b\"\n[[zone]]\nport = 3\n").unwrap();
        assert_eq!(l.line_of(&["mqtt", "host"]), Some(2));
        assert_eq!(l.line_of(&["zone", "1", "port"]), Some(7));
        assert_eq!(l.line_of(&["zone", "2"]), None);
        assert!(l.sets(&["zone", "0", "host"]) && !l.sets(&["zone", "0", "port"]));
    }
}
