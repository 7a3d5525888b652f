//! A weight file in memory or mapped, checked completely.

use std::fs::File;
use std::path::Path;

use half::f16;
use memmap2::Mmap;

use super::layout::Layout;
use super::{WeightBlobHeader, WeightDtype, WeightError, WeightInfo, WeightTensor};

// Tensors are read in place as the file holds them.
const _: () = assert!(cfg!(target_endian = "little"), ".rvne tensors are used in place and are little endian");

/// A checked weight file.
///
/// [`open`](Self::open) maps the file read-only and keeps it mapped: tensors of either precision are used in place,
/// nothing is converted or copied. A file in use must be replaced by renaming another one over it (as
/// [`WeightTensors::write`](super::WeightTensors::write) does), never truncated or written into: access behind the new
/// end of a mapped file ends the process with SIGBUS.
#[derive(Debug)]
pub struct WeightBlob {
    bytes: Storage,
    header: WeightBlobHeader,
    layout: Layout,
    info: Option<WeightInfo>,
}

/// The numbers of one tensor, row-major, in the precision of the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WeightValues<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision.
    F16(&'a [f16]),
}

impl WeightValues<'_> {
    /// How many.
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F16(v) => v.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them, in single precision.
    pub fn get(&self, index: usize) -> Option<f32> {
        match self {
            Self::F32(v) => v.get(index).copied(),
            Self::F16(v) => v.get(index).map(|x| x.to_f32()),
        }
    }

    /// All of them, in single precision.
    pub fn to_f32(&self) -> Vec<f32> {
        match self {
            Self::F32(v) => v.to_vec(),
            Self::F16(v) => v.iter().map(|x| x.to_f32()).collect(),
        }
    }

    /// Position of the first NaN or infinity.
    fn first_not_finite(&self) -> Option<usize> {
        match self {
            Self::F32(v) => v.iter().position(|x| !x.is_finite()),
            Self::F16(v) => v.iter().position(|x| !x.is_finite()),
        }
    }
}

impl WeightBlob {
    /// Opens and checks a file.
    ///
    /// # Errors
    /// [`WeightError`], see [`parse`](Self::parse); also what the file system says.
    pub fn open(path: &Path) -> Result<Self, WeightError> {
        let failed = |what| move |source| WeightError::Io { what, path: path.to_owned(), source };
        // Before opening: a pipe would block there.
        if !std::fs::metadata(path).map_err(failed("read"))?.is_file() {
            return Err(WeightError::NotAFile(path.to_owned()));
        }
        let file = File::open(path).map_err(failed("open"))?;
        if file.metadata().map_err(failed("read"))?.len() == 0 {
            WeightBlobHeader::parse(&[])?;
        }
        // SAFETY: the map is private to this value and read-only. Its bytes are plain numbers for which every bit pattern
        // is valid. That nobody writes into or truncates the file while it is mapped cannot be enforced; it is the documented
        // contract of `.rvne` files, and all of our writers replace them by rename, which leaves the mapped inode alone.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) }.map_err(failed("map"))?;
        Self::check(Storage::Mapped(map))
    }

    /// Checks a file in memory. The bytes are copied once, into a buffer that is aligned for every type of number.
    ///
    /// # Errors
    /// [`WeightError`]: magic, version, flags and dimensions; any length that does not fit the shape; check sum; NaN or
    /// infinity by tensor and index; a JSON block that is not valid.
    pub fn parse(bytes: &[u8]) -> Result<Self, WeightError> {
        // Lengths first: what is not a weight file need not be copied.
        Layout::of(&WeightBlobHeader::parse(bytes)?, bytes)?;
        Self::check(Storage::owned(bytes))
    }

    fn check(storage: Storage) -> Result<Self, WeightError> {
        let bytes = storage.bytes();
        let header = WeightBlobHeader::parse(bytes)?;
        let layout = Layout::of(&header, bytes)?;
        let (body, sum) = bytes.split_last_chunk::<4>().expect("the layout ends with the check sum");
        let (got, computed) = (u32::from_le_bytes(*sum), crc32fast::hash(body));
        if got != computed {
            return Err(WeightError::Crc { got, computed });
        }
        for tensor in WeightTensor::all(&header) {
            let range = layout.range(&header, tensor).expect("`all` names what the file has");
            let values = view(header.dtype(), &bytes[range]);
            if let Some(index) = values.first_not_finite() {
                let value = values.get(index).expect("just found");
                return Err(WeightError::NotFinite { tensor, index, value });
            }
        }
        let info = layout.info.clone().map(|range| WeightInfo::parse(&bytes[range], &header)).transpose()?;
        Ok(Self { bytes: storage, header, layout, info })
    }

    /// Shape and precision.
    pub const fn header(&self) -> &WeightBlobHeader {
        &self.header
    }

    /// The JSON block, if the file has one.
    pub const fn info(&self) -> Option<&WeightInfo> {
        self.info.as_ref()
    }

    /// A tensor in place; `None` if the file does not have it.
    pub fn tensor(&self, tensor: WeightTensor) -> Option<WeightValues<'_>> {
        let range = self.layout.range(&self.header, tensor)?;
        Some(view(self.header.dtype(), &self.bytes.bytes()[range]))
    }

    /// Every tensor of the file with its numbers, in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = (WeightTensor, WeightValues<'_>)> {
        WeightTensor::all(&self.header).filter_map(|t| Some((t, self.tensor(t)?)))
    }

    /// The whole file.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    /// The check sum at its end, which has been found right.
    pub fn crc32(&self) -> u32 {
        self.as_bytes().last_chunk::<4>().map_or(0, |c| u32::from_le_bytes(*c))
    }

    /// Whether the numbers are used from a mapped file, not from a copy.
    pub const fn is_mapped(&self) -> bool {
        matches!(self.bytes, Storage::Mapped(_))
    }
}

/// `bytes` as numbers. Both kinds of storage are aligned to at least 8, and every tensor begins at a multiple of its
/// element's size: header 24 bytes, prefixes 4, all tensors of one precision, the JSON block last.
fn view(dtype: WeightDtype, bytes: &[u8]) -> WeightValues<'_> {
    match dtype {
        WeightDtype::F32 => WeightValues::F32(bytemuck::cast_slice(bytes)),
        WeightDtype::F16 => WeightValues::F16(bytemuck::cast_slice(bytes)),
    }
}

#[derive(Debug)]
enum Storage {
    Mapped(Mmap),
    /// Eight bytes each, for their alignment; the last one filled up with zeros.
    Owned(Vec<u64>, usize),
}

impl Storage {
    fn owned(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self::Owned(words, bytes.len())
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(words, len) => &bytemuck::cast_slice::<u64, u8>(words)[..*len],
        }
    }
}
