package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// bindStrategy lets the binding subresource write spec.nodeName and the PodScheduled condition.
type bindStrategy struct{ strategy }

func (bindStrategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
func (bindStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

// bindingREST serves pods/binding, the only way to a node for a pod that was created without one.
type bindingREST struct{ store *genericregistry.Store }

func newBindingREST(pods *REST) *bindingREST {
	s := *pods.Store
	s.UpdateStrategy = bindStrategy{pods.UpdateStrategy.(strategy)}
	return &bindingREST{&s}
}

func (r *bindingREST) New() runtime.Object     { return &corev1.Binding{} }
func (r *bindingREST) Destroy()                {}
func (r *bindingREST) NamespaceScoped() bool   { return true }
func (r *bindingREST) GetSingularName() string { return "binding" }

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID and resourceVersion of the Binding: they are
// preconditions on the pod.
func (r *bindingREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

func (r *bindingREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions) (runtime.Object, error) {
	b := obj.(*corev1.Binding)
	if b.Name != name {
		return nil, apierrors.NewBadRequest("the name of the Binding must be the pod's name in the URL")
	}
	if b.Target.Name == "" || (b.Target.Kind != "" && b.Target.Kind != "Node") {
		return nil, apierrors.NewBadRequest("the binding's target must be a node")
	}
	if validate != nil {
		if err := validate(ctx, b.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	set := func(_ context.Context, obj, _ runtime.Object) (runtime.Object, error) {
		return assign(obj.(*corev1.Pod), b)
	}
	info := rest.DefaultUpdatedObjectInfo(nil, copyOld, set)
	if _, _, err := r.store.Update(ctx, name, info, nil, nil, false, &metav1.UpdateOptions{DryRun: o.DryRun}); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}, nil
}

// assign sets the pod's node, or says why this pod cannot be bound.
func assign(p *corev1.Pod, b *corev1.Binding) (*corev1.Pod, error) {
	why := ""
	switch {
	case b.UID != "" && b.UID != p.UID:
		why = fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, p.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != p.ResourceVersion:
		why = fmt.Sprintf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", b.ResourceVersion, p.ResourceVersion)
	case p.DeletionTimestamp != nil:
		why = fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		why = fmt.Sprintf("pod %s is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		why = fmt.Sprintf("pod %s has non-empty .spec.schedulingGates", p.Name)
	}
	if why != "" {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, p.Name, errors.New(why))
	}
	p.Spec.NodeName = b.Target.Name
	for k, v := range b.Annotations {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, k, v)
	}
	p.Status.NominatedNodeName = ""
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
	})
	return p, nil
}

func copyOld(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
	return old.DeepCopyObject(), nil
}

// bindingsREST is the legacy POST /bindings.
type bindingsREST struct{ *bindingREST }

func (r bindingsREST) Create(ctx context.Context, obj runtime.Object, v rest.ValidateObjectFunc, o *metav1.CreateOptions) (runtime.Object, error) {
	return r.bindingREST.Create(ctx, obj.(*corev1.Binding).Name, obj, v, o)
}
