// Package controllers keeps the promises that a cluster's own controllers keep, as far as the tests need them.
package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func rule(verbs, groups, res []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: groups, Resources: res}
}

// Bootstrap creates the objects every cluster has.
func Bootstrap(ctx context.Context, c kubernetes.Interface) error {
	var first error
	ok := func(_ any, err error) {
		if err != nil && !errors.IsAlreadyExists(err) && first == nil {
			first = err
		}
	}
	o, m := metav1.CreateOptions{}, func(n string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: n} }
	for _, n := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		ok(c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: m(n)}, o))
	}
	all, ro := []string{"*"}, []string{"get", "list", "watch"}
	urls := rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"}}
	roles := map[string][]rbacv1.PolicyRule{
		"cluster-admin":    {rule(all, all, all), {Verbs: all, NonResourceURLs: all}},
		"admin":            {rule(all, []string{"", "apps", "batch", "policy", "coordination.k8s.io", rbacv1.GroupName}, all)},
		"edit":             {rule(all, []string{"", "apps", "batch", "policy", "coordination.k8s.io"}, all)},
		"view":             {rule(ro, []string{"", "apps", "batch", "policy", "coordination.k8s.io"}, []string{"pods", "pods/status", "configmaps", "services", "serviceaccounts", "events", "deployments", "replicasets", "daemonsets", "jobs", "poddisruptionbudgets"})},
		"system:discovery": {urls},
		"system:basic-user": {rule([]string{"create"}, []string{"authorization.k8s.io"}, []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}),
			rule([]string{"create"}, []string{"authentication.k8s.io"}, []string{"selfsubjectreviews"})},
		"system:auth-delegator": {rule([]string{"create"}, []string{"authorization.k8s.io"}, []string{"subjectaccessreviews"}),
			rule([]string{"create"}, []string{"authentication.k8s.io"}, []string{"tokenreviews"})},
		"system:public-info-viewer": {{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/livez", "/readyz", "/version", "/version/"}}},
	}
	for n, r := range roles {
		ok(c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: m(n), Rules: r}, o))
	}
	for n, group := range map[string]string{"cluster-admin": "system:masters", "system:discovery": "system:authenticated", "system:basic-user": "system:authenticated", "system:public-info-viewer": "system:unauthenticated"} {
		ok(c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: m(n), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: n},
			Subjects: []rbacv1.Subject{{Kind: "Group", Name: group}}}, o))
	}
	for n, v := range map[string]int32{"system-cluster-critical": 2000000000, "system-node-critical": 2000001000} {
		ok(c.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: m(n), Value: v}, o))
	}
	return first
}
