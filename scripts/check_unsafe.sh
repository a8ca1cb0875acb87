#!/usr/bin/env bash
# The `unsafe` code of the kernels and of the thread pool, with odd sizes: under the address sanitizer and under valgrind at every
# level of vector instructions that the processor has, and under Miri where it is installed. Each `unsafe` block must state its
# invariant.
#
#   scripts/check_unsafe.sh [asan] [valgrind] [miri] [comments]     all that can run here, or some of them
set -euo pipefail
cd "$(dirname "$0")/.."
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(comments asan valgrind miri)
host=$(rustc -vV | sed -n 's/^host: //p')
# What has `unsafe` in it, and the engines that call it; and what is small enough for tools that slow it down a hundred times.
tests=(compute:: net::cpu::)
small=(compute:: net::cpu::images::kernel net::cpu::norm)

comments() {
  cargo clippy -p mcdd --no-default-features --target-dir target/unsafe -- -D clippy::undocumented_unsafe_blocks
}

# The levels of instructions that the processor has (MCDD_SIMD).
levels() {
  ! grep -qw avx512vl /proc/cpuinfo || echo avx512
  ! grep -qw avx2 /proc/cpuinfo || echo avx2
  echo portable
}

asan() {
  local level
  for level in $(levels); do
    echo "-- $level"
    MCDD_SIMD=$level RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_INCREMENTAL=0 cargo test -p mcdd \
      --no-default-features --lib --target "$host" --target-dir target/asan -- "${tests[@]}"
  done
}

valgrind_() {
  command -v valgrind > /dev/null || { echo "SKIPPED valgrind: it is not installed"; return; }
  local binary level
  # The same build as that of ./test.
  binary=$(cargo test -p mcdd --no-default-features --lib --no-run 2>&1 | sed -n 's/.*(\(.*\))$/\1/p' | tail -1)
  for level in $(levels); do
    # It has no AVX-512, and shows the program a processor without it.
    [ "$level" != avx512 ] || { echo "SKIPPED valgrind with AVX-512: it does not know it"; continue; }
    echo "-- $level"
    MCDD_SIMD=$level PROPTEST_CASES=4 valgrind --quiet --error-exitcode=1 --leak-check=no --fair-sched=yes "$binary" "${small[@]}"
  done
}

miri() {
  cargo +nightly miri --version > /dev/null 2>&1 || { echo "SKIPPED Miri: rustup +nightly component add miri"; return; }
  # It knows few vector instructions.
  PROPTEST_CASES=2 MIRIFLAGS=-Zmiri-disable-isolation MCDD_SIMD=portable \
    cargo +nightly miri test -p mcdd --no-default-features --lib --target-dir target/miri -- "${small[@]}"
}

for part in "${parts[@]}"; do
  echo "== $part"
  case $part in
    valgrind) valgrind_ ;;
    comments | asan | miri) "$part" ;;
    *) echo "usage: scripts/check_unsafe.sh [asan] [valgrind] [miri] [comments]" >&2 && exit 2 ;;
  esac
done
