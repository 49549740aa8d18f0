package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"wattpack.io/tests/cluster/apiserver/internal/registry"
)

// RunNamespaces gives each namespace its default account and CA, and empties those being deleted.
func RunNamespaces(ctx context.Context, c kubernetes.Interface, dyn dynamic.Interface, f informers.SharedInformerFactory, ca []byte) {
	nss := f.Core().V1().Namespaces().Lister()
	sas := f.Core().V1().ServiceAccounts().Lister()
	for ctx.Err() == nil {
		all, _ := nss.List(labels.Everything())
		for _, ns := range all {
			if ns.DeletionTimestamp != nil {
				if err := emptyNamespace(ctx, c, dyn, ns.DeepCopy()); err != nil {
					klog.V(2).InfoS("namespace not empty yet", "namespace", ns.Name, "why", err)
				}
			} else if _, err := sas.ServiceAccounts(ns.Name).Get("default"); errors.IsNotFound(err) {
				meta := metav1.ObjectMeta{Name: "kube-root-ca.crt", Namespace: ns.Name}
				_, _ = c.CoreV1().ConfigMaps(ns.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": string(ca)}}, metav1.CreateOptions{})
				meta.Name = "default"
				_, _ = c.CoreV1().ServiceAccounts(ns.Name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func emptyNamespace(ctx context.Context, c kubernetes.Interface, dyn dynamic.Interface, ns *corev1.Namespace) (err error) {
	lists, err := c.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		return err
	}
	left := 0
	for _, l := range lists {
		gv, _ := schema.ParseGroupVersion(l.GroupVersion)
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "deletecollection") || gv.Group == "events.k8s.io" {
				continue
			}
			res := dyn.Resource(gv.WithResource(r.Name)).Namespace(ns.Name)
			if err := res.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				return err
			}
			got, err := res.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			left += len(got.Items)
		}
	}
	if left > 0 {
		return errors.NewConflict(schema.GroupResource{Resource: "namespaces"}, ns.Name, nil)
	}
	ns.Finalizers = slices.DeleteFunc(ns.Finalizers, func(s string) bool { return s == registry.NamespaceFinalizer })
	_, err = c.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
	return err
}
