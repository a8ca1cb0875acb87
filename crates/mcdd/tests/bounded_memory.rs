//! Small files that stand for large data: they are read in bounded memory, or refused.
#![cfg(all(feature = "images", feature = "parquet"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Int32Array, LargeStringArray, ListArray, RecordBatch, StringArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_ipc::CompressionType;
use arrow_schema::Field;
use mcdd::data::images::{ImageOptions, Images};
use mcdd::data::{Batch, Label, PassThrough, ReadOptions, Schema, Table};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};

mod data_help;

/// Counts bytes. The program has one test, so that nothing else allocates meanwhile.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `run` gives, and the most MiB that it had at a time.
fn peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let outcome = run();
    (outcome, PEAK.load(Ordering::Relaxed).saturating_sub(before) >> 20)
}

fn parquet(folder: &Path, columns: Vec<(&str, ArrayRef)>, properties: WriterPropertiesBuilder) -> PathBuf {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    let path = folder.join("a.parquet");
    std::fs::write(&path, writer.into_inner().unwrap()).unwrap();
    path
}

fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::ZSTD(Default::default()))
}

fn read(path: &Path) -> mcdd::Result<Table> {
    Table::read(&[path.to_owned()], &ReadOptions { label: Label::None, ..ReadOptions::default() })
}

