{{/* Cluster-wide rules by component; every verb is one that the process uses. */}}
{{- define "wattpack.rules.controller" }}
- {apiGroups: [wattpack.io], resources: [powerdomains, powerpolicies, poweroverrides, demandforecasts, gpuprofiles, workloadprofiles], verbs: [list, watch]}
- {apiGroups: [wattpack.io], resources: [powerdomains/status, powerpolicies/status, poweroverrides/status, gpuprofiles/status, workloadprofiles/status], verbs: [patch]}
- {apiGroups: [""], resources: [nodes, pods], verbs: [list, watch]}
{{- if dig "write_workload_profiles" true .Values.controller.settings }}
# For owners of pods that nobody described; server-side apply, never over what people set.
- {apiGroups: [wattpack.io], resources: [workloadprofiles], verbs: [create, patch]}
{{- end }}
{{- if include "wattpack.enforces" . }}
# The taint wattpack.io/uncontrolled, in domains that enforce.
- {apiGroups: [""], resources: [nodes], verbs: [patch]}
{{- end }}
- {apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [list, watch]}
{{- include "wattpack.rules.reviews" . }}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- end }}
{{/* To ask the API server who reads over HTTP, and what they may. */}}
{{- define "wattpack.rules.reviews" }}
- {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
{{- end }}
{{- define "wattpack.rules.scheduler" }}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, patch]}
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
- {apiGroups: [""], resources: [nodes], verbs: [list, watch]}
# By their labels rules between pods choose namespaces, and namespaces opt in.
- {apiGroups: [""], resources: [namespaces], verbs: [list, watch]}
{{- if eq (include "wattpack.moves" .) "true" }}
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [list, watch]}
# status.nominatedNodeName of pods that kube-scheduler found no node for; the admission policy allows nothing else.
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
{{- end }}
- {apiGroups: [batch], resources: [jobs], verbs: [list]}
# How large gangs are, where these kinds are installed.
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [list]}
- {apiGroups: [kueue.x-k8s.io], resources: [workloads], verbs: [list]}
{{- if dig "kueue_admission_checks" false .Values.scheduler.settings }}
# Answers of our AdmissionCheck, and that somebody is there who gives them.
- {apiGroups: [kueue.x-k8s.io], resources: [admissionchecks, resourceflavors], verbs: [list]}
- {apiGroups: [kueue.x-k8s.io], resources: [admissionchecks/status, workloads/status], verbs: [update]}
{{- end }}
- {apiGroups: [ray.io], resources: [rayclusters], verbs: [list]}
- {apiGroups: [scheduling.k8s.io], resources: [podgroups, workloads], verbs: [list]}
- {apiGroups: [scheduling.volcano.sh, scheduling.x-k8s.io], resources: [podgroups], verbs: [list]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [list, watch]}
# Where volumes of waiting pods are.
- {apiGroups: [""], resources: [persistentvolumeclaims, persistentvolumes], verbs: [list]}
# What pods of a namespace may hold together.
- {apiGroups: [""], resources: [resourcequotas], verbs: [list]}
- {apiGroups: [scheduling.x-k8s.io], resources: [elasticquotas], verbs: [list]}
# Nodes that autoscalers have asked for.
- {apiGroups: [karpenter.sh], resources: [nodeclaims], verbs: [list]}
- {apiGroups: [autoscaling.x-k8s.io], resources: [provisioningrequests], verbs: [list]}
{{- if eq (include "wattpack.provisions" .) "true" }}
# Requests for what no present node can serve, and the templates that they name; those that nobody waits for are taken back.
- {apiGroups: [autoscaling.x-k8s.io], resources: [provisioningrequests], verbs: [create, delete]}
- {apiGroups: [""], resources: [podtemplates], verbs: [create]}
{{- end }}
# What drivers offer and templates ask for, while a pod with claims waits.
- {apiGroups: [resource.k8s.io], resources: [resourceslices, resourceclaimtemplates], verbs: [list]}
- {apiGroups: [wattpack.io], resources: [powerdomains, powerpolicies, gpuprofiles, demandforecasts, workloadprofiles], verbs: [list, watch]}
- {apiGroups: [wattpack.io], resources: [placementplans], verbs: [list, create, delete]}
- {apiGroups: [wattpack.io], resources: [placementplans/status], verbs: [update]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [admissionregistration.k8s.io], resources: [mutatingwebhookconfigurations], resourceNames: [{{ include "wattpack.webhookName" . }}], verbs: [get, patch]}
{{- include "wattpack.rules.reviews" . }}
{{- end }}
{{- define "wattpack.rules.watchdog" }}
- {apiGroups: [""], resources: [pods], verbs: [list, patch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- end }}
{{- define "wattpack.rules.forecaster" }}
- {apiGroups: [wattpack.io], resources: [demandforecasts, capacityplans, gpuprofiles], verbs: [list, watch]}
# What runs below a domain and on how many boards: once a round.
- {apiGroups: [wattpack.io], resources: [powerdomains, workloadprofiles], verbs: [list]}
- {apiGroups: [""], resources: [nodes, pods], verbs: [list]}
- {apiGroups: [wattpack.io], resources: [demandforecasts/status, capacityplans/status], verbs: [patch]}
{{- include "wattpack.rules.reviews" . }}
{{- end }}
{{- define "wattpack.rules.console" }}
- {apiGroups: [wattpack.io], resources: [gpuprofiles, placementplans, capacityplans, demandforecasts], verbs: [list, watch]}
- {apiGroups: [""], resources: [pods], verbs: [list, watch]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [list, watch]}
# The controllers' live view; whoever looks at the console needs the same right.
- {nonResourceURLs: [/v1/live], verbs: [get]}
{{- include "wattpack.rules.reviews" . }}
{{- end }}
{{- define "wattpack.rules.agent" }}
# Which GpuNode an agent may touch is narrowed to its own by the admission policy.
- {apiGroups: [wattpack.io], resources: [gpunodes], verbs: [create, patch]}
- {apiGroups: [wattpack.io], resources: [gpunodes/status], verbs: [patch]}
{{- include "wattpack.rules.reviews" . }}
{{- end }}
