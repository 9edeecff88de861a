#!/usr/bin/env bash
# The Verilog by itself: lint, proofs, and a second simulator. Prints a line for each, and at the end
# how many passed. Co-simulation against the software is in `cargo test -p selvedge-lab-rtl`.
# Usage: tools/rtl.sh [lint|formal|icarus]...   (default: all)
set -uo pipefail
cd "$(dirname "$0")/../place/rtl"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 skipped=0 lower=''

ok() { printf 'passed: %s\n' "$1"; passed=$((passed + 1)); }
bad() { printf 'FAILED: %s\n' "$1"; sed 's/^/    /' "$scratch/log" | tail -n 15; failed=$((failed + 1)); }

# A tool that is absent skips its part.
have() {
  command -v "$1" > /dev/null && return
  printf 'SKIPPED: %s is not installed (Debian package %s)\n' "$1" "$1"
  skipped=$((skipped + 1))
  return 1
}

lint() {
  have verilator || return
  local design n mode ahead pipe wrong=0 done=0
  # The parameters change the same few lines for every N: all combinations at 4, the routings at 32.
  for design in 4:{0,1,2}:{0,1}:{0,1} 4:3:{0,1}:0 32:{0,1,2,3}:0:0 64:0:1:0; do
    IFS=: read -r n mode ahead pipe <<< "$design"
    done=$((done + 1))
    verilator --lint-only -Wall -Ihdl -GN="$n" -GMODE="$mode" -GAHEAD="$ahead" -GPIPE="$pipe" \
      -GOBSERVE=1 hdl/ss_top.v > "$scratch/log" 2>&1 && continue
    bad "lint, N=$n MODE=$mode AHEAD=$ahead PIPE=$pipe"
    wrong=1
  done
  [ $wrong = 0 ] && ok "lint: verilator -Wall says nothing about $done designs"
}

# prove NAME TOP -verify|-falsify FILES: all assertions of TOP hold for all inputs, or one does not.
prove() {
  local name=$1 top=$2 how=$3
  shift 3
  if yosys -q -p "read_verilog -formal $*; hierarchy -top $top; proc; flatten; $lower opt -full;
      opt_merge -share_all; opt -full; sat $how -prove-asserts -set-assumes -timeout 60" \
      > "$scratch/log" 2>&1; then
    ok "formal: $name"
  else
    bad "formal: $name"
  fi
}

# A proof that could not fail would be worth nothing: the same one, with a fault put in.
fault() {
  local name=$1 top=$2 file=$3 from=$4 to=$5
  shift 5
  sed "s/$from/$to/" "hdl/$file" > "$scratch/$file"
  if cmp -s "hdl/$file" "$scratch/$file"; then
    echo "the text to be changed is not in $file" > "$scratch/log"
    bad "formal: a fault is found ($name)"
    return
  fi
  prove "a fault is found ($name)" "$top" -falsify "$scratch/$file" "$@"
}

formal() {
  have yosys || return
  # Newer releases read assertions as another cell, which `sat` does not know.
  yosys -p 'help chformal' | grep -e -lower > /dev/null && lower='chformal -lower;'
  local order="hdl/ss_product.v hdl/ss_order.v"
  prove "the decision block equals Table 2 for all inputs" prove_order -verify \
    $order formal/order_spec.v formal/prove_order.v
  prove "of two streams exactly one goes first (deadlines not 0x8000 apart)" \
    prove_antisymmetry -verify $order formal/prove_antisymmetry.v
  prove "with deadlines 0x8000 apart that fails: a witness is found" \
    prove_antisymmetry -falsify -DCORNER $order formal/prove_antisymmetry.v
  prove "rules a and b equal their text for all windows" prove_rules -verify \
    hdl/ss_rules.v formal/prove_rules.v
  prove "one step of a slot equals the model's text for all states" prove_step -verify \
    hdl/ss_rules.v hdl/ss_step.v formal/prove_step.v
  fault "rule 3 turned round" prove_order ss_order.v 'a_y > b_y' 'a_y < b_y' \
    hdl/ss_product.v formal/order_spec.v formal/prove_order.v
  fault "rule a without its second case" prove_rules ss_rules.v 'x_i == y_i' '1'"'"'b0' \
    formal/prove_rules.v
  fault "a kept frame that forgets it was late" prove_step ss_step.v '(missed | keep)' 'missed' \
    hdl/ss_rules.v formal/prove_step.v
}

# simulate NAME TESTBENCH PARAMETERS...
simulate() {
  local name=$1 bench=$2
  shift 2
  if iverilog -g2005-sv -s "$bench" "$@" -o "$scratch/$bench" hdl/*.v "tb/$bench.v" \
      > "$scratch/log" 2>&1 && vvp "$scratch/$bench" > "$scratch/log" 2>&1 &&
      grep -q '^passed' "$scratch/log" && ! grep -q '^FAILED' "$scratch/log"; then
    ok "icarus: $name: $(sed -n 's/^passed: //p' "$scratch/log")"
  else
    bad "icarus: $name"
  fi
}

icarus() {
  have iverilog || return
  simulate "multiplier" tb_product
  simulate "transitivity" tb_transitive
  local design n mode ahead pipe
  for design in "4 0 0 0" "4 0 1 1" "4 1 1 0" "4 2 0 1" "8 0 0 0" "8 2 1 0" "8 3 1 0" "16 1 0 0"; do
    read -r n mode ahead pipe <<< "$design"
    simulate "against the model's text" tb_top -Ptb_top.N=$n -Ptb_top.MODE=$mode \
      -Ptb_top.AHEAD=$ahead -Ptb_top.PIPE=$pipe -Ptb_top.SEED=$((n + mode)) -Ptb_top.TICKS=400
  done
}

for part in "${@:-lint formal icarus}"; do
  for one in $part; do
    case $one in
      lint | formal | icarus) "$one" ;;
      *) echo "usage: tools/rtl.sh [lint|formal|icarus]..." >&2; exit 2 ;;
    esac
  done
done
printf '# pass %d\n# fail %d\n# skipped %d\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
