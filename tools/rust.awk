# Rust as tools/lines.sh and tools/circles.sh read it: which text is code, and which code is a test.
# Each function takes the lines of a file in turn. LC_ALL=C, so that a character is a byte.

# Before the first line of a file.
function rust_open() {
  comment = 0; quote = ""; test = 0; depth = 0
}

# The line without comments, and without what stands between quotes.
function rust_code(line,    out, before, mark, at) {
  out = ""
  while (line != "") {
    if (comment > 0) {
      if (!match(line, /\/\*|\*\//)) return out
      comment += substr(line, RSTART, 1) == "/" ? 1 : -1
      line = substr(line, RSTART + 2)
    } else if (quote != "" && raw) {
      if (!(at = index(line, quote))) return out
      line = substr(line, at + length(quote))
      quote = ""
    } else if (quote != "") {
      if (!match(line, /\\.|"/)) return out
      if (substr(line, RSTART, 1) == quote) quote = ""
      line = substr(line, RSTART + RLENGTH)
    } else {
      if (!match(line, /\/\/|\/\*|"|'/)) return out line
      mark = substr(line, RSTART, RLENGTH)
      before = substr(line, 1, RSTART - 1)
      line = substr(line, RSTART + RLENGTH)
      out = out before
      if (mark == "//") return out
      if (mark == "/*") comment = 1
      else if (mark == "\"") {
        # r"..." has no escapes, and r#"..."# ends where as many # follow.
        raw = match(before, /(^|[^A-Za-z0-9_])[bc]?r#*$/) > 0
        quote = raw && match(before, /#+$/) ? mark substr(before, RSTART) : mark
        out = out "\"\""
      } else if (match(line, /^(\\'|\\[^']+|[^'\\]|[\300-\377][\200-\277]+)'/)) {
        # A character; otherwise it is a lifetime.
        line = substr(line, RSTART + RLENGTH)
      }
    }
  }
  return out
}

# Whether a line, as `rust_code` returned it, is of an item under #[cfg(test)].
function rust_is_test(code,    mark) {
  if (!test) {
    if (!match(code, /#\[cfg\((all\()?test[,)]/)) return 0
    code = substr(code, RSTART)
    test = 1; depth = 0
  }
  while (match(code, /[][(){};]/)) {
    mark = substr(code, RSTART, 1)
    code = substr(code, RSTART + 1)
    if (mark ~ /[[({]/) depth++
    else if (mark != ";") depth--
    if (depth == 0 && mark ~ /[;}]/) { test = 0; break }
  }
  return 1
}

# Where the module `name` of a file lies, without its ending.
function rust_module(file, name) {
  if (!sub(/(^|\/)(mod|lib|main)\.rs$/, "", file)) sub(/\.rs$/, "", file)
  return file "/" name
}
