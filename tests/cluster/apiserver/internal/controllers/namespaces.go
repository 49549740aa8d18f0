package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"wattpack.io/tests/cluster/apiserver/internal/registry"
)

const (
	namespacePeriod = 100 * time.Millisecond
	defaultAccount  = "default"
	rootCAName      = "kube-root-ca.crt"
)

// RunNamespaces gives each namespace its default account and the CA, and empties those being deleted.
func RunNamespaces(ctx context.Context, c kubernetes.Interface, dyn dynamic.Interface, f informers.SharedInformerFactory, ca []byte) {
	namespaces, accounts := f.Core().V1().Namespaces().Lister(), f.Core().V1().ServiceAccounts().Lister()
	ticker := time.NewTicker(namespacePeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		all, err := namespaces.List(labels.Everything())
		for _, ns := range all {
			if ns.DeletionTimestamp != nil {
				err = errors.Join(err, emptyNamespace(ctx, c, dyn, ns.DeepCopy()))
			} else if _, missing := accounts.ServiceAccounts(ns.Name).Get(defaultAccount); apierrors.IsNotFound(missing) {
				err = errors.Join(err, furnish(ctx, c, ns.Name, ca))
			}
		}
		if err != nil {
			klog.V(2).InfoS("namespace controller will try again", "why", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func furnish(ctx context.Context, c kubernetes.Interface, namespace string, ca []byte) error {
	authority := &corev1.ConfigMap{ObjectMeta: named(rootCAName), Data: map[string]string{"ca.crt": string(ca)}}
	_, err := c.CoreV1().ConfigMaps(namespace).Create(ctx, authority, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = c.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(defaultAccount)}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // the cache is a moment behind
	}
	return err
}

// emptyNamespace deletes everything in the namespace and lets it go when nothing is left.
func emptyNamespace(ctx context.Context, c kubernetes.Interface, dyn dynamic.Interface, ns *corev1.Namespace) error {
	lists, err := c.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		return err
	}
	left := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "deletecollection") || gv.Group == "events.k8s.io" {
				continue
			}
			n, err := emptyResource(ctx, dyn.Resource(gv.WithResource(r.Name)).Namespace(ns.Name))
			if err != nil {
				return err
			}
			left += n
		}
	}
	if left > 0 {
		return fmt.Errorf("namespace %s still holds %d objects", ns.Name, left)
	}
	ns.Finalizers = slices.DeleteFunc(ns.Finalizers, func(s string) bool { return s == registry.NamespaceFinalizer })
	_, err = c.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// emptyResource deletes all objects and says how many are still there.
func emptyResource(ctx context.Context, r dynamic.ResourceInterface) (int, error) {
	if err := r.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return 0, err
	}
	left, err := r.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return len(left.Items), nil
}
