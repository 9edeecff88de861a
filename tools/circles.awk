# The search of tools/circles.sh, after tools/rust.awk. Input: names of Rust source files.
# Prints each circle with the imports that close it; the exit status is 1 where there are more than
# `at_most`.

BEGIN { none = "?" }

{ file[++files] = $0 }

END {
  for (i = 1; i <= files; i++) root(file[i])
  for (i = 1; i <= files; i++) if (stand(file[i])) read(file[i])
  for (i = 1; i <= files; i++) if (file[i] in tree) follow(file[i])
  for (i = 1; i <= files; i++) reach(file[i], file[i])
  for (i = 1; i <= files; i++) if ((file[i], file[i]) in reached && !(file[i] in shown)) show(file[i])
  printf "%d circles of files that are not parent and child, %d allowed\n", circles, at_most
  exit circles > at_most
}

# A crate's tree of modules starts at its lib.rs or main.rs.
function root(path,    folder) {
  folder = path
  if (!sub(/(lib|main)\.rs$/, "", folder) || folder ~ /[^\/]$/) return
  if (path ~ /lib\.rs$/ || !((folder, "") in file_of)) file_of[folder, ""] = path
}

# Notes a file's place in the tree that it is in; 0 if it is in none.
function stand(path,    folder, name) {
  folder = path
  do {
    if (folder == "") return 0
    sub(/[^\/]*\/?$/, "", folder)
  } while (!((folder, "") in file_of))
  name = substr(path, length(folder) + 1)
  sub(/\.rs$/, "", name)
  sub(/(^|\/)(mod|lib|main)$/, "", name)
  gsub(/\//, "::", name)
  tree[path] = folder
  module[path] = name
  if (!((folder, name) in file_of)) file_of[folder, name] = path
  return 1
}

function read(path,    line, code, text, kept, use, is_public) {
  rust_open()
  text = " "
  while ((getline line < path) > 0) {
    code = rust_code(line)
    if (!rust_is_test(code)) text = text code " "
  }
  close(path)
  while (match(text, /[^A-Za-z0-9_](pub *(\([^)]*\))? *)?use [^;]*;/)) {
    kept = kept substr(text, 1, RSTART)
    use = substr(text, RSTART + 1, RLENGTH - 2)
    text = substr(text, RSTART + RLENGTH)
    is_public = use ~ /^pub/
    sub(/^(pub *(\([^)]*\))? *)?use /, "", use)
    take_apart(path, "", use, is_public)
  }
  body[path] = text = kept text
  while (match(text, /[^A-Za-z0-9_]mod +[A-Za-z0-9_]+ *;/)) {
    code = substr(text, RSTART + 1, RLENGTH - 2)
    text = substr(text, RSTART + RLENGTH)
    sub(/^mod +/, "", code)
    sub(/ +$/, "", code)
    child[path, code]
  }
}

# A `use`, name by name: a::{b, c as d} is a::b, and a::c under the name d.
function take_apart(path, before, use, is_public,    at, depth, start, mark, name) {
  gsub(/^ +| +$/, "", use)
  if (use == "") return
  if (!(at = index(use, "{"))) {
    name = use
    if (!sub(/^.* as +/, "", name)) sub(/^.*::/, "", name)
    sub(/ +as .*/, "", use)
    use = before use
    gsub(/ /, "", use)
    sub(/::self$/, "", use)
    if (name == "self") { name = use; sub(/^.*::/, "", name) }
    uses[path, ++imports[path]] = use
    named[path, imports[path]] = name
    public[path, imports[path]] = is_public
    meant[path, name] = use
    return
  }
  before = before substr(use, 1, at - 1)
  use = substr(use, at + 1)
  sub(/} *$/, ",", use)
  start = 1
  for (at = 1; at <= length(use); at++) {
    mark = substr(use, at, 1)
    if (mark == "{") depth++
    else if (mark == "}") depth--
    else if (mark == "," && !depth) {
      take_apart(path, before, substr(use, start, at - start), is_public)
      start = at + 1
    }
  }
}

