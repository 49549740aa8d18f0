// Package controllers makes what every cluster has, and keeps namespaces and the list of API groups.
package controllers

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Kubernetes' own system priority classes.
const (
	clusterCriticalPriority = 2_000_000_000
	nodeCriticalPriority    = 2_000_001_000
)

// Bootstrap creates the objects that every cluster has; those that exist already stay as they are.
func Bootstrap(ctx context.Context, c kubernetes.Interface) error {
	var all []error
	make1 := func(_ any, err error) {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			all = append(all, err)
		}
	}
	options := metav1.CreateOptions{}
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		make1(c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: named(name)}, options))
	}
	for _, role := range clusterRoles() {
		make1(c.RbacV1().ClusterRoles().Create(ctx, role, options))
	}
	for name, group := range map[string]string{
		"cluster-admin": "system:masters", "system:discovery": "system:authenticated", "system:basic-user": "system:authenticated",
		"system:public-info-viewer": "system:unauthenticated",
	} {
		make1(c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: named(name), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: group}},
		}, options))
	}
	for name, value := range map[string]int32{"system-cluster-critical": clusterCriticalPriority, "system-node-critical": nodeCriticalPriority} {
		make1(c.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: named(name), Value: value}, options))
	}
	return errors.Join(all...)
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
