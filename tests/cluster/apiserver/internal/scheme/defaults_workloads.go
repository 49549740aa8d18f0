package scheme

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func addWorkloadDefaults(s *runtime.Scheme) {
	register(s, func(o *appsv1.Deployment) {
		defaultPodSpec(&o.Spec.Template.Spec)
		DefaultPointer(&o.Spec.Replicas, 1)
		DefaultPointer(&o.Spec.RevisionHistoryLimit, 10)
		DefaultPointer(&o.Spec.ProgressDeadlineSeconds, 600)
		Default(&o.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
		if o.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			DefaultPointer(&o.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			DefaultPointer(&o.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
			DefaultPointer(&o.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		}
	})
	register(s, func(o *corev1.PodTemplate) { defaultPodSpec(&o.Template.Spec) })
	register(s, func(o *appsv1.ReplicaSet) { defaultPodSpec(&o.Spec.Template.Spec); DefaultPointer(&o.Spec.Replicas, 1) })
	register(s, func(o *appsv1.DaemonSet) {
		defaultPodSpec(&o.Spec.Template.Spec)
		DefaultPointer(&o.Spec.RevisionHistoryLimit, 10)
		Default(&o.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	})
	register(s, func(o *appsv1.StatefulSet) {
		defaultPodSpec(&o.Spec.Template.Spec)
		DefaultPointer(&o.Spec.Replicas, 1)
		DefaultPointer(&o.Spec.RevisionHistoryLimit, 10)
		Default(&o.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
		Default(&o.Spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	})
	register(s, func(o *batchv1.Job) {
		defaultPodSpec(&o.Spec.Template.Spec)
		if o.Spec.Completions == nil && o.Spec.Parallelism == nil {
			DefaultPointer(&o.Spec.Completions, 1)
		}
		DefaultPointer(&o.Spec.Parallelism, 1)
		DefaultPointer(&o.Spec.BackoffLimit, 6)
		DefaultPointer(&o.Spec.CompletionMode, batchv1.NonIndexedCompletion)
		DefaultPointer(&o.Spec.Suspend, false)
		DefaultPointer(&o.Spec.ManualSelector, false)
		DefaultPointer(&o.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	})
}
