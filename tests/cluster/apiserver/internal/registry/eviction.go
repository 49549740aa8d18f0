package registry

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"
)

// evictionREST serves pods/eviction, honouring the status of the matching disruption budget.
type evictionREST struct {
	pods   *genericregistry.Store
	client kubernetes.Interface
}

func (r *evictionREST) New() runtime.Object { return &policyv1.Eviction{} }
func (r *evictionREST) Destroy()            {}
func (r *evictionREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return policyv1.SchemeGroupVersion.WithKind("Eviction")
}

func (r *evictionREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions) (runtime.Object, error) {
	e := obj.(*policyv1.Eviction)
	if e.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if validate != nil {
		if err := validate(ctx, e.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	got, err := r.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod := got.(*corev1.Pod)
	dryRun := len(o.DryRun) > 0
	if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
		if err := r.spend(ctx, pod, dryRun); err != nil {
			return nil, err
		}
	}
	opts := e.DeleteOptions
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	opts.DryRun = o.DryRun
	if _, _, err := r.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, opts); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// spend takes one disruption from the budget that selects the pod, or refuses with 429.
func (r *evictionREST) spend(ctx context.Context, pod *corev1.Pod, dryRun bool) error {
	list, err := r.client.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var matching []*policyv1.PodDisruptionBudget
	for i := range list.Items {
		sel, err := metav1.LabelSelectorAsSelector(list.Items[i].Spec.Selector)
		if err == nil && sel.Matches(labels.Set(pod.Labels)) {
			matching = append(matching, &list.Items[i])
		}
	}
	switch {
	case len(matching) == 0:
		return nil
	case len(matching) > 1:
		return apierrors.NewInternalError(fmt.Errorf("this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"))
	}
	b := matching[0]
	if b.Status.ObservedGeneration < b.Generation {
		return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget: the budget is still being processed.", 10)
	}
	if b.Status.DisruptionsAllowed <= 0 {
		return overBudget(b)
	}
	if dryRun {
		return nil
	}
	b.Status.DisruptionsAllowed--
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[pod.Name] = metav1.NewTime(time.Now())
	_, err = r.client.PolicyV1().PodDisruptionBudgets(pod.Namespace).UpdateStatus(ctx, b, metav1.UpdateOptions{})
	return err
}

func overBudget(b *policyv1.PodDisruptionBudget) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy),
	})
	return err
}
