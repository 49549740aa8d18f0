package rules

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Service validates a service as it is created or updated.
func Service(s *corev1.Service) (errs field.ErrorList) {
	errs = append(errs, oneOf(spec.Child("type"), s.Spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)...)
	if len(s.Spec.Ports) == 0 && s.Spec.ClusterIP != corev1.ClusterIPNone && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(spec.Child("ports"), ""))
	}
	names := sets.New[string]()
	for i, p := range s.Spec.Ports {
		path := spec.Child("ports").Index(i)
		if p.Name == "" && len(s.Spec.Ports) > 1 {
			errs = append(errs, field.Required(path.Child("name"), ""))
		}
		if p.Name != "" && names.Has(p.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
		}
		names.Insert(p.Name)
		if p.Port < 1 || p.Port > 65535 {
			errs = append(errs, field.Invalid(path.Child("port"), p.Port, "must be between 1 and 65535, inclusive"))
		}
		errs = append(errs, oneOf(path.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	for k, v := range s.Spec.Selector {
		errs = append(errs, labelPair(k, v, spec.Child("selector"))...)
	}
	return errs
}

// PolicyRules validates the rules of a role; namespaced roles cannot hold non-resource URLs.
func PolicyRules(rules []rbacv1.PolicyRule, namespaced bool) (errs field.ErrorList) {
	for i, r := range rules {
		path := field.NewPath("rules").Index(i)
		if len(r.Verbs) == 0 {
			errs = append(errs, field.Required(path.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(r.NonResourceURLs) > 0 {
			if namespaced {
				errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
			}
			if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
				errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(r.APIGroups) == 0 {
			errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(r.Resources) == 0 {
			errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
		}
	}
	return errs
}

// RoleBinding validates the reference and the subjects of a binding.
func RoleBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool) (errs field.ErrorList) {
	path := field.NewPath("roleRef")
	kinds := []string{"ClusterRole"}
	if namespaced {
		kinds = append(kinds, "Role")
	}
	errs = append(errs, oneOf(path.Child("apiGroup"), ref.APIGroup, rbacv1.GroupName)...)
	errs = append(errs, oneOf(path.Child("kind"), ref.Kind, kinds...)...)
	if ref.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	for i, s := range subjects {
		p := field.NewPath("subjects").Index(i)
		errs = append(errs, oneOf(p.Child("kind"), s.Kind, rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)...)
		if s.Name == "" {
			errs = append(errs, field.Required(p.Child("name"), ""))
		}
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "" && !namespaced {
			errs = append(errs, field.Required(p.Child("namespace"), ""))
		}
	}
	return errs
}

// RoleRefUpdate refuses a changed role reference.
func RoleRefUpdate(now, was rbacv1.RoleRef) field.ErrorList {
	if now == was {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), now, "cannot change roleRef")}
}

// PriorityClass validates a priority class.
func PriorityClass(c *schedulingv1.PriorityClass) (errs field.ErrorList) {
	system := strings.HasPrefix(c.Name, "system-")
	known := slices.Contains([]string{"system-node-critical", "system-cluster-critical"}, c.Name)
	switch {
	case system && !known:
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with 'system-' prefix are reserved for system use only"))
	case !system && c.Value > 1000000000:
		errs = append(errs, field.Forbidden(field.NewPath("value"), "maximum allowed value of a user defined priority is 1000000000"))
	}
	return errs
}

// PriorityClassUpdate refuses a changed value or preemption policy.
func PriorityClassUpdate(c, old *schedulingv1.PriorityClass) (errs field.ErrorList) {
	if c.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, immutable(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}

// Lease validates a lease.
func Lease(l *coordinationv1.Lease) (errs field.ErrorList) {
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	return append(errs, notNegative(l.Spec.LeaseTransitions, spec.Child("leaseTransitions"))...)
}

// Node validates a node's taints.
func Node(n *corev1.Node) (errs field.ErrorList) {
	for i, t := range n.Spec.Taints {
		p := spec.Child("taints").Index(i)
		errs = append(errs, labelPair(t.Key, t.Value, p)...)
		errs = append(errs, oneOf(p.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
	}
	return errs
}

// ConfigKeys validates the keys of a config map or secret.
func ConfigKeys[T any](data map[string]T) (errs field.ErrorList) {
	for k := range data {
		for _, msg := range validation.IsConfigMapKey(k) {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(k), k, msg))
		}
	}
	return errs
}

// Webhook validates what the two webhook kinds share.
func Webhook(path *field.Path, name string, cc admissionv1.WebhookClientConfig, sideEffects *admissionv1.SideEffectClass, timeout *int32, versions []string) (errs field.ErrorList) {
	if msgs := validation.IsFullyQualifiedName(path.Child("name"), name); len(msgs) > 0 {
		errs = append(errs, msgs...)
	}
	if (cc.URL == nil) == (cc.Service == nil) {
		errs = append(errs, field.Required(path.Child("clientConfig"), "exactly one of url or service is required"))
	}
	if sideEffects == nil {
		errs = append(errs, field.Required(path.Child("sideEffects"), ""))
	} else {
		errs = append(errs, oneOf(path.Child("sideEffects"), *sideEffects, admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun)...)
	}
	if timeout != nil && (*timeout < 1 || *timeout > 30) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *timeout, "the timeout value must be between 1 and 30 seconds"))
	}
	if !slices.Contains(versions, "v1") {
		errs = append(errs, field.Required(path.Child("admissionReviewVersions"), "must include at least v1"))
	}
	return errs
}
