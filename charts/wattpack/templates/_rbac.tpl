{{/* Cluster-wide rules by component; every verb is one that the process uses. */}}
{{- define "wattpack.rules.controller" }}
- {apiGroups: [wattpack.io], resources: [powerdomains, powerpolicies, poweroverrides, gpunodes, gpuprofiles, workloadprofiles, demandforecasts], verbs: [get, list, watch]}
- {apiGroups: [wattpack.io], resources: [powerdomains/status, powerpolicies/status, poweroverrides/status], verbs: [get, patch, update]}
- {apiGroups: [""], resources: [nodes, pods, namespaces], verbs: [get, list, watch]}
- {apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [get, list, watch]}
- {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- end }}
{{- define "wattpack.rules.scheduler" }}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, patch]}
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
- {apiGroups: [""], resources: [nodes, namespaces], verbs: [get, list, watch]}
- {apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [get, list, watch]}
- {apiGroups: [batch], resources: [jobs], verbs: [get, list, watch]}
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [get, list, watch]}
- {apiGroups: [scheduling.x-k8s.io], resources: [podgroups], verbs: [get, list, watch]}
- {apiGroups: [wattpack.io], resources: [powerdomains, powerpolicies, gpunodes, gpuprofiles, workloadprofiles, demandforecasts], verbs: [get, list, watch]}
- {apiGroups: [wattpack.io], resources: [placementplans], verbs: [get, list, watch, create, delete]}
- {apiGroups: [wattpack.io], resources: [placementplans/status], verbs: [get, patch, update]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [admissionregistration.k8s.io], resources: [mutatingwebhookconfigurations], resourceNames: [{{ include "wattpack.webhookName" . }}], verbs: [get, patch, update]}
{{- end }}
{{- define "wattpack.rules.watchdog" }}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, patch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- end }}
{{- define "wattpack.rules.forecaster" }}
- {apiGroups: [wattpack.io], resources: [demandforecasts, powerdomains], verbs: [get, list, watch]}
- {apiGroups: [wattpack.io], resources: [demandforecasts/status], verbs: [get, patch, update]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- end }}
{{- define "wattpack.rules.console" }}
- {apiGroups: [wattpack.io], resources: [powerdomains, powerpolicies, poweroverrides, gpunodes, gpuprofiles, workloadprofiles, demandforecasts, capacityplans, placementplans], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes, pods], verbs: [get, list, watch]}
{{- end }}
{{- define "wattpack.rules.agent" }}
# Which GpuNode an agent may touch is narrowed to its own by the admission policy below.
- {apiGroups: [wattpack.io], resources: [gpunodes], verbs: [get, create, patch, update]}
- {apiGroups: [wattpack.io], resources: [gpunodes/status], verbs: [get, patch, update]}
{{- end }}
