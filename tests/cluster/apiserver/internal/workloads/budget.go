package workloads

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// budget says how many more disruptions a PodDisruptionBudget allows. The expected number of pods is the number that
// exists; Kubernetes asks their controllers.
func (r *Runner) budget(ctx context.Context, b *policyv1.PodDisruptionBudget, s scene) error {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return err
	}
	pods := filter(s.pods, func(p *corev1.Pod) bool {
		return p.Namespace == b.Namespace && active(p) && selector.Matches(labels.Set(p.Labels))
	})
	next := b.Status.DeepCopy()
	expected := len(pods)
	desired, err := desiredHealthy(b, expected)
	if err != nil {
		return err
	}
	disrupted := map[string]metav1.Time{}
	for _, p := range pods {
		if at, ok := b.Status.DisruptedPods[p.Name]; ok {
			disrupted[p.Name] = at // evicted, not yet seen to be going
		}
	}
	healthy := count(pods, func(p *corev1.Pod) bool { _, going := disrupted[p.Name]; return ready(p) && !going })
	next.DisruptedPods = disrupted
	if len(disrupted) == 0 {
		next.DisruptedPods = nil
	}
	next.ObservedGeneration, next.ExpectedPods, next.DesiredHealthy = b.Generation, int32(expected), int32(desired)
	next.CurrentHealthy, next.DisruptionsAllowed = healthy, max(healthy-int32(desired), 0)
	if apiequality.Semantic.DeepEqual(*next, b.Status) {
		return nil
	}
	b = b.DeepCopy()
	b.Status = *next
	_, err = r.client.PolicyV1().PodDisruptionBudgets(b.Namespace).UpdateStatus(ctx, b, metav1.UpdateOptions{})
	return err
}

func desiredHealthy(b *policyv1.PodDisruptionBudget, expected int) (int, error) {
	if b.Spec.MaxUnavailable != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, expected, true)
		return max(expected-n, 0), err
	}
	if b.Spec.MinAvailable != nil {
		return intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, expected, true)
	}
	return max(expected-1, 0), nil
}
