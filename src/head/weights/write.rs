//! Tensors -> bytes of a weight file, and onto the disk in one piece.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use half::f16;

use super::header::{FLAG_F16, FLAG_GAINS, FLAG_INFO, FLAG_PROJECTION};
use super::info::INFO_LIMIT;
use super::layout::{gain_elements, projection_elements};
use super::{WeightBlob, WeightBlobHeader, WeightDtype, WeightError, WeightInfo, WeightTensor};

/// All numbers of a network in single precision, as a training or an initialisation has them.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightTensors {
    /// Numbers of a token.
    pub input_dim: u16,
    /// Query heads.
    pub n_q_heads: u16,
    /// Key/value heads.
    pub n_kv_heads: u16,
    /// Numbers per head.
    pub head_dim: u16,
    /// Layers.
    pub n_layers: u16,
    /// Classes.
    pub n_classes: u16,
    /// Payload in the order of the file.
    pub payload: Vec<f32>,
    /// RMSNorm gains: a vector per layer and a final one.
    pub gains: Option<Vec<f32>>,
    /// Projection head: both matrices.
    pub projection: Option<Vec<f32>>,
    /// The JSON block.
    pub info: Option<WeightInfo>,
}

impl WeightTensors {
    /// The header of a file with these tensors.
    ///
    /// # Errors
    /// [`WeightError`] where the dimensions or their product do not fit the format.
    pub fn header(&self, dtype: WeightDtype) -> Result<WeightBlobHeader, WeightError> {
        let mut header = WeightBlobHeader {
            flags: if dtype == WeightDtype::F16 { FLAG_F16 } else { 0 },
            input_dim: self.input_dim,
            n_q_heads: self.n_q_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            n_layers: self.n_layers,
            n_classes: self.n_classes,
            weights_len: 0,
        };
        for (flag, there) in [
            (FLAG_GAINS, self.gains.is_some()),
            (FLAG_PROJECTION, self.projection.is_some()),
            (FLAG_INFO, self.info.is_some()),
        ] {
            header.flags |= if there { flag } else { 0 };
        }
        let bytes = header.payload_elements() * dtype.size() as u128;
        header.weights_len = u32::try_from(bytes).map_err(|_| WeightError::TooLarge {
            what: "payload",
            got: bytes,
            limit: u32::MAX.into(),
            cure: "choose a smaller network",
        })?;
        header.check()?;
        Ok(header)
    }

    /// The file. What it returns passes [`WeightBlob::parse`].
    ///
    /// # Errors
    /// [`WeightError`] where lengths do not fit the dimensions, a number is not finite or not representable, or the JSON
    /// block is wrong or too long.
    pub fn to_bytes(&self, dtype: WeightDtype) -> Result<Vec<u8>, WeightError> {
        let header = self.header(dtype)?;
        let gains = self.gains.as_deref().unwrap_or_default();
        let projection = self.projection.as_deref().unwrap_or_default();
        for (what, wanted, expected, got) in [
            ("payload", true, header.payload_elements(), &*self.payload),
            ("RMSNorm gains", header.has(FLAG_GAINS), gain_elements(&header) as u128, gains),
            ("projection head", header.has(FLAG_PROJECTION), projection_elements(&header) as u128, projection),
        ] {
            if wanted && expected != got.len() as u128 {
                let cure = "give as many numbers as the dimensions ask for";
                return Err(WeightError::Length { what, expected: expected * 4, got: got.len() as u128 * 4, cure });
            }
        }
        self.check_numbers(&header)?;
        let size = dtype.size();
        let mut out = header.to_bytes().to_vec();
        push(&mut out, &self.payload, dtype);
        for section in [&self.gains, &self.projection].into_iter().flatten() {
            out.extend_from_slice(&((section.len() * size) as u32).to_le_bytes());
            push(&mut out, section, dtype);
        }
        if let Some(info) = &self.info {
            info.check(&header)?;
            let json = serde_json::to_vec(info).map_err(WeightError::Json)?;
            if json.len() > INFO_LIMIT {
                let cure = "shorten the text in it";
                let (got, limit) = (json.len() as u128, INFO_LIMIT as u128);
                return Err(WeightError::TooLarge { what: "information block", got, limit, cure });
            }
            out.extend_from_slice(&(json.len() as u32).to_le_bytes());
            out.extend_from_slice(&json);
        }
        let sum = crc32fast::hash(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        Ok(out)
    }

    /// Writes the file under a temporary name beside `path`, syncs it and renames it, so that a power cut leaves the old
    /// file or the new one, and a process that has the old one mapped keeps it.
    ///
    /// # Errors
    /// [`WeightError::Exists`] without `replace`; else as [`to_bytes`](Self::to_bytes), or what the file system says.
    pub fn write(&self, path: &Path, dtype: WeightDtype, replace: bool) -> Result<(), WeightError> {
        if !replace && path.exists() {
            return Err(WeightError::Exists(path.to_owned()));
        }
        write_atomically(path, &self.to_bytes(dtype)?).map_err(|source| WeightError::Io {
            what: "write",
            path: path.to_owned(),
            source,
        })
    }

    fn check_numbers(&self, header: &WeightBlobHeader) -> Result<(), WeightError> {
        let mut numbers = [&self.payload[..], self.gains.as_deref().unwrap_or_default()]
            .into_iter()
            .chain([self.projection.as_deref().unwrap_or_default()])
            .flatten();
        for tensor in WeightTensor::all(header) {
            let (rows, columns) = tensor.shape(header);
            for (index, &value) in numbers.by_ref().take(rows * columns).enumerate() {
                if !value.is_finite() {
                    return Err(WeightError::NotFinite { tensor, index, value });
                }
                if header.dtype() == WeightDtype::F16 && !f16::from_f32(value).is_finite() {
                    return Err(WeightError::NotHalf { tensor, index, value });
                }
            }
        }
        Ok(())
    }
}

impl WeightBlob {
    /// Writes this file unchanged to another place; see [`WeightTensors::write`].
    ///
    /// # Errors
    /// As [`WeightTensors::write`].
    pub fn write(&self, path: &Path, replace: bool) -> Result<(), WeightError> {
        if !replace && path.exists() {
            return Err(WeightError::Exists(path.to_owned()));
        }
        write_atomically(path, self.as_bytes()).map_err(|source| WeightError::Io {
            what: "write",
            path: path.to_owned(),
            source,
        })
    }
}

fn push(out: &mut Vec<u8>, numbers: &[f32], dtype: WeightDtype) {
    match dtype {
        WeightDtype::F32 => out.extend(numbers.iter().flat_map(|x| x.to_le_bytes())),
        WeightDtype::F16 => out.extend(numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes())),
    }
}

fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a file name is missing"))?;
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        File::open(parent)?.sync_all()
    })();
    if written.is_err() {
        // What was begun is of no use; the error that counts is the first one.
        drop(fs::remove_file(&temporary));
    }
    written
}
