package rules

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const onlyAdditions = "only additions are allowed (no mutations or deletions)"

// PodUpdate refuses every change of a pod's spec that Kubernetes refuses. What may change: images, a shorter active
// deadline, added tolerations, removed scheduling gates and, while the old pod is gated, a narrower node selector and
// required node affinity.
func PodUpdate(pod, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	if len(pod.Spec.Containers) != len(old.Spec.Containers) || len(pod.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return field.ErrorList{field.Forbidden(spec.Child("containers"), "pod updates may not add or remove containers")}
	}
	errs := activeDeadlineUpdate(pod.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds, spec.Child("activeDeadlineSeconds"))
	errs = append(errs, onlyAddedTolerations(pod.Spec.Tolerations, old.Spec.Tolerations, spec.Child("tolerations"))...)
	errs = append(errs, onlyDeletedGates(pod.Spec.SchedulingGates, old.Spec.SchedulingGates, spec.Child("schedulingGates"))...)
	munged := mungeMutable(&pod.Spec, &old.Spec)
	if len(old.Spec.SchedulingGates) > 0 {
		errs = append(errs, gatedUpdate(munged, &old.Spec, spec)...)
	}
	if !apiequality.Semantic.DeepEqual(*munged, old.Spec) {
		errs = append(errs, field.Forbidden(spec, "pod updates may not change fields other than `spec.containers[*].image`,"+
			"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
			"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"))
	}
	return errs
}

// mungeMutable copies the new spec with the fields that have a rule of their own set back to the old values.
func mungeMutable(pod, old *corev1.PodSpec) *corev1.PodSpec {
	munged := pod.DeepCopy()
	for i := range munged.Containers {
		munged.Containers[i].Image = old.Containers[i].Image
	}
	for i := range munged.InitContainers {
		munged.InitContainers[i].Image = old.InitContainers[i].Image
	}
	munged.ActiveDeadlineSeconds, munged.Tolerations, munged.SchedulingGates = old.ActiveDeadlineSeconds, old.Tolerations, old.SchedulingGates
	if g, was := munged.TerminationGracePeriodSeconds, old.TerminationGracePeriodSeconds; was != nil && *was < 0 && g != nil && *g == 1 {
		munged.TerminationGracePeriodSeconds = was
	}
	return munged
}

func activeDeadlineUpdate(now, was *int64, path *field.Path) field.ErrorList {
	switch {
	case now == nil && was != nil:
		return field.ErrorList{field.Invalid(path, nil, "must not update from a positive integer to nil value")}
	case now == nil:
		return nil
	case *now < 0 || *now > math.MaxInt32:
		return field.ErrorList{field.Invalid(path, *now, "must be between 0 and 2147483647, inclusive")}
	case was != nil && *now > *was:
		return field.ErrorList{field.Invalid(path, *now, "must be less than or equal to previous value")}
	}
	return nil
}

func onlyAddedTolerations(now, was []corev1.Toleration, path *field.Path) field.ErrorList {
	for _, t := range was {
		kept := slices.ContainsFunc(now, func(n corev1.Toleration) bool {
			n.TolerationSeconds = t.TolerationSeconds
			return apiequality.Semantic.DeepEqual(t, n)
		})
		if !kept {
			return field.ErrorList{field.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

func onlyDeletedGates(now, was []corev1.PodSchedulingGate, path *field.Path) (errs field.ErrorList) {
	for i, g := range now {
		if !slices.Contains(was, g) {
			errs = append(errs, field.Forbidden(path.Index(i), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name)))
		}
	}
	return errs
}

// gatedUpdate judges placement changes of a gated pod and sets the allowed ones back in munged.
func gatedUpdate(munged, old *corev1.PodSpec, spec *field.Path) (errs field.ErrorList) {
	if !apiequality.Semantic.DeepEqual(munged.NodeSelector, old.NodeSelector) {
		for k, v := range old.NodeSelector {
			if now, ok := munged.NodeSelector[k]; !ok || now != v {
				errs = append(errs, field.Invalid(spec.Child("nodeSelector"), munged.NodeSelector, onlyAdditions))
				break
			}
		}
		munged.NodeSelector = old.NodeSelector
	}
	now, was := nodeAffinity(munged), nodeAffinity(old)
	if apiequality.Semantic.DeepEqual(now, was) {
		return errs
	}
	errs = append(errs, nodeAffinityUpdate(now, was, spec.Child("affinity", "nodeAffinity"))...)
	switch {
	case munged.Affinity == nil:
		munged.Affinity = &corev1.Affinity{NodeAffinity: was}
	case old.Affinity == nil && munged.Affinity.PodAffinity == nil && munged.Affinity.PodAntiAffinity == nil:
		munged.Affinity = nil
	default:
		munged.Affinity.NodeAffinity = was
	}
	return errs
}

func nodeAffinity(s *corev1.PodSpec) *corev1.NodeAffinity {
	if s.Affinity == nil {
		return nil
	}
	return s.Affinity.NodeAffinity
}

func requiredTerms(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// nodeAffinityUpdate lets anything be set where no required term was; existing terms only gain requirements.
// Preferred terms are free.
func nodeAffinityUpdate(now, was *corev1.NodeAffinity, path *field.Path) (errs field.ErrorList) {
	terms, old := requiredTerms(now), requiredTerms(was)
	if len(old) == 0 {
		return nil
	}
	path = path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	if len(terms) != len(old) {
		return field.ErrorList{field.Invalid(path, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	for i := range old {
		if !termHasOnlyAdditions(terms[i], old[i]) {
			errs = append(errs, field.Invalid(path.Index(i), terms[i], onlyAdditions))
		}
	}
	return errs
}

func termHasOnlyAdditions(now, was corev1.NodeSelectorTerm) bool {
	// An empty term matches no node, so a requirement added to it would widen the pod's choice.
	if len(was.MatchExpressions)+len(was.MatchFields) == 0 {
		return len(now.MatchExpressions)+len(now.MatchFields) == 0
	}
	return keepsPrefix(now.MatchExpressions, was.MatchExpressions) && keepsPrefix(now.MatchFields, was.MatchFields)
}

func keepsPrefix(now, was []corev1.NodeSelectorRequirement) bool {
	return len(now) >= len(was) && (len(was) == 0 || apiequality.Semantic.DeepEqual(now[:len(was)], was))
}
