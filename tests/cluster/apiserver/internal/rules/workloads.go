package rules

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var spec = field.NewPath("spec")

// Deployment validates a deployment as it is created or updated.
func Deployment(d *appsv1.Deployment) field.ErrorList {
	errs := template(d.Spec.Replicas, d.Spec.Selector, &d.Spec.Template, corev1.RestartPolicyAlways)
	p := spec.Child("strategy")
	errs = append(errs, oneOf(p.Child("type"), d.Spec.Strategy.Type, appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType)...)
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && d.Spec.Strategy.RollingUpdate != nil {
		errs = append(errs, field.Forbidden(p.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'"))
	}
	return append(errs, notNegative(d.Spec.RevisionHistoryLimit, spec.Child("revisionHistoryLimit"))...)
}

// DeploymentUpdate refuses a changed selector.
func DeploymentUpdate(d, old *appsv1.Deployment) field.ErrorList {
	return immutable(d.Spec.Selector, old.Spec.Selector, spec.Child("selector"))
}

// ReplicaSet validates a replica set as it is created or updated.
func ReplicaSet(r *appsv1.ReplicaSet) field.ErrorList {
	return template(r.Spec.Replicas, r.Spec.Selector, &r.Spec.Template, corev1.RestartPolicyAlways)
}

// ReplicaSetUpdate refuses a changed selector.
func ReplicaSetUpdate(r, old *appsv1.ReplicaSet) field.ErrorList {
	return immutable(r.Spec.Selector, old.Spec.Selector, spec.Child("selector"))
}

// StatefulSet validates a stateful set as it is created or updated.
func StatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	pods := s.Spec.Template.DeepCopy() // each claim template becomes a volume of its pod
	for _, claim := range s.Spec.VolumeClaimTemplates {
		pods.Spec.Volumes = append(pods.Spec.Volumes, corev1.Volume{Name: claim.Name})
	}
	errs := template(s.Spec.Replicas, s.Spec.Selector, pods, corev1.RestartPolicyAlways)
	return append(errs, oneOf(spec.Child("podManagementPolicy"), s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)...)
}

// StatefulSetUpdate lets only what Kubernetes lets change.
func StatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	munged := s.Spec.DeepCopy()
	munged.Replicas, munged.Template, munged.UpdateStrategy = old.Spec.Replicas, old.Spec.Template, old.Spec.UpdateStrategy
	munged.MinReadySeconds, munged.Ordinals, munged.RevisionHistoryLimit = old.Spec.MinReadySeconds, old.Spec.Ordinals, old.Spec.RevisionHistoryLimit
	munged.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
	if !apiequality.Semantic.DeepEqual(*munged, old.Spec) {
		return field.ErrorList{field.Forbidden(spec, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "+
			"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
	}
	return nil
}

// DaemonSet validates a daemon set as it is created or updated.
func DaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	errs := template(nil, d.Spec.Selector, &d.Spec.Template, corev1.RestartPolicyAlways)
	return append(errs, oneOf(spec.Child("updateStrategy", "type"), d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType)...)
}

// DaemonSetUpdate refuses a changed selector.
func DaemonSetUpdate(d, old *appsv1.DaemonSet) field.ErrorList {
	return immutable(d.Spec.Selector, old.Spec.Selector, spec.Child("selector"))
}

// Job validates a job as it is created or updated.
func Job(j *batchv1.Job) field.ErrorList {
	errs := PodSpec(&j.Spec.Template.Spec, spec.Child("template", "spec"))
	if p := j.Spec.Template.Spec.RestartPolicy; p == corev1.RestartPolicyAlways {
		errs = append(errs, field.Required(spec.Child("template", "spec", "restartPolicy"), "valid values: \"OnFailure\", \"Never\""))
	}
	errs = append(errs, notNegative(j.Spec.Parallelism, spec.Child("parallelism"))...)
	errs = append(errs, notNegative(j.Spec.Completions, spec.Child("completions"))...)
	if j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion && j.Spec.Completions == nil {
		errs = append(errs, field.Required(spec.Child("completions"), "when completion mode is Indexed"))
	}
	return append(errs, notNegative(j.Spec.BackoffLimit, spec.Child("backoffLimit"))...)
}

// PodTemplate validates a template that stands alone: no pod is made from it here.
func PodTemplate(t *corev1.PodTemplate) field.ErrorList {
	return PodSpec(&t.Template.Spec, field.NewPath("template", "spec"))
}

// JobUpdate keeps selector, template and completion mode; a suspended job that never started may change its placement.
func JobUpdate(j, old *batchv1.Job) field.ErrorList {
	errs := immutable(j.Spec.Selector, old.Spec.Selector, spec.Child("selector"))
	errs = append(errs, immutable(j.Spec.CompletionMode, old.Spec.CompletionMode, spec.Child("completionMode"))...)
	munged := j.Spec.Template.DeepCopy()
	if old.Spec.Suspend != nil && *old.Spec.Suspend && old.Status.StartTime == nil {
		munged.Spec.NodeSelector, munged.Spec.Tolerations = old.Spec.Template.Spec.NodeSelector, old.Spec.Template.Spec.Tolerations
		munged.Spec.SchedulingGates = old.Spec.Template.Spec.SchedulingGates
		munged.Annotations, munged.Labels = old.Spec.Template.Annotations, old.Spec.Template.Labels
		if munged.Spec.Affinity != nil || old.Spec.Template.Spec.Affinity != nil {
			munged.Spec.Affinity = old.Spec.Template.Spec.Affinity
		}
	}
	return append(errs, immutable(*munged, old.Spec.Template, spec.Child("template"))...)
}

// DisruptionBudget validates a PodDisruptionBudget.
func DisruptionBudget(b *policyv1.PodDisruptionBudget) (errs field.ErrorList) {
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(spec, "", "minAvailable and maxUnavailable cannot be both set"))
	}
	for name, v := range map[string]*intstr.IntOrString{"minAvailable": b.Spec.MinAvailable, "maxUnavailable": b.Spec.MaxUnavailable} {
		if v != nil && v.Type == intstr.Int && v.IntVal < 0 {
			errs = append(errs, field.Invalid(spec.Child(name), v.IntVal, "must be greater than or equal to 0"))
		}
	}
	return append(errs, metav1validation.ValidateLabelSelector(b.Spec.Selector, metav1validation.LabelSelectorValidationOptions{}, spec.Child("selector"))...)
}

