package registry

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// scaleREST serves <resource>/scale of deployments, replica sets and stateful sets.
type scaleREST struct {
	store *genericregistry.Store
}

func (r *scaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }
func (r *scaleREST) Destroy()            {}
func (r *scaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

func (r *scaleREST) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, o)
	if err != nil {
		return nil, err
	}
	return scaleOf(obj)
}

func (r *scaleREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, uv rest.ValidateObjectUpdateFunc, _ bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	change := func(ctx context.Context, obj, _ runtime.Object) (runtime.Object, error) {
		old, err := scaleOf(obj)
		if err != nil {
			return nil, err
		}
		now, err := info.UpdatedObject(ctx, old)
		if err != nil {
			return nil, err
		}
		scale := now.(*autoscalingv1.Scale)
		if uv != nil {
			if err := uv(ctx, scale, old); err != nil {
				return nil, err
			}
		}
		if scale.Spec.Replicas < 0 {
			return nil, apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0"),
			})
		}
		accessor(obj).SetResourceVersion(scale.ResourceVersion)
		replicas, _, _ := parts(obj)
		**replicas = scale.Spec.Replicas
		return obj, nil
	}
	obj, _, err := r.store.Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, copyOld, change), nil, nil, false, o)
	if err != nil {
		return nil, false, err
	}
	scale, err := scaleOf(obj)
	return scale, false, err
}

func parts(obj runtime.Object) (spec **int32, current int32, sel *metav1.LabelSelector) {
	switch w := obj.(type) {
	case *appsv1.Deployment:
		return &w.Spec.Replicas, w.Status.Replicas, w.Spec.Selector
	case *appsv1.ReplicaSet:
		return &w.Spec.Replicas, w.Status.Replicas, w.Spec.Selector
	case *appsv1.StatefulSet:
		return &w.Spec.Replicas, w.Status.Replicas, w.Spec.Selector
	}
	return nil, 0, nil
}

func scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	replicas, current, labels := parts(obj)
	if replicas == nil || *replicas == nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("%T has no replicas", obj))
	}
	sel, err := metav1.LabelSelectorAsSelector(labels)
	if err != nil {
		return nil, err
	}
	acc := accessor(obj)
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: acc.GetName(), Namespace: acc.GetNamespace(), UID: acc.GetUID(),
			ResourceVersion: acc.GetResourceVersion(), CreationTimestamp: acc.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: **replicas},
		Status: autoscalingv1.ScaleStatus{Replicas: current, Selector: sel.String()},
	}, nil
}
