#!/usr/bin/env bash
# Runs every test tier and says at the end which ran. With CI=true a missing tool is a failure,
# otherwise a loud skip. Usage: tests/run.sh [pytest arguments]   (LONG=1 adds the long forms)
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.cache/tools/bin:$PATH"
bin=.venv/bin
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=0
summary=()

note() { summary+=("$(printf '  %-12s %-8s %s' "$1" "$2" "$3")"); }

# tier NAME COMMAND…: runs one tier, shows its output, remembers how it ended.
tier() {
  local name=$1 started=$SECONDS status
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$logs/$name"
  status=${PIPESTATUS[0]}
  if [ "$status" -eq 0 ]; then
    note "$name" passed "$((SECONDS - started)) s"
  else
    note "$name" FAILED "$((SECONDS - started)) s"
    failed=1
  fi
}

# needs NAME TOOL HOW: whether a tier's tool is there; a failure under CI, a loud skip elsewhere.
needs() {
  command -v "$2" >/dev/null 2>&1 && return 0
  if [ "${CI:-}" = true ]; then
    note "$1" FAILED "$2 is missing: $3"
    failed=1
  else
    note "$1" SKIPPED "$2 is missing: $3"
  fi
  return 1
}

cluster_tools() { make --no-print-directory control-plane tools system-tools; }
contracts() { $bin/ruff check --quiet . && $bin/ruff format --check --quiet . && $bin/lint-imports --no-cache; }
# As many processes as cores, which take tests from one another at the end; a test needs about one.
# shellcheck disable=SC2086
pytests() { $bin/python -m pytest -q -p no:cacheprovider $workers $long_timeout "$@"; }
# The demo has a tier of its own, whose exit status also says whether a breaker tripped.
# What a short run must keep are ratios and counts, and most of its time it waits.
benchmarks_quick() {
  $bin/python -m benchmarks --list | cut -d' ' -f1 | grep -vx demo_row |
    xargs -P "$cores" -I NAME bash -c 'benchmark_quick "$@"' _ NAME
}
benchmark_quick() {
  local status=0 begun=$SECONDS
  "$bin/python" -m benchmarks "$1" --quick --within-ranges >"$logs/quick-$1" 2>&1 || status=$?
  printf -- '-- %s --quick: %s s\n' "$1" "$((SECONDS - begun))"
  # A benchmark that fails shows all that it said.
  [ "$status" -eq 0 ] && tail -n 1 "$logs/quick-$1" && return
  cat "$logs/quick-$1"
  return 1
}
export -f benchmark_quick
export bin logs
demo_short() {
  local status=0
  $bin/wattpack demo --headless --duration 30 --speed 60 --json "$logs/demo.json" || status=$?
  [ "$status" -eq 0 ] && $bin/python -m json.tool "$logs/demo.json" >/dev/null
}

cores=$(nproc)
[ "$cores" -le 4 ] || cores=4
workers="-n $cores --dist worksteal"
# Each of them has a core: threads of the linear algebra would spin and wait for one another.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Tests of one release of the chart follow one another.
by_file="--dist loadfile"
# A cluster of somebody else is one for all processes.
[ "${WATTPACK_TEST_USE_KUBECONFIG:-}" = 1 ] && workers="" && by_file=""
long_filter="not slow"
long_timeout=""
[ "${LONG:-}" = 1 ] && long_filter="slow or not slow" && long_timeout="-o timeout=1200"
plain="not cluster and not helm and not promtool and not browser"

tier tools cluster_tools
tier style contracts
tier types make --no-print-directory types
tier generated make --no-print-directory check-generated
needs go go "install Go" && tier go make --no-print-directory test-go
tier unit pytests -m "$plain and ($long_filter)" "$@"
needs cluster apiserver "run make control-plane" && tier cluster pytests $by_file -m "cluster and ($long_filter)" "$@"
needs chart helm "run make tools" && tier chart pytests -m "helm and not cluster and ($long_filter)" "$@"
needs alerts promtool "install Debian's package prometheus" && tier alerts pytests -m "promtool and ($long_filter)" "$@"
needs browser chromium "install Debian's package chromium" && tier browser pytests -m "browser and ($long_filter)" "$@"
tier benchmarks benchmarks_quick
tier demo demo_short

printf '\nTiers that ran:\n'
printf '%s\n' "${summary[@]}"
[ "$failed" -eq 0 ] && printf '\nall green\n' || printf '\nNOT green\n'
exit "$failed"
