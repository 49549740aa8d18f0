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
  # The race detector needs a second build of everything that a package imports: only the packages that stand on the
  # API types alone get it here. `make test-cluster-race` runs the whole server under it.
  light=() heavy=()
  while read -r package imports; do
    case " $imports " in
    *" k8s.io/client-go/"* | *" k8s.io/apiserver/"*) heavy+=("$package") ;;
    *) light+=("$package") ;;
    esac
  done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{join .Deps " "}}{{end}}' ./... | sed '/^$/d')
  go test -trimpath -race "${light[@]}"
  go test -trimpath "${heavy[@]}"
  ;;
*)
  echo "usage: check.sh lint|test" >&2
  exit 2
  ;;
esac
