package registry

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"wattpack.io/tests/cluster/apiserver/internal/rules"
)

func gv(group string) schema.GroupVersion { return schema.GroupVersion{Group: group, Version: "v1"} }

// checked adapts a typed validation function to any runtime.Object.
func checked[T runtime.Object](f func(T) field.ErrorList) func(runtime.Object) field.ErrorList {
	return func(o runtime.Object) field.ErrorList { return f(o.(T)) }
}

// compared adapts a typed update rule to any runtime.Object.
func compared[T runtime.Object](f func(T, T) field.ErrorList) func(runtime.Object, runtime.Object) field.ErrorList {
	return func(o, old runtime.Object) field.ErrorList { return f(o.(T), old.(T)) }
}

// pathName allows colons in names, as RBAC does.
var pathName = validation.ValidateNameFunc(path.ValidatePathSegmentName)

// resources are the stored built-ins.
func resources() (all []*Resource) {
	all = append(all, coreResources()...)
	all = append(all, workloadResources()...)
	all = append(all, policyResources()...)
	return append(all, admissionResources()...)
}

func coreResources() []*Resource {
	return []*Resource{
		{gv: gv(""), plural: "namespaces", singular: "namespace", short: []string{"ns"}, obj: &corev1.Namespace{}, list: &corev1.NamespaceList{},
			cluster: true, status: true, name: validation.NameIsDNSLabel, create: prepareNamespace, grace: terminateNamespace},
		{gv: gv(""), plural: "nodes", singular: "node", short: []string{"no"}, obj: &corev1.Node{}, list: &corev1.NodeList{}, cluster: true,
			status: true, keepStatus: true, validate: checked(rules.Node)},
		{gv: gv(""), plural: "pods", singular: "pod", short: []string{"po"}, obj: &corev1.Pod{}, list: &corev1.PodList{}, status: true,
			create: preparePod, update: updatePod, validate: checked(rules.Pod), validateUpdate: compared(rules.PodUpdate), grace: podGrace},
		{gv: gv(""), plural: "podtemplates", singular: "podtemplate", obj: &corev1.PodTemplate{}, list: &corev1.PodTemplateList{},
			validate: checked(rules.PodTemplate)},
		{gv: gv(""), plural: "events", singular: "event", short: []string{"ev"}, obj: &corev1.Event{}, list: &corev1.EventList{}, upsert: true},
		{gv: gv(""), plural: "configmaps", singular: "configmap", short: []string{"cm"}, obj: &corev1.ConfigMap{}, list: &corev1.ConfigMapList{},
			upsert: true, validate: checked(func(c *corev1.ConfigMap) field.ErrorList { return rules.ConfigKeys(c.Data) })},
		{gv: gv(""), plural: "secrets", singular: "secret", obj: &corev1.Secret{}, list: &corev1.SecretList{}, upsert: true,
			create: mergeStringData, update: func(o, _ runtime.Object) { mergeStringData(o) },
			validate: checked(func(s *corev1.Secret) field.ErrorList { return rules.ConfigKeys(s.Data) })},
		{gv: gv(""), plural: "services", singular: "service", short: []string{"svc"}, obj: &corev1.Service{}, list: &corev1.ServiceList{},
			status: true, name: validation.NameIsDNS1035Label, validate: checked(rules.Service)},
		{gv: gv(""), plural: "serviceaccounts", singular: "serviceaccount", short: []string{"sa"}, obj: &corev1.ServiceAccount{}, list: &corev1.ServiceAccountList{}},
		{gv: gv(""), plural: "persistentvolumeclaims", singular: "persistentvolumeclaim", short: []string{"pvc"},
			obj: &corev1.PersistentVolumeClaim{}, list: &corev1.PersistentVolumeClaimList{}, status: true},
		{gv: gv(""), plural: "persistentvolumes", singular: "persistentvolume", short: []string{"pv"},
			obj: &corev1.PersistentVolume{}, list: &corev1.PersistentVolumeList{}, cluster: true, status: true},
		{gv: gv("coordination.k8s.io"), plural: "leases", singular: "lease", obj: &coordinationv1.Lease{}, list: &coordinationv1.LeaseList{},
			upsert: true, validate: checked(rules.Lease)},
	}
}

func workloadResources() []*Resource {
	return []*Resource{
		{gv: gv("apps"), plural: "deployments", singular: "deployment", short: []string{"deploy"}, obj: &appsv1.Deployment{}, list: &appsv1.DeploymentList{},
			status: true, scale: true, validate: checked(rules.Deployment), validateUpdate: compared(rules.DeploymentUpdate)},
		{gv: gv("apps"), plural: "replicasets", singular: "replicaset", short: []string{"rs"}, obj: &appsv1.ReplicaSet{}, list: &appsv1.ReplicaSetList{},
			status: true, scale: true, validate: checked(rules.ReplicaSet), validateUpdate: compared(rules.ReplicaSetUpdate)},
		{gv: gv("apps"), plural: "statefulsets", singular: "statefulset", short: []string{"sts"}, obj: &appsv1.StatefulSet{}, list: &appsv1.StatefulSetList{},
			status: true, scale: true, validate: checked(rules.StatefulSet), validateUpdate: compared(rules.StatefulSetUpdate)},
		{gv: gv("apps"), plural: "daemonsets", singular: "daemonset", short: []string{"ds"}, obj: &appsv1.DaemonSet{}, list: &appsv1.DaemonSetList{},
			status: true, validate: checked(rules.DaemonSet), validateUpdate: compared(rules.DaemonSetUpdate)},
		{gv: gv("batch"), plural: "jobs", singular: "job", obj: &batchv1.Job{}, list: &batchv1.JobList{}, status: true, create: prepareJob,
			validate: checked(rules.Job), validateUpdate: compared(rules.JobUpdate)},
	}
}

