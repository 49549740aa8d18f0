package rbac

import (
	"context"
	"fmt"
	"io"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// PluginName is the admission plugin that keeps users from granting more than they hold.
const PluginName = "RBACEscalation"

// escalation refuses roles and bindings that grant what their writer does not hold.
type escalation struct {
	*admission.Handler
	rbac *Authorizer
	all  authorizer.Authorizer
}

var _ admission.ValidationInterface = &escalation{}

// EscalationPlugin makes the plugin; all is the whole authorizer, which knows the verbs "escalate" and "bind".
func EscalationPlugin(rbac *Authorizer, all authorizer.Authorizer) admission.Factory {
	return func(io.Reader) (admission.Interface, error) {
		return &escalation{admission.NewHandler(admission.Create, admission.Update), rbac, all}, nil
	}
}

// Validate implements admission.ValidationInterface.
func (e *escalation) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Group != rbacv1.GroupName || privileged(a.GetUserInfo()) {
		return nil
	}
	switch o := a.GetObject().(type) {
	case *rbacv1.Role:
		return e.grants(ctx, a, o.Rules)
	case *rbacv1.ClusterRole:
		return e.grants(ctx, a, o.Rules)
	case *rbacv1.RoleBinding:
		return e.binds(ctx, a, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return e.binds(ctx, a, o.RoleRef)
	}
	return nil
}

func (e *escalation) grants(ctx context.Context, a admission.Attributes, rules []rbacv1.PolicyRule) error {
	if e.allowed(ctx, a, "escalate", a.GetName()) {
		return nil
	}
	return e.covered(a, rules)
}

func (e *escalation) binds(ctx context.Context, a admission.Attributes, ref rbacv1.RoleRef) error {
	plural := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}[ref.Kind]
	decision, _, err := e.all.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "bind", Namespace: a.GetNamespace(), APIGroup: rbacv1.GroupName, APIVersion: "v1",
		Resource: plural, Name: ref.Name, ResourceRequest: true,
	})
	if err == nil && decision == authorizer.DecisionAllow {
		return nil
	}
	var rules []rbacv1.PolicyRule
	if ref.Kind == "Role" {
		role, err := e.rbac.roles.Roles(a.GetNamespace()).Get(ref.Name)
		if err != nil {
			return err
		}
		rules = role.Rules
	} else {
		role, err := e.rbac.clusterRoles.Get(ref.Name)
		if err != nil {
			return err
		}
		rules = e.rbac.withAggregated(role)
	}
	return e.covered(a, rules)
}

// covered says whether the requester holds every one of the rules.
func (e *escalation) covered(a admission.Attributes, rules []rbacv1.PolicyRule) error {
	var held []rbacv1.PolicyRule
	err := e.rbac.visit(a.GetUserInfo(), a.GetNamespace(), func(r rbacv1.PolicyRule) bool {
		held = append(held, r)
		return true
	})
	if err != nil {
		return err
	}
	ok, missing := validation.Covers(held, rules)
	if ok {
		return nil
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(),
		fmt.Errorf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%v", a.GetUserInfo().GetName(), a.GetUserInfo().GetGroups(), missing))
}

func (e *escalation) allowed(ctx context.Context, a admission.Attributes, verb, name string) bool {
	decision, _, err := e.all.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: verb, Namespace: a.GetNamespace(), APIGroup: rbacv1.GroupName, APIVersion: "v1",
		Resource: a.GetResource().Resource, Name: name, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

func privileged(u user.Info) bool {
	for _, g := range u.GetGroups() {
		if g == user.SystemPrivilegedGroup {
			return true
		}
	}
	return false
}