func template(replicas *int32, sel *metav1.LabelSelector, t *corev1.PodTemplateSpec, restart corev1.RestartPolicy) field.ErrorList {
	errs := notNegative(replicas, spec.Child("replicas"))
	path := spec.Child("template")
	switch {
	case sel == nil:
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	case len(sel.MatchLabels)+len(sel.MatchExpressions) == 0:
		errs = append(errs, field.Invalid(spec.Child("selector"), sel, "empty selector is invalid for workload"))
	default:
		s, err := metav1.LabelSelectorAsSelector(sel)
		if err != nil {
			errs = append(errs, field.Invalid(spec.Child("selector"), sel, err.Error()))
		} else if !s.Matches(labels.Set(t.Labels)) {
			errs = append(errs, field.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
		}
	}
	errs = append(errs, PodSpec(&t.Spec, path.Child("spec"))...)
	return append(errs, oneOf(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, restart)...)
}

func notNegative(v *int32, path *field.Path) field.ErrorList {
	if v != nil && *v < 0 {
		return field.ErrorList{field.Invalid(path, *v, "must be greater than or equal to 0")}
	}
	return nil
}

func immutable(now, was any, path *field.Path) field.ErrorList {
	if apiequality.Semantic.DeepEqual(now, was) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, now, "field is immutable")}
}
