// Package rbac enforces roles and bindings, and keeps users from granting more than they hold.
package rbac

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
)

// Authorizer enforces roles and bindings from the shared informers.
type Authorizer struct {
	roles        rbaclisters.RoleLister
	bindings     rbaclisters.RoleBindingLister
	clusterRoles rbaclisters.ClusterRoleLister
	clusterBinds rbaclisters.ClusterRoleBindingLister
}

func subjectMatches(u user.Info, s rbacv1.Subject, ns string) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return u.GetName() == s.Name
	case rbacv1.GroupKind:
		return slices.Contains(u.GetGroups(), s.Name)
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			ns = s.Namespace
		}
		return serviceaccount.MatchesUsername(ns, s.Name, u.GetName())
	}
	return false
}

// visit calls f with every rule of u, cluster-wide first, then in namespace ns, until f returns false.
func (r *Authorizer) visit(u user.Info, ns string, f func(rbacv1.PolicyRule) bool) error {
	rulesOf := func(ref rbacv1.RoleRef, ns string) []rbacv1.PolicyRule {
		if ref.Kind == "Role" {
			if role, err := r.roles.Roles(ns).Get(ref.Name); err == nil {
				return role.Rules
			}
		} else if role, err := r.clusterRoles.Get(ref.Name); err == nil {
			return r.withAggregated(role)
		}
		return nil
	}
	walk := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject, ns string) bool {
		if !slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return subjectMatches(u, s, ns) }) {
			return true
		}
		for _, rule := range rulesOf(ref, ns) {
			if !f(rule) {
				return false
			}
		}
		return true
	}
	crbs, err := r.clusterBinds.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, b := range crbs {
		if !walk(b.RoleRef, b.Subjects, "") {
			return nil
		}
	}
	if ns == "" {
		return nil
	}
	rbs, err := r.bindings.RoleBindings(ns).List(labels.Everything())
	if err != nil {
		return err
	}
	for _, b := range rbs {
		if !walk(b.RoleRef, b.Subjects, ns) {
			return nil
		}
	}
	return nil
}

// withAggregated adds the rules of the cluster roles that the role's aggregation selects.
func (r *Authorizer) withAggregated(role *rbacv1.ClusterRole) []rbacv1.PolicyRule {
	if role.AggregationRule == nil {
		return role.Rules
	}
	rules := slices.Clone(role.Rules)
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			continue // refused by Kubernetes; it selects nothing
		}
		others, err := r.clusterRoles.List(selector)
		if err != nil {
			continue // a lister of a cache has no errors
		}
		for _, other := range others {
			if other.Name != role.Name {
				rules = append(rules, other.Rules...)
			}
		}
	}
	return rules
}

func has(list []string, v string) bool { return slices.Contains(list, v) || slices.Contains(list, "*") }

func ruleAllows(a authorizer.Attributes, rule rbacv1.PolicyRule) bool {
	if !has(rule.Verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(p string) bool {
			return p == a.GetPath() || strings.HasSuffix(p, "*") && strings.HasPrefix(a.GetPath(), strings.TrimRight(p, "*"))
		})
	}
	res := a.GetResource()
	ok := slices.Contains(rule.Resources, "*")
	if sub := a.GetSubresource(); sub != "" {
		res += "/" + sub
		ok = ok || slices.Contains(rule.Resources, "*/"+sub)
	}
	return has(rule.APIGroups, a.GetAPIGroup()) && (ok || slices.Contains(rule.Resources, res)) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}

// Authorize implements authorizer.Authorizer.
func (r *Authorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	allowed := false
	err := r.visit(a.GetUser(), a.GetNamespace(), func(rule rbacv1.PolicyRule) bool {
		allowed = ruleAllows(a, rule)
		return !allowed
	})
	if allowed {
		return authorizer.DecisionAllow, "RBAC: allowed", nil
	}
	return authorizer.DecisionNoOpinion, "", err
}

// RulesFor implements authorizer.RuleResolver.
func (r *Authorizer) RulesFor(_ context.Context, u user.Info, ns string) (res []authorizer.ResourceRuleInfo, non []authorizer.NonResourceRuleInfo, _ bool, err error) {
	err = r.visit(u, ns, func(rule rbacv1.PolicyRule) bool {
		if len(rule.Resources) > 0 {
			res = append(res, &authorizer.DefaultResourceRuleInfo{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
		}
		if len(rule.NonResourceURLs) > 0 {
			non = append(non, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
		return true
	})
	return res, non, false, err
}

// New reads roles and bindings through the informers of the factory.
func New(f informers.SharedInformerFactory) *Authorizer {
	r := f.Rbac().V1()
	return &Authorizer{r.Roles().Lister(), r.RoleBindings().Lister(), r.ClusterRoles().Lister(), r.ClusterRoleBindings().Lister()}
}
