#!/bin/bash
# Checks our own Go code: `check.sh lint` (gofmt, go vet), `check.sh test` (unit tests with the race detector).
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -e apiserver/internal/openapi/zz_generated.openapi.go ]; then
  apiserver/internal/openapi/generate.sh
fi
case "${1:-}" in
lint)
  unformatted=$(find . -name '*.go' ! -name 'zz_generated*' -print0 | xargs -0 gofmt -l)
  if [ -n "$unformatted" ]; then
    echo "gofmt would change:" >&2
    echo "$unformatted" >&2
    exit 1
  fi
  go vet -trimpath ./apiserver/... ./binder/...
  (cd tools/kubectl && go vet -trimpath ./...)
  ;;
test)
  # Packages with tests only: they depend on little, so that the race detector's second build stays short.
  packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...)
  # shellcheck disable=SC2086
  go test -trimpath -race $packages
  ;;
*)
  echo "usage: check.sh lint|test" >&2
  exit 2
  ;;
esac
