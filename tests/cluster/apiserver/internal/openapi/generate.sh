#!/bin/bash
# Writes zz_generated.openapi.go from the published Kubernetes types; needed once before a build (5 s).
set -euo pipefail
cd "$(dirname "$0")"
api=k8s.io/api
machinery=k8s.io/apimachinery/pkg
go tool openapi-gen --output-dir . --output-pkg wattpack.io/tests/cluster/apiserver/internal/openapi \
  --output-file zz_generated.openapi.go --go-header-file /dev/null --report-filename /dev/null \
  $machinery/apis/meta/v1 $machinery/runtime $machinery/version $machinery/api/resource $machinery/util/intstr \
  $api/core/v1 $api/apps/v1 $api/batch/v1 $api/autoscaling/v1 $api/coordination/v1 $api/events/v1 $api/networking/v1 \
  $api/policy/v1 $api/rbac/v1 $api/scheduling/v1 $api/admissionregistration/v1 $api/authentication/v1 \
  $api/authorization/v1 k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1
