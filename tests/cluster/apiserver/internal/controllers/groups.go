package controllers

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/client-go/tools/cache"
)

// PublishGroups adds the groups of established CRDs to the plain (unaggregated) /apis list.
func PublishGroups(f crdinformers.SharedInformerFactory, m discovery.GroupManager, fixed ...string) {
	inf := f.Apiextensions().V1().CustomResourceDefinitions()
	sync := func(obj any) {
		if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = t.Obj
		}
		group, versions := obj.(*apiextensionsv1.CustomResourceDefinition).Spec.Group, []string{}
		if slices.Contains(fixed, group) {
			return
		}
		all, _ := inf.Lister().List(labels.Everything())
		for _, crd := range all {
			for _, v := range crd.Spec.Versions {
				if crd.Spec.Group == group && v.Served && !slices.Contains(versions, v.Name) {
					versions = append(versions, v.Name)
				}
			}
		}
		slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
		m.RemoveGroup(group)
		if len(versions) == 0 {
			return
		}
		g := metav1.APIGroup{Name: group}
		for _, v := range versions {
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: group + "/" + v, Version: v})
		}
		g.PreferredVersion = g.Versions[0]
		m.AddGroup(g)
	}
	_, _ = inf.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: sync, UpdateFunc: func(_, o any) { sync(o) }, DeleteFunc: sync})
}