/// Changes the length in memory that the first page of a file announces, keeping the number of its digits.
fn announce(path: &Path, length: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    // The mark of the file, the kind of the page, and the length as a zigzag number of seven bits a byte.
    assert_eq!((&bytes[..4], bytes[4], bytes[6]), (&b"PAR1"[..], 0x15, 0x15));
    let digits = bytes[7..].iter().position(|b| *b < 0x80).unwrap() + 1;
    let mut rest = length << 1;
    for (i, byte) in bytes[7..7 + digits].iter_mut().enumerate() {
        *byte = (rest & 0x7f) as u8 | if i + 1 < digits { 0x80 } else { 0 };
        rest >>= 7;
    }
    assert_eq!(rest, 0);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn small_files_that_stand_for_large_data() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let texts = |text: &str, rows: usize| -> ArrayRef { Arc::new(StringArray::from(vec![text; rows])) };
    let plain = || properties().set_dictionary_enabled(false);
    let refused = |path: &Path, part: &str, most: usize| {
        let (outcome, used) = peak(|| read(path));
        let e = outcome.unwrap_err();
        assert!(e.to_string().contains(part) && e.hint_text().is_some(), "{e}");
        assert!(used <= most, "{part}: {used} MiB");
    };

    // One cell.
    let long = "a".repeat(48 << 20);
    let path = parquet(folder, vec![("t", texts(&long, 1))], plain());
    assert!(path.metadata().unwrap().len() < 50_000);
    refused(&path, "would take 48 MiB in memory", 8);
    drop(long);

    // A page that its bytes can hold, with a cell that is too long.
    let long = "e".repeat(80 << 20);
    let path = parquet(folder, vec![("t", texts(&long, 1))], plain().set_compression(Compression::SNAPPY));
    refused(&path, "a text of 80 MiB", 300);
    drop(long);

    // A page that announces a hundred megabytes, and one that is longer than it announces.
    let page = "b".repeat(2 << 20);
    let snappy = || plain().set_compression(Compression::SNAPPY);
    let path = parquet(folder, vec![("t", texts(&page, 1))], snappy());
    announce(&path, 100 << 20);
    refused(&path, "would take 100 MiB", 8);
    let noise: String = (0..40_000_000u32).map(|i| char::from(b'a' + (i.wrapping_mul(i) >> 27) as u8)).collect();
    let gzip = plain().set_compression(Compression::GZIP(Default::default()));
    let path = parquet(folder, vec![("t", texts(&noise, 1))], gzip);
    announce(&path, 9 << 20);
    refused(&path, "longer than its header announces", 28);
    drop(noise);

    // A dictionary with one long entry, and cells that repeat the cell before: legal, and read a few rows at a time.
    let entry = "c".repeat(256 << 10);
    let repeated = arrow_select::take::take(&texts(&entry, 1), &Int32Array::from(vec![0; 1500]), None);
    let large = properties().set_dictionary_page_size_limit(64 << 20);
    let repeated = repeated.unwrap();
    let encoded = parquet(folder, vec![("t", Arc::clone(&repeated))], large);
    let (table, used) = peak(|| read(&encoded).map(|table| table.rows()));
    assert_eq!(table.unwrap(), 1500);
    assert!(used < 150, "{used} MiB");
    let delta = plain().set_encoding(Encoding::DELTA_BYTE_ARRAY);
    let path = parquet(folder, vec![("t", repeated)], delta);
    let (table, used) = peak(|| read(&path).map(|table| table.rows()));
    assert_eq!(table.unwrap(), 1500);
    assert!(used < 150, "{used} MiB");

    // Texts with offsets of 64 bits, more than 2 GiB of them in 4096 rows: a valid file.
    let values = Arc::new(LargeStringArray::from(vec![entry.repeat(3)]));
    let coded = DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0; 3000]), values);
    let delta = plain().set_encoding(Encoding::DELTA_BYTE_ARRAY);
    let path = parquet(folder, vec![("t", Arc::new(coded) as ArrayRef)], delta);
    let (table, used) = peak(|| read(&path).map(|table| table.rows()));
    assert_eq!(table.unwrap(), 3000);
    assert!(used < 150, "{used} MiB");

    // Pages of many columns, each within its limit.
    let page = texts(&"f".repeat(30 << 20), 1);
    let names: Vec<String> = (0..20).map(|i| format!("c{i}")).collect();
    let columns = names.iter().map(|name| (name.as_str(), Arc::clone(&page))).collect();
    let path = parquet(folder, columns, plain());
    drop(page);
    refused(&path, "the pages of all columns would take 600 MiB", 8);

    // Lists, which are only passed through: a row may hold all of them.
    let values = Arc::new(StringArray::from(vec!["g".repeat(256 << 10)]));
    let coded = DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0; 1500]), values);
    let item = Arc::new(Field::new("item", coded.data_type().clone(), true));
    let lists = ListArray::new(item, OffsetBuffer::from_lengths([1500]), Arc::new(coded), None);
    let number: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let large = properties().set_dictionary_page_size_limit(64 << 20);
    let path = parquet(folder, vec![("a", number), ("l", Arc::new(lists) as ArrayRef)], large);
    let text = folder.join("a.csv");
    std::fs::write(&text, "a\n1\n2\n").unwrap();
    let schema = Schema::fit(&read(&text).unwrap(), &[0, 1]).unwrap().0;
    let (outcome, used) = peak(|| {
        let options = ReadOptions { pass_through: PassThrough::All, label: Label::None, ..ReadOptions::default() };
        schema.reader(&path, &options)?.next(1, &mut Batch::default())
    });
    let e = outcome.unwrap_err();
    assert!(e.to_string().contains("its lists would take 375 MiB") && e.hint_text().is_some(), "{e}");
    assert!(used <= 8, "{used} MiB");

    // Many equal images.
    let one = vec![0u8; 256 << 10];
    let image: ArrayRef = Arc::new(BinaryArray::from_iter_values(std::iter::repeat_n(&one, 1500)));
    let path = parquet(folder, vec![("image", image)], properties().set_dictionary_page_size_limit(64 << 20));
    let options = ImageOptions { label: Label::None, skip_bad: true, ..ImageOptions::default() };
    let (outcome, used) = peak(|| Images::read(&[path], &options));
    assert!(outcome.is_err());
    assert!(used < 150, "{used} MiB");

    // Arrow's own format, compressed.
    let zeros = RecordBatch::try_from_iter([("t", texts(&"d".repeat(1 << 20), 300))]).unwrap();
    let bytes = data_help::arrow_file(&zeros, Some(CompressionType::ZSTD));
    drop(zeros);
    let path = folder.join("a.arrow");
    std::fs::write(&path, bytes).unwrap();
    refused(&path, "would take 300 MiB in memory", 8);
}
