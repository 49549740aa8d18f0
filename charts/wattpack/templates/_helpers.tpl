{{- define "wattpack.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "wattpack.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "wattpack.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "wattpack.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Name of a component's objects. Args: root, component. */}}
{{- define "wattpack.component" -}}
{{- printf "%s-%s" (include "wattpack.fullname" .root) .component -}}
{{- end }}

{{/* A component's namespace: what runs on every node lives apart. Args: root, component. */}}
{{- define "wattpack.namespace" -}}
{{- if has .component (list "agent" "actuator" "pod-resources") -}}{{ .root.Values.nodeNamespace.name }}{{- else -}}{{ .root.Release.Namespace }}{{- end -}}
{{- end }}

{{- define "wattpack.username" -}}
system:serviceaccount:{{ include "wattpack.namespace" . }}:{{ include "wattpack.component" . }}
{{- end }}

{{- define "wattpack.selector" -}}
app.kubernetes.io/name: {{ include "wattpack.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "wattpack.labels" -}}
{{ include "wattpack.selector" . }}
app.kubernetes.io/part-of: wattpack
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Metadata of a component's object. Args: root, component; name and namespace "" for cluster scope. */}}
{{- define "wattpack.metadata" -}}
name: {{ .name | default (include "wattpack.component" .) }}
{{- if not .cluster }}
namespace: {{ include "wattpack.namespace" . }}
{{- end }}
labels:
  {{- include "wattpack.labels" . | nindent 2 }}
  {{- with .extraLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.extraAnnotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "wattpack.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- $tag := $image.tag | default .Chart.AppVersion -}}
{{- if eq $tag "latest" -}}{{- fail "image.tag: expected a fixed version or a digest, got latest" -}}{{- end -}}
{{- printf "%s:%s" $image.repository $tag -}}
{{- end -}}
{{- end }}

{{/* Pod security that the restricted profile accepts. */}}
{{- define "wattpack.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "wattpack.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Labels and annotations of a component's pods. Args: root, component, values; checksum if its settings are a file. */}}
{{- define "wattpack.podMetadata" -}}
labels:
  {{- include "wattpack.labels" . | nindent 2 }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or .checksum .values.podAnnotations }}
annotations:
  {{- with .checksum }}
  checksum/settings: {{ . }}
  {{- end }}
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Environment that every process gets, then the user's own. Args: root, values. */}}
{{- define "wattpack.commonEnv" -}}
- {name: WATTPACK_LOG_LEVEL, value: {{ .root.Values.logLevel }}}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Two replicas on one node die together: never, unless the user's own affinity says otherwise. A node that does not
     answer keeps its pods for seconds, not for the cluster's five minutes. Args: root, component, values. */}}
{{- define "wattpack.availability" -}}
{{- $short := .root.Values.notReadyTolerationSeconds -}}
{{- $values := deepCopy .values -}}
{{- $keys := list "node.kubernetes.io/not-ready" "node.kubernetes.io/unreachable" -}}
{{- range $keys -}}
{{- $_ := set $values "tolerations" (append $values.tolerations (dict "key" . "operator" "Exists" "effect" "NoExecute" "tolerationSeconds" $short)) -}}
{{- end -}}
{{- if and (gt (int .values.replicas) 1) (not .values.affinity) -}}
{{- $selector := include "wattpack.selector" . | fromYaml -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $selector) -}}
{{- $_ := set $values "affinity" (dict "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term))) -}}
{{- end -}}
{{- include "wattpack.scheduling" (dict "values" $values) -}}
{{- end }}

{{/* Where and with which priority a pod runs. Args: values. */}}
{{- define "wattpack.scheduling" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Pod spec of an ordinary, restricted component up to its containers. Args: root, component, values. */}}
{{- define "wattpack.podHead" -}}
serviceAccountName: {{ include "wattpack.component" . }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "wattpack.podSecurity" . | nindent 2 }}
{{- include "wattpack.availability" . }}
{{- end }}

{{/* A container's image, security, resources and settings. Args: root, component, values. */}}
{{- define "wattpack.containerHead" -}}
name: {{ .component }}
image: {{ include "wattpack.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- include "wattpack.containerSecurity" . | nindent 2 }}
resources:
  {{- toYaml .values.resources | nindent 2 }}
env:
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  {{- include "wattpack.commonEnv" . | nindent 2 }}
{{- end }}

{{- define "wattpack.httpProbes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
{{- end }}

{{/* host:port of each controller replica. Args: root, port. */}}
{{- define "wattpack.controllerHosts" -}}
{{- $name := include "wattpack.component" (dict "root" .root "component" "controller") -}}
{{- range $i := until (int .root.Values.controller.replicas) }}
{{ printf "%s-%d.%s.%s.svc" $name $i $name $.root.Release.Namespace }}
{{- end }}
{{- end }}

{{- define "wattpack.webhookName" -}}
{{- printf "%s-placement" (include "wattpack.fullname" .) -}}
{{- end }}

{{- define "wattpack.enforces" -}}
{{- if eq .Values.enforcement "Enforce" -}}true{{- end -}}
{{- end }}

{{/* The controller's settings file: what the chart knows, then what the user adds. */}}
{{- define "wattpack.controllerSettings" -}}
{{- $known := dict "namespace" .Release.Namespace "stream_address" "0.0.0.0:8443" "http_host" "0.0.0.0" "http_port" 8081 -}}
{{- $_ := set $known "agent_username" (include "wattpack.username" (dict "root" . "component" "agent")) -}}
{{- $_ := set $known "audit_file" "/var/lib/wattpack/audit.sqlite" -}}
{{- $_ := set $known "meter_prometheus_url" .Values.prometheus.url -}}
{{- $name := include "wattpack.component" (dict "root" . "component" "controller") -}}
{{- $_ := set $known "tls_secret" (.Values.tls.existingSecret | default (printf "%s-tls" $name)) -}}
{{- $_ := set $known "ca_config_map" (printf "%s-ca" $name) -}}
{{- $_ := set $known "ca_namespace" .Values.nodeNamespace.name -}}
{{- $domain := printf "%s.%s.svc" $name .Release.Namespace -}}
{{- $_ := set $known "server_names" (list $domain (printf "*.%s" $domain)) -}}
{{- with .Values.placement.riskBelowPriority }}
{{- $_ := set $known "risk_below_priority" . -}}
{{- end }}
{{- toYaml (merge (deepCopy .Values.controller.settings) $known) -}}
{{- end }}
{{/* "true" where running pods may be moved: only a planner that manages pods moves any. */}}
{{- define "wattpack.moves" -}}
{{- and (eq .Values.placement.mode "Manage") .Values.placement.moves.enabled -}}
{{- end }}
{{/* "true" where ProvisioningRequests are made. */}}
{{- define "wattpack.provisions" -}}
{{- and (eq .Values.placement.mode "Manage") .Values.placement.provisioning.enabled -}}
{{- end }}
{{/* Fails for figures of placement that do not fit each other: the scheduler would refuse them at its start. */}}
{{- define "wattpack.placementFits" -}}
{{- $placement := .Values.placement -}}
{{- $priced := "expected a price for at least one GPU model (for example {H200-SXM: 3.8}) with" -}}
{{- if not $placement.gpuPrices -}}
{{- if eq (toString $placement.policy) "cost" -}}{{- fail (printf "placement.gpuPrices: %s placement.policy cost, got nothing" $priced) -}}{{- end -}}
{{- if has "cost" $placement.objective -}}{{- fail (printf "placement.gpuPrices: %s cost in placement.objective, got nothing" $priced) -}}{{- end -}}
{{- end -}}
{{- if and (has "carbon" $placement.objective) (not $placement.carbonGramsPerKwh) -}}
{{- fail "placement.carbonGramsPerKwh: expected grams of at least one power domain (for example {site-north: 45}) with carbon in placement.objective, got nothing" -}}
{{- end -}}
{{- range $low, $risk := $placement.riskBelowPriority -}}
{{- range $high, $least := $placement.riskBelowPriority -}}
{{- if and (lt (atoi $low) (atoi $high)) (lt (float64 $risk) (float64 $least)) -}}
{{- fail (printf "placement.riskBelowPriority.%s: expected at least %v, the risk below priority %s (risk must not rise with priority), got %v" $low $least $high $risk) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
