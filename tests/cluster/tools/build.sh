#!/bin/bash
# Builds pinned Go tools into .cache/tools/<name>-<hash>/ and points .cache/tools/bin/<name> at them.
# The hash covers the module files, our own sources, the flags and the Go version; an unchanged tool costs milliseconds.
set -euo pipefail
cd "$(dirname "$0")/../../.."

kubernetes_version=$(sed -n 's|^\tk8s.io/apiserver v0\.\(.*\)$|1.\1|p' tests/cluster/go.mod)
version_package=k8s.io/component-base/version
minor=${kubernetes_version#1.}
kubernetes_flags="-X $version_package.gitVersion=v$kubernetes_version -X $version_package.gitMajor=1 -X $version_package.gitMinor=${minor%%.*}"
# Without these, helm renders charts for Kubernetes 1.20.
helm_version=$(sed -n 's|^\thelm.sh/helm/v3 \(v[^ ]*\).*|\1|p' tests/cluster/tools/helm/go.mod)
helm_flags="-X helm.sh/helm/v3/internal/version.version=$helm_version"
for package in chartutil lint/rules; do
  helm_flags+=" -X helm.sh/helm/v3/pkg/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$package.k8sVersionMinor=${minor%%.*}"
done
cache=.cache/tools
go_version=$(go env GOVERSION)

# name | module folder | package | seconds of a first build on 2 cores | linker flags | what else the hash covers
tools="
etcd|tests/cluster/tools/etcd|go.etcd.io/etcd/server/v3|75||
kwok|tests/cluster/tools/kwok|sigs.k8s.io/kwok/cmd/kwok|150||
karpenter|tests/cluster/tools/karpenter|sigs.k8s.io/karpenter/kwok|120||
helm|tests/cluster/tools/helm|helm.sh/helm/v3/cmd/helm|150|$helm_flags|
kubectl|tests/cluster/tools/kubectl|.|50|$kubernetes_flags|tests/cluster/tools/kubectl
apiserver|tests/cluster|./apiserver|240|$kubernetes_flags|tests/cluster/apiserver
apiserver-race|tests/cluster|./apiserver|500|$kubernetes_flags|tests/cluster/apiserver
binder|tests/cluster|./binder|20||tests/cluster/binder
"

sources() { # module folder, extra folder
  printf '%s\n' "$1/go.mod" "$1/go.sum" tests/cluster/tools/build.sh
  if [ -n "$2" ]; then
    find "$2" \( -name '*.go' ! -name '*_test.go' ! -name 'zz_generated*' -o -name '*.sh' \) | LC_ALL=C sort
  fi
}

build() { # the fields of one line of the table
  local name=$1 module=$2 package=$3 seconds=$4 flags=$5 extra=$6 hash target race
  hash=$( (echo "$go_version $flags"; sources "$module" "$extra" | xargs sha256sum) | sha256sum | cut -c1-16)
  target=$cache/$name-$hash
  if [ ! -x "$target/$name" ]; then
    echo "building $name (first time about $seconds s) ..."
    mkdir -p "$target"
    case $name in apiserver*) tests/cluster/apiserver/internal/openapi/generate.sh ;; esac
    race=()
    case $name in *-race) race=(-race) ;; esac
    (cd "$module" && go build -trimpath "${race[@]}" -ldflags "-s -w $flags" -o "$OLDPWD/$target/$name.part" "$package")
    case $name in
      kwok) stages "$module" >"$target/stages.yaml" ;;
      karpenter) kinds "$module" >"$target/kinds.yaml" ;;
    esac
    mv "$target/$name.part" "$target/$name"
    echo "built $name in $SECONDS s"
    find "$cache" -maxdepth 1 -regex ".*/$name-[0-9a-f]*" ! -name "$name-$hash" -exec rm -rf {} +
  fi
  ln -sfn "../$name-$hash/$name" "$cache/bin/$name"
  case $name in
    kwok) ln -sfn "../$name-$hash/stages.yaml" "$cache/bin/kwok-stages.yaml" ;;
    karpenter) ln -sfn "../$name-$hash/kinds.yaml" "$cache/bin/karpenter-kinds.yaml" ;;
  esac
}

# kwok's own stages: nodes become Ready and heartbeat, bound pods become Running, deleted pods go. Pods of Jobs are
# left running (its pod-complete stage would end them at once).
stages() {
  local kwok file
  kwok=$(cd "$1" && go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
  for file in node/fast/node-initialize.yaml node/heartbeat-with-lease/node-heartbeat-with-lease.yaml \
    pod/fast/pod-ready.yaml pod/fast/pod-delete.yaml; do
    cat "$kwok/$file"
    echo ---
  done
}

# The CustomResourceDefinitions of Karpenter and of its kwok provider.
kinds() {
  local karpenter file
  karpenter=$(cd "$1" && go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)
  for file in "$karpenter"/pkg/apis/crds/*.yaml "$karpenter"/kwok/apis/crds/*.yaml; do
    echo ---
    cat "$file"
  done
}

mkdir -p "$cache/bin"
exec 9>"$cache/lock"
flock 9
for wanted in "$@"; do
  line=$(grep "^$wanted|" <<<"$tools") || { echo "unknown tool: $wanted" >&2; exit 2; }
  IFS='|' read -r name module package seconds flags extra <<<"$line"
  SECONDS=0
  build "$name" "$module" "$package" "$seconds" "$flags" "$extra"
done