function join(name, rest) { return name == "" || rest == "" ? name rest : name "::" rest }

# A path from the crate's root on; `none` for what is not of this crate.
function absolute(path, name, depth,    head, rest, base) {
  head = name
  rest = sub(/::.*/, "", head) ? substr(name, length(head) + 3) : ""
  if (head == "crate") return rest
  if (head == "self") return join(module[path], rest)
  if (head == "super") {
    base = module[path]
    do sub(/(^|::)[^:]*$/, "", base); while (sub(/^super(::|$)/, "", rest))
    return join(base, rest)
  }
  if ((path, head) in child) return join(module[path], name)
  if (!((path, head) in meant) || meant[path, head] == name || depth > 8) return none
  base = absolute(path, meant[path, head], depth + 1)
  return base == none ? none : join(base, rest)
}

# The file of the innermost module that a path names; `inside` is what is left of the path.
function nearest(folder, name,    last) {
  inside = ""
  while (!((folder, name) in file_of)) {
    if (name == "") return ""
    last = name
    sub(/^.*::/, "", last)
    inside = join(last, inside)
    if (!sub(/::[^:]*$/, "", name)) name = ""
  }
  return file_of[folder, name]
}

# The file that a name comes from, where modules pass it on.
function origin(folder, name, depth,    path, head, rest, base) {
  path = nearest(folder, name)
  if (path == "" || inside == "") return path
  head = inside
  rest = sub(/::.*/, "", head) ? substr(inside, length(head) + 3) : ""
  if (!((path, head) in meant) || depth > 8) return path
  base = absolute(path, meant[path, head], 0)
  return base == none ? "" : origin(folder, join(base, rest), depth + 1)
}

# A path leads to the module that it names, and to the file that the name comes from.
function lead(path, name,    base) {
  base = absolute(path, name, 0)
  if (base == none) return
  edge(path, nearest(tree[path], base), name)
  edge(path, origin(tree[path], base, 0), name)
}

# What is above a file in its tree is not followed: parent and child are of one type.
function edge(path, other, name) {
  if (other == "" || other == path || (path, other) in why) return
  if (module[other] == "" || index(module[path], module[other] "::") == 1) return
  why[path, other] = name
  next_[path, ++edges[path]] = other
}

function follow(path,    i, text) {
  for (i = 1; i <= imports[path]; i++) if (!passes_on(path, i)) lead(path, uses[path, i])
  text = body[path]
  while (match(text, /([A-Za-z_][A-Za-z0-9_]*::)+[A-Za-z_][A-Za-z0-9_]*/)) {
    lead(path, substr(text, RSTART, RLENGTH))
    text = substr(text, RSTART + RLENGTH)
  }
}

# A public name of a child that the file itself does not use.
function passes_on(path, i,    head) {
  head = uses[path, i]
  sub(/^self::/, "", head)
  sub(/::.*/, "", head)
  return public[path, i] && (path, head) in child \
    && body[path] !~ ("[^A-Za-z0-9_]" named[path, i] "[^A-Za-z0-9_]")
}

function reach(from, path,    i) {
  for (i = 1; i <= edges[path]; i++) {
    if ((from, next_[path, i]) in reached) continue
    reached[from, next_[path, i]]
    reach(from, next_[path, i])
  }
}

function together(a, b) { return (a, b) in reached && (b, a) in reached }

function show(path,    i, j, count, all) {
  for (i = 1; i <= files; i++) if (together(path, file[i])) all[++count] = file[i]
  printf "circle %d, of %d files\n", ++circles, count
  for (i = 1; i <= count; i++) {
    shown[all[i]]
    printf "  %s\n", all[i]
    for (j = 1; j <= edges[all[i]]; j++)
      if (together(path, next_[all[i], j]))
        printf "    uses %s (%s)\n", next_[all[i], j], why[all[i], next_[all[i], j]]
  }
}
