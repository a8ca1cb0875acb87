//! The fuzz targets on their saved inputs, and on mutations of these: the same in every run. `fuzz/run` goes on from here.

#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use std::fs;
use std::path::Path;

/// Random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most.max(1)
    }
}

/// Changes some bytes, cuts, repeats, or joins with another input.
fn mutated(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    const SPECIAL: [&[u8]; 12] = [
        &[0],
        &[0xff],
        &[0x7f],
        &[0x80],
        &[0; 4],
        &[0xff; 4],
        &[0xff, 0xff, 0xff, 0x7f],
        &[0xff; 8],
        b"-1",
        b"18446744073709551615",
        b"1e999",
        "\u{202e}".as_bytes(),
    ];
    let mut out = seed.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(out.len() + 1);
        match random.below(7) {
            0 | 1 if at < out.len() => out[at] ^= 1 << random.below(8),
            2 if at < out.len() => out[at] = random.below(256) as u8,
            3 => {
                let special = SPECIAL[random.below(SPECIAL.len())];
                let end = (at + special.len() * random.below(2)).min(out.len());
                out.splice(at..end, special.iter().copied());
            }
            4 => {
                let end = at + random.below(out.len() - at + 1);
                let part = out[at..end].to_vec();
                out.splice(at..at, part);
            }
            5 => {
                let end = (at + random.below(16)).min(out.len());
                out.drain(at..end);
            }
            6 => {
                out.truncate(at);
                out.extend(&other[random.below(other.len() + 1)..]);
            }
            _ => {}
        }
        out.truncate(1 << 16);
    }
    out
}

#[test]
fn no_saved_input_and_no_mutation_of_one_does_harm() {
    let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus"));
    let each = std::env::var("MCDD_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let start = std::env::var("MCDD_FUZZ_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let only = std::env::var("MCDD_FUZZ_TARGET").ok();
    for (name, target) in targets::ALL.into_iter().filter(|(name, _)| only.as_deref().is_none_or(|o| o == *name)) {
        let mut files: Vec<_> = fs::read_dir(corpus.join(name)).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        let seeds: Vec<Vec<u8>> = files.iter().map(|f| fs::read(f).unwrap()).collect();
        assert!(!seeds.is_empty(), "{name} has no seeds");
        let mut random = Random(start);
        let mut count = 0;
        for (seed, file) in seeds.iter().zip(&files) {
            target(seed);
            for mutation in 0..each {
                let input = mutated(seed, &seeds[random.below(seeds.len())], &mut random);
                let ended = std::panic::catch_unwind(|| target(&input));
                if ended.is_err() {
                    let kept = std::env::temp_dir().join(format!("mcdd-{name}-{mutation}"));
                    fs::write(&kept, &input).unwrap();
                    panic!("{name}: mutation {mutation} of {} panics; it is in {}", file.display(), kept.display());
                }
                count += 1;
            }
        }
        println!("{name}: {} seeds, {count} mutations", seeds.len());
    }
}