func policyResources() []*Resource {
	rbac := gv(rbacv1.GroupName)
	return []*Resource{
		{gv: gv("policy"), plural: "poddisruptionbudgets", singular: "poddisruptionbudget", short: []string{"pdb"}, obj: &policyv1.PodDisruptionBudget{},
			list: &policyv1.PodDisruptionBudgetList{}, status: true, validate: checked(rules.DisruptionBudget)},
		{gv: gv("networking.k8s.io"), plural: "networkpolicies", singular: "networkpolicy", short: []string{"netpol"}, obj: &networkingv1.NetworkPolicy{},
			list: &networkingv1.NetworkPolicyList{}},
		{gv: rbac, plural: "roles", singular: "role", obj: &rbacv1.Role{}, list: &rbacv1.RoleList{}, upsert: true, name: pathName,
			validate: checked(func(r *rbacv1.Role) field.ErrorList { return rules.PolicyRules(r.Rules, true) })},
		{gv: rbac, plural: "clusterroles", singular: "clusterrole", obj: &rbacv1.ClusterRole{}, list: &rbacv1.ClusterRoleList{}, cluster: true,
			upsert: true, name: pathName, validate: checked(func(r *rbacv1.ClusterRole) field.ErrorList { return rules.PolicyRules(r.Rules, false) })},
		{gv: rbac, plural: "rolebindings", singular: "rolebinding", obj: &rbacv1.RoleBinding{}, list: &rbacv1.RoleBindingList{}, upsert: true, name: pathName,
			validate:       checked(func(b *rbacv1.RoleBinding) field.ErrorList { return rules.RoleBinding(b.RoleRef, b.Subjects, true) }),
			validateUpdate: compared(func(b, old *rbacv1.RoleBinding) field.ErrorList { return rules.RoleRefUpdate(b.RoleRef, old.RoleRef) })},
		{gv: rbac, plural: "clusterrolebindings", singular: "clusterrolebinding", obj: &rbacv1.ClusterRoleBinding{}, list: &rbacv1.ClusterRoleBindingList{},
			cluster: true, upsert: true, name: pathName,
			validate: checked(func(b *rbacv1.ClusterRoleBinding) field.ErrorList {
				return rules.RoleBinding(b.RoleRef, b.Subjects, false)
			}),
			validateUpdate: compared(func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
				return rules.RoleRefUpdate(b.RoleRef, old.RoleRef)
			})},
		{gv: gv("scheduling.k8s.io"), plural: "priorityclasses", singular: "priorityclass", short: []string{"pc"}, obj: &schedulingv1.PriorityClass{},
			list: &schedulingv1.PriorityClassList{}, cluster: true, upsert: true, validate: checked(rules.PriorityClass), validateUpdate: compared(rules.PriorityClassUpdate)},
	}
}

func admissionResources() []*Resource {
	group := gv("admissionregistration.k8s.io")
	return []*Resource{
		{gv: group, plural: "mutatingwebhookconfigurations", singular: "mutatingwebhookconfiguration", obj: &admissionv1.MutatingWebhookConfiguration{},
			list: &admissionv1.MutatingWebhookConfigurationList{}, cluster: true, validate: checked(mutatingWebhooks)},
		{gv: group, plural: "validatingwebhookconfigurations", singular: "validatingwebhookconfiguration", obj: &admissionv1.ValidatingWebhookConfiguration{},
			list: &admissionv1.ValidatingWebhookConfigurationList{}, cluster: true, validate: checked(validatingWebhooks)},
		{gv: group, plural: "validatingadmissionpolicies", singular: "validatingadmissionpolicy", obj: &admissionv1.ValidatingAdmissionPolicy{},
			list: &admissionv1.ValidatingAdmissionPolicyList{}, cluster: true, status: true},
		{gv: group, plural: "validatingadmissionpolicybindings", singular: "validatingadmissionpolicybinding",
			obj: &admissionv1.ValidatingAdmissionPolicyBinding{}, list: &admissionv1.ValidatingAdmissionPolicyBindingList{}, cluster: true},
	}
}

func mutatingWebhooks(c *admissionv1.MutatingWebhookConfiguration) (errs field.ErrorList) {
	for i, w := range c.Webhooks {
		errs = append(errs, rules.Webhook(field.NewPath("webhooks").Index(i), w.Name, w.ClientConfig, w.SideEffects, w.TimeoutSeconds, w.AdmissionReviewVersions)...)
	}
	return errs
}

func validatingWebhooks(c *admissionv1.ValidatingWebhookConfiguration) (errs field.ErrorList) {
	for i, w := range c.Webhooks {
		errs = append(errs, rules.Webhook(field.NewPath("webhooks").Index(i), w.Name, w.ClientConfig, w.SideEffects, w.TimeoutSeconds, w.AdmissionReviewVersions)...)
	}
	return errs
}
