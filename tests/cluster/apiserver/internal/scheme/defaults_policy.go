package scheme

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func addPolicyDefaults(s *runtime.Scheme) {
	register(s, func(o *schedulingv1.PriorityClass) { DefaultPointer(&o.PreemptionPolicy, corev1.PreemptLowerPriority) })
	register(s, func(o *rbacv1.RoleBinding) { defaultBinding(&o.RoleRef, o.Subjects) })
	register(s, func(o *rbacv1.ClusterRoleBinding) { defaultBinding(&o.RoleRef, o.Subjects) })
	register(s, func(o *admissionv1.MutatingWebhookConfiguration) {
		for i := range o.Webhooks {
			w := &o.Webhooks[i]
			defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig, w.Rules)
			DefaultPointer(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
		}
	})
	register(s, func(o *admissionv1.ValidatingWebhookConfiguration) {
		for i := range o.Webhooks {
			w := &o.Webhooks[i]
			defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig, w.Rules)
		}
	})
	register(s, func(o *admissionv1.ValidatingAdmissionPolicy) {
		DefaultPointer(&o.Spec.FailurePolicy, admissionv1.Fail)
		defaultMatch(o.Spec.MatchConstraints)
	})
	register(s, func(o *admissionv1.ValidatingAdmissionPolicyBinding) { defaultMatch(o.Spec.MatchResources) })
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	Default(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if subjects[i].Kind != rbacv1.ServiceAccountKind {
			Default(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

func defaultRules(rules []admissionv1.RuleWithOperations) {
	for i := range rules {
		DefaultPointer(&rules[i].Scope, admissionv1.AllScopes)
	}
}

func defaultWebhook(fp **admissionv1.FailurePolicyType, mp **admissionv1.MatchPolicyType, ns, obj **metav1.LabelSelector,
	timeout **int32, cc *admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations) {
	DefaultPointer(fp, admissionv1.Fail)
	DefaultPointer(mp, admissionv1.Equivalent)
	DefaultPointer(ns, metav1.LabelSelector{})
	DefaultPointer(obj, metav1.LabelSelector{})
	DefaultPointer(timeout, 10)
	if cc.Service != nil {
		DefaultPointer(&cc.Service.Port, 443)
	}
	defaultRules(rules)
}

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	DefaultPointer(&m.MatchPolicy, admissionv1.Equivalent)
	DefaultPointer(&m.NamespaceSelector, metav1.LabelSelector{})
	DefaultPointer(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rs := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rs {
			DefaultPointer(&rs[i].Scope, admissionv1.AllScopes)
		}
	}
}
