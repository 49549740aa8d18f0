// Package registry stores the built-in resources and serves their subresources.
package registry

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"wattpack.io/tests/cluster/apiserver/internal/scheme"
)

// Resource declares one stored built-in resource; everything not said here follows from its Go type.
type Resource struct {
	gv               schema.GroupVersion
	plural, singular string
	short            []string
	obj, list        runtime.Object
	cluster, status  bool
	upsert           bool // PUT may create
	keepStatus       bool // POST may set status
	scale            bool // has a /scale subresource
	name             validation.ValidateNameFunc
	create           func(obj runtime.Object)
	update           func(obj, old runtime.Object)
	validate         func(obj runtime.Object) field.ErrorList
	validateUpdate   func(obj, old runtime.Object) field.ErrorList
	grace            func(obj runtime.Object, o *metav1.DeleteOptions) bool
}

// REST is the stored resource as the generic installer wants it.
type REST struct {
	*genericregistry.Store
	r *Resource
}

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.r.short }

// Categories implements rest.CategoriesProvider.
func (r *REST) Categories() []string {
	switch r.r.plural {
	case "pods", "services", "deployments", "replicasets", "daemonsets", "statefulsets", "jobs":
		return []string{"all"}
	}
	return nil
}

// statusREST serves <resource>/status on the same store.
type statusREST struct {
	rest.TableConvertor
	store *genericregistry.Store
}

func (r *statusREST) New() runtime.Object { return r.store.New() }
func (r *statusREST) Destroy()            {}
func (r *statusREST) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, o)
}

func (r *statusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, cv rest.ValidateObjectFunc, uv rest.ValidateObjectUpdateFunc, _ bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, cv, uv, false, o)
}

func (r *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

func newStore(r *Resource, opts generic.RESTOptionsGetter) (*REST, *statusREST, error) {
	gr := r.gv.WithResource(r.plural).GroupResource()
	attrs := attributesOf(reflect.TypeOf(r.obj).Elem().Name())
	st := strategy{scheme.Scheme, names.SimpleNameGenerator, r}
	var del rest.RESTDeleteStrategy = st
	if r.grace != nil {
		del = gracefulStrategy{st}
	}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return zero(r.obj) },
		NewListFunc:               func() runtime.Object { return zero(r.list) },
		DefaultQualifiedResource:  gr,
		SingularQualifiedResource: schema.GroupResource{Group: gr.Group, Resource: r.singular},
		PredicateFunc: func(l labels.Selector, f fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: l, Field: f, GetAttrs: attrs}
		},
		CreateStrategy:      st,
		UpdateStrategy:      st,
		DeleteStrategy:      del,
		ResetFieldsStrategy: st,
		TableConvertor:      tableFor(r, gr),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: opts, AttrFunc: attrs}); err != nil {
		return nil, nil, err
	}
	if !r.status {
		return &REST{store, r}, nil, nil
	}
	sub := *store
	sub.UpdateStrategy, sub.ResetFieldsStrategy = statusStrategy{st}, statusStrategy{st}
	return &REST{store, r}, &statusREST{store.TableConvertor, &sub}, nil
}

func attributesOf(kind string) storage.AttrFunc {
	extra := scheme.Selectable[kind]
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		acc := accessor(obj)
		fs := fields.Set{"metadata.name": acc.GetName(), "metadata.namespace": acc.GetNamespace()}
		if extra != nil {
			extra.Get(obj, fs)
		}
		return acc.GetLabels(), fs, nil
	}
}
