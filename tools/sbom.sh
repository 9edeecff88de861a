#!/usr/bin/env bash
# Prints a list of what is in the programs that `make build` makes, as CycloneDX 1.6 in JSON: each Rust
# crate with version, licence and checksum, as the lock file has them.
#
#   tools/sbom.sh > sbom.json
set -euo pipefail
cd "$(dirname "$0")/.."

# A line for each crate: "zerocopy v0.8.27 BSD-2-Clause OR Apache-2.0 OR MIT".
crates() {
  cargo tree --locked -p selvedge -p selvedge-place-coprocessor -p selvedge-media-plugin \
    -e normal,build --prefix none --format '{p} {l}' |
    sed -E 's/ \((\*|proc-macro|\/[^)]*)\)//g' | sed '/^$/d' | sort -u
}

checksums=$(awk -F '"' '
  /^name/ { name = $2 } /^version/ { version = $2 } /^checksum/ { print name " " version " " $2 }' Cargo.lock)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

crates | jq -Rn --arg checksums "$checksums" --arg version "$version" '
  ($checksums | split("\n") | map(split(" ") | {key: .[0:2] | join(" "), value: .[2]}) | from_entries) as $sums
  | {
      bomFormat: "CycloneDX", specVersion: "1.6", version: 1,
      metadata: {component: {type: "application", name: "selvedge", version: $version}},
      components: [inputs | capture("^(?<name>\\S+) v(?<version>\\S+) ?(?<licence>.*)$")
        | .licence |= gsub("/"; " OR ")
        | $sums[.name + " " + .version] as $sum
        | {type: "library", name, version, purl: "pkg:cargo/\(.name)@\(.version)",
           licenses: [{expression: .licence}]}
          + if $sum then {hashes: [{alg: "SHA-256", content: $sum}]} else {} end]
    }'
