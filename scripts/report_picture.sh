#!/usr/bin/env bash
# Renders docs/figures/report.png: the top of the demo's report in headless Chromium (`chromium`, or MCDD_BROWSER).
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo run --release --quiet -p mcdd-cli -- demo --quiet -o "$work/demo" > /dev/null
"${MCDD_BROWSER:-chromium}" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
  --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$work/profile" \
  --virtual-time-budget=4000 --window-size=1100,1200 --screenshot="$work/report.png" "file://$work/demo/report.html" 2> "$work/log"
mv "$work/report.png" docs/figures/report.png
