package rbac

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestRuleAllows(t *testing.T) {
	pods := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}
	with := func(f func(*rbacv1.PolicyRule)) rbacv1.PolicyRule { r := *pods.DeepCopy(); f(&r); return r }
	get := authorizer.AttributesRecord{Verb: "get", Resource: "pods", Name: "p", ResourceRequest: true}
	but := func(f func(*authorizer.AttributesRecord)) authorizer.AttributesRecord { a := get; f(&a); return a }
	binding := but(func(a *authorizer.AttributesRecord) { a.Subresource = "binding" })
	url := authorizer.AttributesRecord{Verb: "get", Path: "/metrics/slis"}
	for _, c := range []struct {
		name string
		rule rbacv1.PolicyRule
		asks authorizer.AttributesRecord
		want bool
	}{
		{"what it says", pods, get, true},
		{"another verb", pods, but(func(a *authorizer.AttributesRecord) { a.Verb = "list" }), false},
		{"another group", pods, but(func(a *authorizer.AttributesRecord) { a.APIGroup = "apps" }), false},
		{"a subresource is not its resource", pods, binding, false},
		{"the subresource by name", with(func(r *rbacv1.PolicyRule) { r.Resources = []string{"pods/binding"} }), binding, true},
		{"the subresource of all", with(func(r *rbacv1.PolicyRule) { r.Resources = []string{"*/binding"} }), binding, true},
		{"everything", with(func(r *rbacv1.PolicyRule) { r.Resources = []string{"*"} }), binding, true},
		{"one name", with(func(r *rbacv1.PolicyRule) { r.ResourceNames = []string{"p"} }), get, true},
		{"another name", with(func(r *rbacv1.PolicyRule) { r.ResourceNames = []string{"q"} }), get, false},
		{"a resource rule and a URL", pods, url, false},
		{"a URL by prefix", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics/*"}}, url, true},
		{"another URL", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}, url, false},
	} {
		if got := ruleAllows(c.asks, c.rule); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestSubjectMatches(t *testing.T) {
	account := &user.DefaultInfo{Name: "system:serviceaccount:ns:bot", Groups: []string{"system:authenticated"}}
	for _, c := range []struct {
		name    string
		subject rbacv1.Subject
		want    bool
	}{
		{"the account", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "bot", Namespace: "ns"}, true},
		{"the account of the binding's namespace", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "bot"}, true},
		{"a namesake", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "bot", Namespace: "other"}, false},
		{"its user name", rbacv1.Subject{Kind: rbacv1.UserKind, Name: account.Name}, true},
		{"its group", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"}, true},
		{"another group", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:masters"}, false},
	} {
		if got := subjectMatches(account, c.subject, "ns"); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
