#!/bin/bash
# Installs the Debian packages that tests use beside the Go tools: prometheus (promtool, prometheus) and chromium.
set -euo pipefail

missing=()
command -v promtool >/dev/null && command -v prometheus >/dev/null || missing+=(prometheus)
command -v chromium >/dev/null || missing+=(chromium)
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "SKIPPED: cannot install ${missing[*]} (needs root and apt-get); the promtool and browser tests will not run" >&2
  exit 0
fi

echo "installing Debian packages: ${missing[*]} (about 60 s) ..."
log=$(mktemp)
# A package that brings a service must not start it here; an administrator's own policy stays.
policy=/usr/sbin/policy-rc.d
made_policy=false
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  made_policy=true
fi
cleanup() {
  if $made_policy; then rm -f "$policy"; fi
  rm -f "$log"
}
trap cleanup EXIT

install() {
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends "${missing[@]}" >"$log" 2>&1
}
if ! install; then
  apt-get update -q >>"$log" 2>&1
  install || { tail -n 30 "$log" >&2; exit 1; }
fi
echo "installed ${missing[*]}"
