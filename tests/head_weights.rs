//! Weight files: what is written is read, and nothing else is.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use aetherd::head::init::{InitSettings, class_names, init};
use aetherd::head::schema::TOKEN_SCHEMA;
use aetherd::head::weights::{
    Normalisation, SchemaId, WEIGHT_BLOB_HEADER_LEN, WEIGHT_BLOB_MAGIC, WeightBlob, WeightBlobHeader, WeightDtype,
    WeightError, WeightInfo, WeightTensor, WeightTensors, WeightValues,
};
use half::f16;
use proptest::prelude::*;

/// A network so small that every bit of its file can be tried: 2 features, 2 query heads on 1, 1 number each, 1 layer.
fn small(sections: bool) -> WeightTensors {
    let number = |i: usize| (i as f32 - 5.0) / 8.0;
    WeightTensors {
        input_dim: 2,
        n_q_heads: 2,
        n_kv_heads: 1,
        head_dim: 1,
        n_layers: 1,
        n_classes: 2,
        payload: (0..16).map(number).collect(),
        gains: sections.then(|| vec![1.0, 0.5, 2.0, -1.0]),
        projection: None,
        info: sections.then(|| WeightInfo {
            schema: SchemaId { name: "s".to_owned(), hash: "0123456789abcdef".to_owned() },
            classes: vec!["a".to_owned(), "b".to_owned()],
            normalisation: Normalisation { mean: vec![0.5, -1.0], std: vec![2.0, 0.25] },
            trained: false,
            trained_on: None,
            scores: None,
            seed: Some(u64::MAX),
            command: None,
        }),
    }
}

/// Makes the check sum right again after a change.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let n = bytes.len() - 4;
    let sum = crc32fast::hash(&bytes[..n]).to_le_bytes();
    bytes[n..].copy_from_slice(&sum);
    bytes
}

fn refused(bytes: &[u8]) -> String {
    let error = WeightBlob::parse(bytes).unwrap_err();
    let source = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
    format!("{error}{source}")
}

fn numbers(blob: &WeightBlob, tensor: WeightTensor) -> Vec<f32> {
    blob.tensor(tensor).unwrap().to_f32()
}

#[test]
fn a_file_encoded_by_hand_is_read_by_its_documented_layout() {
    // 3 features, 2 query heads on 1 key head, 2 numbers each, 1 layer, 2 classes, gains, projection head and JSON.
    let mut file = Vec::new();
    let mut next = 0.0f32;
    let mut count = |file: &mut Vec<u8>, n: usize| {
        for _ in 0..n {
            file.extend(next.to_le_bytes());
            next += 1.0;
        }
    };
    file.extend([0x45, 0x4e, 0x56, 0x52, 1, 0, 0b1110, 0]);
    file.extend([3, 0, 2, 0, 1, 0, 2, 0, 1, 0, 2, 0]);
    let payload = 3 * 4 + 3 * 2 + 3 * 2 + 4 * 3 + 3 * 2;
    file.extend((payload * 4u32).to_le_bytes());
    count(&mut file, payload as usize);
    file.extend((2 * 3 * 4u32).to_le_bytes());
    count(&mut file, 6);
    file.extend(((4 * 128 + 128 * 128) * 4u32).to_le_bytes());
    count(&mut file, 4 * 128 + 128 * 128);
    let json = br#" {"schema":{"name":"x","hash":"00ff"},"classes":["u","v"],"trained":true,"trained_on":"two rooms",
        "normalisation":{"mean":[0,1,2],"std":[1,1.5,2]},"scores":"none yet","later":[{"field":1}]} "#;
    file.extend((json.len() as u32).to_le_bytes());
    file.extend(json);
    // CRC-32 bit by bit, reflected 0xedb88320.
    let mut crc = !0u32;
    for byte in &file {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    file.extend((!crc).to_le_bytes());

    let blob = WeightBlob::parse(&file).unwrap();
    let row = |from: usize, n: usize| (from..from + n).map(|x| x as f32).collect::<Vec<_>>();
    assert_eq!(numbers(&blob, WeightTensor::Wq(0)), row(0, 12));
    assert_eq!(numbers(&blob, WeightTensor::Wk(0)), row(12, 6));
    assert_eq!(numbers(&blob, WeightTensor::Wv(0)), row(18, 6));
    assert_eq!(numbers(&blob, WeightTensor::Wo(0)), row(24, 12));
    assert_eq!(numbers(&blob, WeightTensor::Classifier), row(36, 6));
    assert_eq!(numbers(&blob, WeightTensor::Gain(0)), row(42, 3));
    assert_eq!(numbers(&blob, WeightTensor::FinalGain), row(45, 3));
    assert_eq!(numbers(&blob, WeightTensor::Projection1), row(48, 512));
    assert_eq!(numbers(&blob, WeightTensor::Projection2), row(560, 128 * 128));
    for absent in [WeightTensor::Wq(1), WeightTensor::Wo(1), WeightTensor::Gain(1)] {
        assert!(blob.tensor(absent).is_none(), "{absent}");
    }
    let info = blob.info().unwrap();
    assert_eq!((info.classes.join(" "), info.trained, info.seed), ("u v".to_owned(), true, None));
    assert_eq!(info.normalisation.std, [1.0, 1.5, 2.0]);
    assert_eq!(blob.crc32(), !crc);
}

