# The counting of tools/lines.sh, after tools/rust.awk. Input: names of source files and of manifests.
# Variables: commit (a name to print), by_folder, json.

{
  if (sub(/(^|\/)Cargo\.toml$/, "")) crates[$0 == "" ? "." : $0]
  else count($0)
}

END {
  for (i = 1; i <= files; i++) {
    file = order[i]
    if (is_test(file)) continue
    all += lines[file]
    if (measures(file)) measuring += lines[file]
    top = file
    if (!sub(/\/.*/, "", top)) top = "."
    folder[top] += lines[file]
    crate[crate_of(file)] += lines[file]
  }
  if (json) {
    printf "{\"of\":\"%s\",\"lines\":%d,\"measuring_outside_lab\":%d", commit, all, measuring
  } else {
    printf "%d lines of product code (%s)\n", all, commit
    printf "of which benchmarks and experiments in their old places: %d; the rest: %d\n", measuring, all - measuring
  }
  if (by_folder) {
    table("folders", folder)
    table("crates", crate)
  }
  if (json) print "}"
}

function count(file,    rust, code) {
  order[++files] = file
  lines[file] = 0
  rust = file ~ /\.rs$/
  rust_open()
  while ((getline < file) > 0) {
    if (rust) {
      code = rust_code($0)
      if (rust_is_test(code)) {
        if (match(code, /mod [A-Za-z0-9_]+;/)) tests[rust_module(file, substr(code, RSTART + 4, RLENGTH - 5))]
        continue
      }
    }
    if (NF) lines[file]++
  }
  close(file)
}

# Files of modules that are declared under #[cfg(test)].
function is_test(path,    part) {
  for (part in tests) if (path == part ".rs" || index(path, part "/") == 1) return 1
  return 0
}

# The folder of the manifest next above.
function crate_of(path) {
  while (sub(/\/[^\/]*$/, "", path)) if (path in crates) return path
  return "."
}

function measures(path) {
  return path ~ /^(repro\/|(src|cli)\/repro[.\/]|place\/rtl\/syn\/)/ \
    || path ~ /(^|\/)(code|jit|services)\/src\/measure\.rs$/ \
    || path ~ /(^|\/)bench(\/|\.rs$|_[a-z_]*\.rs$)/
}

# Fills `names`, the largest count first; returns how many there are.
function sort_names(counts, names,    name, rows, i) {
  for (name in counts) {
    for (i = ++rows; i > 1 && comes_before(counts, name, names[i - 1]); i--) names[i] = names[i - 1]
    names[i] = name
  }
  return rows
}

function comes_before(counts, a, b) {
  return counts[a] > counts[b] || (counts[a] == counts[b] && a < b)
}

function table(title, counts,    names, rows, i) {
  rows = sort_names(counts, names)
  printf (json ? ",\"%s\":{" : "\n%s\n"), title
  for (i = 1; i <= rows; i++) {
    if (json) printf "%s\"%s\":%d", (i > 1 ? "," : ""), names[i], counts[names[i]]
    else printf "%8d %5.1f %%  %s\n", counts[names[i]], 100 * counts[names[i]] / all, names[i]
  }
  if (json) printf "}"
  else printf "largest: %s, %.1f %%\n", names[1], 100 * counts[names[1]] / all
}
