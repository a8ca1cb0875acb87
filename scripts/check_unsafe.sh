#!/usr/bin/env bash
# The `unsafe` code of the kernels and of the thread pool, with odd sizes: under the address sanitizer with vector instructions
# and without, under valgrind, and under Miri where it is installed. Each `unsafe` block must state its invariant.
#
#   scripts/check_unsafe.sh [asan] [valgrind] [miri] [comments]     all that can run here, or some of them
set -euo pipefail
cd "$(dirname "$0")/.."
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(comments asan valgrind miri)
host=$(rustc -vV | sed -n 's/^host: //p')
# What has `unsafe` in it, and is small enough for tools that slow it down a hundred times.
tests=(compute:: net::cpu::images::kernel)
export CARGO_INCREMENTAL=0

comments() {
  cargo clippy -p mcdd --no-default-features --target-dir target/unsafe -- -D clippy::undocumented_unsafe_blocks
}

asan() {
  export RUSTC_BOOTSTRAP=1
  local level
  for level in "" portable; do
    ${level:+env MCDD_SIMD=$level} env RUSTFLAGS=-Zsanitizer=address cargo test -p mcdd --no-default-features --lib \
      --target "$host" --target-dir target/asan -- "${tests[@]}"
  done
}

valgrind_() {
  command -v valgrind > /dev/null || { echo "SKIPPED valgrind: it is not installed"; return; }
  local binary
  binary=$(cargo test -p mcdd --no-default-features --lib --no-run --target-dir target/unsafe 2>&1 | sed -n 's/.*(\(.*\))$/\1/p' | tail -1)
  PROPTEST_CASES=4 valgrind --quiet --error-exitcode=1 --leak-check=no "$binary" "${tests[@]}"
}

miri() {
  cargo +nightly miri --version > /dev/null 2>&1 || { echo "SKIPPED Miri: rustup +nightly component add miri"; return; }
  # It knows few vector instructions.
  PROPTEST_CASES=2 MIRIFLAGS=-Zmiri-disable-isolation MCDD_SIMD=portable \
    cargo +nightly miri test -p mcdd --no-default-features --lib --target-dir target/miri -- "${tests[@]}"
}

for part in "${parts[@]}"; do
  echo "== $part"
  case $part in
    valgrind) valgrind_ ;;
    comments | asan | miri) "$part" ;;
    *) echo "usage: scripts/check_unsafe.sh [asan] [valgrind] [miri] [comments]" >&2 && exit 2 ;;
  esac
done