#[test]
fn the_default_shape_without_sections_is_41_244_bytes() {
    let mut weights = init(&InitSettings::default()).unwrap();
    (weights.gains, weights.projection, weights.info) = (None, None, None);
    assert_eq!(weights.payload.len(), 2 * 5_120 + 64);
    assert_eq!(weights.to_bytes(WeightDtype::F32).unwrap().len(), 41_244);
    assert_eq!(weights.to_bytes(WeightDtype::F16).unwrap().len(), 24 + 2 * 10_304 + 4);
}

#[test]
fn both_precisions_come_back_as_they_were_written_mapped_and_parsed() {
    let dir = tempfile::tempdir().unwrap();
    let weights = init(&InitSettings { seed: 3, ..Default::default() }).unwrap();
    for dtype in [WeightDtype::F32, WeightDtype::F16] {
        let path = dir.path().join(format!("{dtype}.rvne"));
        weights.write(&path, dtype, false).unwrap();
        let mapped = WeightBlob::open(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // From an odd address, where no number is aligned.
        let mut shifted = vec![0u8];
        shifted.extend(&bytes);
        let parsed = WeightBlob::parse(&shifted[1..]).unwrap();
        assert!(mapped.is_mapped() && !parsed.is_mapped());
        assert_eq!(mapped.header(), parsed.header());
        assert_eq!(mapped.info(), parsed.info());
        assert_eq!(mapped.info(), weights.info.as_ref());
        assert_eq!(mapped.as_bytes(), bytes);
        let all =
            weights.payload.iter().chain(weights.gains.iter().flatten()).chain(weights.projection.iter().flatten());
        let mut all = all.copied();
        let mut tensors = 0;
        for ((tensor, a), (_, b)) in mapped.tensors().zip(parsed.tensors()) {
            assert_eq!(a, b, "{tensor}");
            let (rows, columns) = tensor.shape(mapped.header());
            assert_eq!(a.len(), rows * columns, "{tensor}");
            // In place: the numbers are those of the file, not a copy.
            let (start, inside) = match a {
                WeightValues::F32(v) => (v.as_ptr() as usize, dtype == WeightDtype::F32),
                WeightValues::F16(v) => (v.as_ptr() as usize, dtype == WeightDtype::F16),
            };
            assert!(inside && mapped.as_bytes().as_ptr_range().contains(&(start as *const u8)), "{tensor}");
            for (i, got) in a.to_f32().into_iter().enumerate() {
                let written = all.next().unwrap();
                let written = if dtype == WeightDtype::F16 { f16::from_f32(written).to_f32() } else { written };
                assert_eq!(got.to_bits(), written.to_bits(), "{tensor}[{i}]");
            }
            tensors += 1;
        }
        assert_eq!((tensors, all.next()), (2 * 4 + 1 + 3 + 2, None));
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused() {
    for sections in [false, true] {
        for dtype in [WeightDtype::F32, WeightDtype::F16] {
            let file = small(sections).to_bytes(dtype).unwrap();
            WeightBlob::parse(&file).unwrap();
            for n in 0..file.len() {
                let message = refused(&file[..n]);
                assert!(message.contains("expected") && message.contains("cut off"), "{n}: {message}");
            }
            for bit in 0..file.len() * 8 {
                let mut damaged = file.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(WeightBlob::parse(&damaged).is_err(), "bit {bit}");
            }
            let mut longer = file.clone();
            longer.push(0);
            assert!(refused(&longer).contains("something follows the check sum"));
        }
    }
    let file = small(false).to_bytes(WeightDtype::F32).unwrap();
    let mut damaged = file;
    damaged[40] ^= 1;
    assert!(refused(&damaged).contains("CRC-32"), "{}", refused(&damaged));
}

#[test]
fn the_header_is_refused_field_by_field() {
    let file = small(true).to_bytes(WeightDtype::F32).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = file.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        refused(&sealed(changed))
    };
    assert!(with(0, b"RVNE").contains("big-endian order"), "{}", with(0, b"RVNE"));
    assert!(with(0, b"GGUF").contains("expected the magic number 0x52564e45"));
    assert!(with(4, &[2, 0]).contains("version 2"));
    assert!(with(4, &[0, 1]).contains("version 256"));
    assert!(with(6, &[0x1a]).contains("unknown flag bit 4 (flags 0x1a)"), "{}", with(6, &[0x1a]));
    assert!(with(6, &[0xca]).contains("unknown flag bits 6 and 7"));
    assert!(with(7, &[1]).contains("reserved byte 7"));
    for (at, name) in
        [(8, "input_dim"), (10, "n_q_heads"), (12, "n_kv_heads"), (14, "head_dim"), (16, "n_layers"), (18, "n_classes")]
    {
        let message = with(at, &[0, 0]);
        assert!(message.contains(name) && message.contains("at least 1"), "{message}");
    }
    assert!(with(12, &[3, 0]).contains("a divisor of the 2 query heads"));
    // Flags that ask for sections which are not there.
    assert!(
        WeightBlob::parse(&sealed({
            let mut f = file.clone();
            f[6] |= 4;
            f
        }))
        .is_err()
    );
    // Half precision of the same payload length is another shape.
    assert!(
        with(6, &[0x0b]).contains("payload length in the header: expected 32 bytes by the shape in the header, got 64")
    );
}

#[test]
fn an_absurd_shape_ends_before_anything_of_its_size_is_allocated() {
    let absurd = WeightBlobHeader {
        flags: 0,
        input_dim: u16::MAX,
        n_q_heads: u16::MAX,
        n_kv_heads: u16::MAX,
        head_dim: u16::MAX,
        n_layers: u16::MAX,
        n_classes: u16::MAX,
        weights_len: u32::MAX,
    };
    assert!(absurd.payload_elements() > 1 << 64);
    assert!(refused(&absurd.to_bytes()).contains("n_q_heads x head_dim is 4294836225"));
    // 4 GiB by a header that is right in itself, in a file of 28 bytes.
    let large =
        WeightBlobHeader { n_q_heads: 1, n_kv_heads: 1, head_dim: 1 << 12, n_layers: 2, n_classes: 1, ..absurd };
    let bytes = u32::try_from(large.payload_elements() * 4);
    assert!(bytes.is_err(), "does not fit");
    let large = WeightBlobHeader { head_dim: 1 << 11, n_layers: 1, ..large };
    let large = WeightBlobHeader { weights_len: (large.payload_elements() * 4) as u32, ..large };
    let mut file = large.to_bytes().to_vec();
    file.extend([0; 4]);
    let file = sealed(file);
    let used = allocation_counter::measure(|| assert!(refused(&file).contains("payload: expected 2147")));
    assert!(used.bytes_max < 4_096, "{used:?}");
}

#[test]
fn numbers_that_are_none_are_refused_by_tensor_and_index() {
    for dtype in [WeightDtype::F32, WeightDtype::F16] {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let file = small(true).to_bytes(dtype).unwrap();
            // Payload: Wq 0..4, Wk 4..6, Wv 6..8, Wo 8..12, classifier 12..16; gains behind a prefix of 4 bytes.
            for (element, prefix, name) in [
                (5, 0, "Wk of layer 0: element 1"),
                (15, 0, "classifier: element 3"),
                (18, 4, "final RMSNorm gain: element 0"),
            ] {
                let mut bad = file.clone();
                let at = WEIGHT_BLOB_HEADER_LEN + element * dtype.size() + prefix;
                match dtype {
                    WeightDtype::F32 => bad[at..at + 4].copy_from_slice(&value.to_le_bytes()),
                    WeightDtype::F16 => bad[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes()),
                }
                let message = refused(&sealed(bad));
                assert!(message.starts_with(name), "{message}");
            }
            let mut source = small(true);
            source.payload[9] = value;
            let error = source.to_bytes(dtype).unwrap_err().to_string();
            assert!(error.starts_with("Wo of layer 0: element 1"), "{error}");
        }
    }
    let mut source = small(true);
    source.gains.as_mut().unwrap()[3] = 70_000.0;
    source.to_bytes(WeightDtype::F32).unwrap();
    assert!(
        source.to_bytes(WeightDtype::F16).unwrap_err().to_string().contains("final RMSNorm gain: element 1 is 70000")
    );
}

#[test]
fn writing_refuses_what_reading_would() {
    let change = |f: fn(&mut WeightTensors)| {
        let mut w = small(true);
        f(&mut w);
        w.to_bytes(WeightDtype::F32).unwrap_err().to_string()
    };
    assert!(change(|w| w.payload.truncate(15)).contains("payload: expected 64 bytes"));
    assert!(change(|w| w.gains.as_mut().unwrap().push(1.0)).contains("RMSNorm gains: expected 16 bytes"));
    assert!(change(|w| w.projection = Some(vec![])).contains("projection head"));
    assert!(change(|w| w.n_kv_heads = 0).contains("n_kv_heads is 0"));
    assert!(change(|w| w.info.as_mut().unwrap().scores = Some("x".repeat(70_000))).contains("information block"));
    assert!(change(|w| w.info.as_mut().unwrap().trained = true).contains("trained_on"));
}

/// The small file with another JSON block.
fn with_json(json: &[u8]) -> Vec<u8> {
    let mut file = small(false).to_bytes(WeightDtype::F32).unwrap();
    file.truncate(file.len() - 4);
    file[6] |= 8;
    file.extend((json.len() as u32).to_le_bytes());
    file.extend(json);
    file.extend([0; 4]);
    sealed(file)
}

#[test]
fn the_json_block_is_checked() {
    let json = |classes: &str, mean: &str, std: &str| {
        let text = format!(
            r#"{{"schema":{{"name":"s","hash":"1"}},"classes":{classes},"normalisation":{{"mean":{mean},"std":{std}}},"trained":false}}"#
        );
        with_json(text.as_bytes())
    };
    let good = (r#"["a","b"]"#, "[0,0]", "[1,1]");
    WeightBlob::parse(&json(good.0, good.1, good.2)).unwrap();
    for (classes, mean, std, says) in [
        (r#"["a"]"#, good.1, good.2, "classes: expected 2 of them, got 1"),
        (r#"["a","a"]"#, good.1, good.2, "`a` twice"),
        (r#"["a",""]"#, good.1, good.2, "an empty one"),
        (good.0, "[0]", good.2, "means: expected 2"),
        (good.0, "[0,1e39]", good.2, "mean: expected a finite number"),
        (good.0, good.1, "[1,0]", "standard deviation: expected a finite number"),
        (good.0, good.1, "[1,-1]", "standard deviation"),
        (good.0, good.1, "[1,1e-40]", "standard deviation"),
        (good.0, good.1, "[1,null]", "invalid type: null"),
        (good.0, good.1, "[1,1e999]", "number out of range"),
    ] {
        let message = refused(&json(classes, mean, std));
        assert!(message.contains(says), "{message}");
    }
    assert!(refused(&with_json(b"{}")).contains("missing field `schema`"));
    assert!(refused(&with_json(b"\xff\xfe")).contains("not valid"));
    assert!(refused(&with_json(b"")).contains("EOF"));
    let deep = ["{\"later\":".to_owned(), "[".repeat(30_000), "]".repeat(30_000), "}".to_owned()].concat();
    assert!(
        refused(&with_json(deep.as_bytes())).contains("nesting of the JSON: expected at most 16 levels, got 30001")
    );
    let long = [b" ".repeat(65_536), b"{}".to_vec()].concat();
    assert!(refused(&with_json(&long)).contains("65538 bytes, at most 65536"), "{}", refused(&with_json(&long)));
    // A claim of 4 GB.
    let mut claim = with_json(b"{}");
    let at = claim.len() - 4 - 2 - 4;
    claim[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(refused(&sealed(claim)).contains("at most 65536"));
}

#[test]
fn weights_for_other_tokens_are_refused_with_both_names() {
    let weights = init(&InitSettings::default()).unwrap();
    let mut info = weights.info.unwrap();
    info.check_schema(&TOKEN_SCHEMA).unwrap();
    info.schema = SchemaId { name: "other-token-9".to_owned(), hash: "00000000000000aa".to_owned() };
    let error = info.check_schema(&TOKEN_SCHEMA).unwrap_err();
    assert!(matches!(error, WeightError::Schema { .. }));
    let message = error.to_string();
    for part in [
        "`other-token-9`",
        "00000000000000aa",
        "`aetherd-token-1`",
        &TOKEN_SCHEMA.hash_text(),
        "use weights trained for",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn what_is_no_file_is_refused_and_a_file_is_replaced_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.rvne");
    let open = |p: &Path| WeightBlob::open(p).unwrap_err().to_string();
    assert!(open(&path).contains("cannot read"));
    assert!(open(dir.path()).contains("not a regular file"));
    std::fs::write(&path, b"").unwrap();
    assert!(open(&path).contains("header: expected 24 bytes"));
    let weights = small(true);
    assert!(matches!(weights.write(&path, WeightDtype::F32, false), Err(WeightError::Exists(_))));
    weights.write(&path, WeightDtype::F32, true).unwrap();
    let mapped = WeightBlob::open(&path).unwrap();
    let before = mapped.as_bytes().to_vec();
    // A process that uses the old file keeps it.
    weights.write(&path, WeightDtype::F16, true).unwrap();
    assert_eq!(mapped.as_bytes(), before);
    assert_eq!(WeightBlob::open(&path).unwrap().header().dtype(), WeightDtype::F16);
    let copy = dir.path().join("copy.rvne");
    mapped.write(&copy, false).unwrap();
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    assert!(matches!(mapped.write(&copy, false), Err(WeightError::Exists(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file is left");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_shape_comes_back(input in 1u16..20, kv in 1u16..4, group in 1u16..5, dim in 1u16..17, layers in 1u16..4,
                            classes in 1u16..6, sections in 0u8..4, half in any::<bool>()) {
        let mut weights = WeightTensors {
            input_dim: input, n_q_heads: kv * group, n_kv_heads: kv, head_dim: dim, n_layers: layers, n_classes: classes,
            payload: vec![], gains: None, projection: None, info: None,
        };
        let dtype = if half { WeightDtype::F16 } else { WeightDtype::F32 };
        let n = weights.header(dtype).unwrap().payload_elements() as usize;
        // Numbers that both precisions hold exactly.
        weights.payload = (0..n).map(|i| (i % 2_048) as f32).collect();
        if sections & 1 == 1 {
            weights.gains = Some(vec![1.5; usize::from(layers + 1) * usize::from(input)]);
        }
        if sections & 2 == 2 {
            weights.projection = Some(vec![-2.5; usize::from(kv * group * dim) * 128 + 128 * 128]);
        }
        let bytes = weights.to_bytes(dtype).unwrap();
        let blob = WeightBlob::parse(&bytes).unwrap();
        let header = *blob.header();
        prop_assert_eq!(WeightBlobHeader::parse(&header.to_bytes()).unwrap(), header);
        let mut at = 0;
        for (tensor, values) in blob.tensors() {
            let wanted = match tensor {
                WeightTensor::Gain(_) | WeightTensor::FinalGain => vec![1.5; values.len()],
                WeightTensor::Projection1 | WeightTensor::Projection2 => vec![-2.5; values.len()],
                _ => weights.payload[at..at + values.len()].to_vec(),
            };
            at += values.len();
            prop_assert_eq!(values.to_f32(), wanted, "{}", tensor);
        }
        prop_assert_eq!(bytes, blob.as_bytes());
    }

    #[test]
    fn any_bytes_behind_a_good_header_are_an_error_or_a_file(tail in prop::collection::vec(any::<u8>(), 0..300), flags in 0u8..16) {
        let mut bytes = small(false).header(WeightDtype::F32).unwrap().to_bytes().to_vec();
        bytes[6] = flags;
        bytes.extend(tail);
        if bytes.len() >= 28 {
            bytes = sealed(bytes);
        }
        if let Ok(blob) = WeightBlob::parse(&bytes) {
            prop_assert_eq!(blob.as_bytes(), &bytes);
        }
    }
}

#[test]
fn magic_and_names_are_those_of_the_family() {
    assert_eq!(WEIGHT_BLOB_MAGIC, 0x5256_4e45);
    assert_eq!(class_names(2), ["class_0", "class_1"]);
}

/// The program as a user calls it: exit code, standard output, standard error.
fn aetherd(args: &[&str]) -> (i32, String, String) {
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_aetherd"))
        .arg("head")
        .args(args)
        .env_remove("AETHERD_CONFIG")
        .output()
        .unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[test]
fn init_writes_what_info_describes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (a, b, half) = (path("a.rvne"), path("b.rvne"), path("h.rvne"));
    let (code, stdout, stderr) = aetherd(&["init", "--seed", "7", "--out", &a]);
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert!(stderr.contains("UNTRAINED") && stderr.contains("seed 7"), "{stderr}");
    let (code, _, stderr) = aetherd(&["init", "--seed", "7", "--out", &a]);
    assert!(code == 1 && stderr.contains("exists; give --force"), "{code} {stderr}");
    assert_eq!(aetherd(&["init", "--seed", "8", "--out", &a, "--force"]).0, 0);
    assert_eq!(aetherd(&["init", "--seed", "7", "--out", &a, "--force"]).0, 0);
    assert_eq!(aetherd(&["init", "--seed", "7", "--out", &b]).0, 0);
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap(), "the same seed gives the same bytes");

    let (code, text, stderr) = aetherd(&["info", &a]);
    assert_eq!(code, 0, "{stderr}");
    for part in [
        "16 features, 2 layers, 4 query heads on 1 key/value heads of 32, 4 classes",
        "payload 41216 bytes, RMSNorm gains 192 bytes, projection head 131072 bytes, information",
        "no, UNTRAINED: its numbers are random",
        "aetherd head init --seed 7 --layers 2 --q-heads 4 --kv-heads 1 --head-dim 32 --classes 4",
        "class_0, class_1, class_2, class_3",
        "aetherd-token-1",
        "features go in as they are",
        "usable here   yes",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let shape = ["--layers", "1", "--q-heads", "2", "--kv-heads", "2", "--head-dim", "8", "--classes", "3", "--f16"];
    let args = [&["init", "--seed", "1", "--out", &half], &shape[..]].concat();
    assert_eq!(aetherd(&args).0, 0);
    let (code, json, _) = aetherd(&["info", "--format", "json", &half]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, 0);
    let parameters = 4 * 16 * 16 + 16 * 3 + 2 * 16 + 16 * 128 + 128 * 128;
    assert_eq!(
        (&json["dtype"], &json["parameters"], &json["trained"]),
        (&"f16".into(), &parameters.into(), &false.into())
    );
    assert_eq!(json["info"]["seed"], 1);
    let sections = json["sections"].as_array().unwrap();
    let total: u64 = sections.iter().map(|s| s["bytes"].as_u64().unwrap()).sum();
    assert_eq!(24 + total + 3 * 4 + 4, std::fs::metadata(&half).unwrap().len());
    assert_eq!(json["bytes"], std::fs::metadata(&half).unwrap().len());
}

#[test]
fn info_refuses_in_plain_words_what_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (code, _, stderr) = aetherd(&["info", &path("none.rvne")]);
    assert!(code == 1 && stderr.contains("cannot read") && stderr.contains("none.rvne"), "{code} {stderr}");
    let damaged = path("damaged.rvne");
    let mut bytes = small(true).to_bytes(WeightDtype::F32).unwrap();
    bytes[30] ^= 4;
    std::fs::write(&damaged, bytes).unwrap();
    let (code, stdout, stderr) = aetherd(&["info", &damaged]);
    assert!(
        code == 65 && stdout.is_empty() && stderr.contains("CRC-32") && stderr.contains("damaged.rvne"),
        "{stderr}"
    );
    // A sound file for other tokens is described, with the reason why it is of no use here; its text cannot play tricks.
    let foreign = path("foreign.rvne");
    let mut weights = small(true);
    let info = weights.info.as_mut().unwrap();
    (info.trained, info.trained_on) = (true, Some("\u{1b}[2Jtwo rooms".to_owned()));
    weights.write(Path::new(&foreign), WeightDtype::F32, false).unwrap();
    let (code, text, _) = aetherd(&["info", &foreign]);
    assert_eq!(code, 65, "{text}");
    assert!(text.contains("usable here   no") && text.contains("`s` (hash 0123456789abcdef)"), "{text}");
    assert!(text.contains("`aetherd-token-1`") && text.contains("two rooms") && !text.contains('\u{1b}'), "{text}");
    assert!(text.contains("0.500000") && text.contains("2.000000"), "{text}");
    let bare = path("bare.rvne");
    small(false).write(Path::new(&bare), WeightDtype::F16, false).unwrap();
    let (code, text, _) = aetherd(&["info", &bare]);
    assert!(code == 65 && text.contains("no information block"), "{text}");
    for wrong in [&["init", "--seed", "1"][..], &["init", "--seed", "1", "--out", "x", "--layers", "0"], &["info"]] {
        assert_eq!(aetherd(wrong).0, 2, "{wrong:?}");
    }
    let (code, _, stderr) = aetherd(&["init", "--seed", "1", "--out", &path("x"), "--q-heads", "3", "--kv-heads", "2"]);
    assert!(code == 1 && stderr.contains("a divisor of the 3 query heads"), "{stderr}");
    assert!(!Path::new(&path("x")).exists());
}
