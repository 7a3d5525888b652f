//! Any bytes as a weight file: an error, or a file whose tensors can all be read; memory in the order of the input.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use aetherd::head::schema::TOKEN_SCHEMA;
use aetherd::head::weights::{WeightBlob, WeightBlobHeader};
use libfuzzer_sys::fuzz_target;

/// The system's allocator, remembering the largest single request.
struct Largest;
static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the trait.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest;

fuzz_target!(|data: &[u8]| {
    // As it is, and with a right check sum, so that what lies behind it is reached.
    let mut sealed = data.to_vec();
    if let Some(n) = sealed.len().checked_sub(4) {
        let sum = crc32fast::hash(&sealed[..n]).to_le_bytes();
        sealed[n..].copy_from_slice(&sum);
    }
    for bytes in [data, &sealed] {
        LARGEST.store(0, Ordering::Relaxed);
        let parsed = WeightBlob::parse(bytes);
        let largest = LARGEST.load(Ordering::Relaxed);
        assert!(largest <= 16 * bytes.len() + 4096, "{largest} bytes at once for a file of {}", bytes.len());
        let blob = match parsed {
            Ok(blob) => blob,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        assert_eq!(blob.as_bytes(), bytes);
        let header = *blob.header();
        assert_eq!(WeightBlobHeader::parse(&header.to_bytes()).expect("a header that was accepted"), header);
        let mut payload = 0;
        for (tensor, values) in blob.tensors() {
            let (rows, columns) = tensor.shape(&header);
            assert_eq!(values.len(), rows * columns);
            assert!(values.to_f32().iter().all(|x| x.is_finite()));
            payload += values.len() * header.dtype().size();
        }
        assert!(payload >= header.weights_len as usize);
        if let Some(info) = blob.info() {
            assert_eq!(info.classes.len(), usize::from(header.n_classes));
            drop(info.check_schema(&TOKEN_SCHEMA));
        }
    }
});
