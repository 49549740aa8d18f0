package controllers

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	authenticationGroup = "authentication.k8s.io"
	authorizationGroup  = "authorization.k8s.io"
)

var (
	anything = []string{"*"}
	reading  = []string{"get", "list", "watch"}
	creating = []string{"create"}
	// The groups of namespaced work that admin, edit and view are about.
	workGroups = []string{"", "apps", "batch", "policy", "coordination.k8s.io", "networking.k8s.io"}
)

func rule(verbs, groups, resources []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: groups, Resources: resources}
}

func reachable(urls ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: urls}
}

// clusterRoles are the well-known roles; admin, edit and view also take in roles labelled for them.
func clusterRoles() []*rbacv1.ClusterRole {
	role := func(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: named(name), Rules: rules}
	}
	readable := []string{
		"pods", "pods/status", "configmaps", "services", "serviceaccounts", "events", "deployments", "replicasets", "statefulsets",
		"daemonsets", "jobs", "poddisruptionbudgets", "networkpolicies", "persistentvolumeclaims",
	}
	return []*rbacv1.ClusterRole{
		role("cluster-admin", rule(anything, anything, anything), rbacv1.PolicyRule{Verbs: anything, NonResourceURLs: anything}),
		aggregated("admin", rule(anything, append([]string{rbacv1.GroupName}, workGroups...), anything)),
		aggregated("edit", rule(anything, workGroups, anything)),
		aggregated("view", rule(reading, workGroups, readable)),
		role("system:discovery", reachable("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/")),
		role("system:basic-user",
			rule(creating, []string{authorizationGroup}, []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}),
			rule(creating, []string{authenticationGroup}, []string{"selfsubjectreviews"})),
		role("system:auth-delegator",
			rule(creating, []string{authorizationGroup}, []string{"subjectaccessreviews"}),
			rule(creating, []string{authenticationGroup}, []string{"tokenreviews"})),
		role("system:public-info-viewer", reachable("/healthz", "/livez", "/readyz", "/version", "/version/")),
	}
}

func aggregated(name string, own rbacv1.PolicyRule) *rbacv1.ClusterRole {
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-" + name: "true"}}
	return &rbacv1.ClusterRole{
		ObjectMeta: named(name), Rules: []rbacv1.PolicyRule{own},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{selector}},
	}
}
