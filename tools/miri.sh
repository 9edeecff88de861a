#!/usr/bin/env bash
# The unsafe code of ring and pool under Miri, and what stands on it: the pipes of stacks, with
# elements that come and go; and that of the services' shared memory, but for the calls of the system,
# which Miri has not.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=target/miri
cargo +nightly miri test --locked -p selvedge-data-memory -p selvedge-data-stream
cargo +nightly miri test --locked -p selvedge-comm-stack --lib -- pipe:: element::tests::locks \
  element::tests::ten_thousand_reassignments_on_threads
# What proptest makes takes hours under Miri; `no_mark_is_slept_over` has threads enough.
MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test --locked -p selvedge-comm-services --lib -- \
  board:: --skip it_is_a_set --skip any_bytes_are_survived
MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test --locked -p selvedge-os --lib -- memory::
cargo +nightly miri test --locked -p selvedge-data-net-secure --lib -- wiped::
