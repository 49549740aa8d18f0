package workloads

import (
	"context"
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// job runs pods until enough have succeeded or too many have failed.
func (r *Runner) job(ctx context.Context, j *batchv1.Job, s scene) error {
	if finished(j) {
		return nil
	}
	pods := s.owned[j.UID]
	running := filter(pods, active)
	succeeded := count(pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	failed := count(pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	next := j.Status.DeepCopy()
	next.Active, next.Succeeded, next.Failed = int32(len(running)), succeeded, failed
	ready := count(pods, ready)
	next.Ready = &ready
	suspended := deref(j.Spec.Suspend, false)
	if next.StartTime == nil && !suspended {
		now := metav1.Now()
		next.StartTime = &now
	}
	done := j.Spec.Completions != nil && succeeded >= *j.Spec.Completions || j.Spec.Completions == nil && succeeded > 0 && len(running) == 0
	switch {
	case done:
		finish(next, batchv1.JobComplete, "CompletionsReached")
	case failed > deref(j.Spec.BackoffLimit, 6):
		finish(next, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	}
	if suspended || len(next.Conditions) > len(j.Status.Conditions) {
		for _, p := range running {
			if err := r.deletePod(ctx, p); err != nil {
				return err
			}
		}
	} else if err := r.startJobPods(ctx, j, pods, running, succeeded); err != nil {
		return err
	}
	if apiequality.Semantic.DeepEqual(*next, j.Status) {
		return nil
	}
	j = j.DeepCopy()
	j.Status = *next
	_, err := r.client.BatchV1().Jobs(j.Namespace).UpdateStatus(ctx, j, metav1.UpdateOptions{})
	return err
}

func finished(j *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func finish(s *batchv1.JobStatus, kind batchv1.JobConditionType, reason string) {
	now := metav1.Now()
	s.Conditions = append(s.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastProbeTime: now, LastTransitionTime: now})
	if kind == batchv1.JobComplete {
		s.CompletionTime = &now
	}
}

func (r *Runner) startJobPods(ctx context.Context, j *batchv1.Job, pods, running []*corev1.Pod, succeeded int32) error {
	room := int(deref(j.Spec.Parallelism, 1)) - len(running)
	if j.Spec.Completions != nil {
		room = min(room, int(*j.Spec.Completions-succeeded)-len(running))
	} else if succeeded > 0 {
		room = 0
	}
	if room <= 0 {
		return nil
	}
	kind := batchv1.SchemeGroupVersion.WithKind("Job")
	if deref(j.Spec.CompletionMode, batchv1.NonIndexedCompletion) != batchv1.IndexedCompletion {
		for _, name := range freeNames(j, pods, room) {
			if err := r.createPod(ctx, fromTemplate(j, kind, &j.Spec.Template, name)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range missingIndexes(j, pods, room) {
		if err := r.createPod(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// missingIndexes makes pods for the lowest indexes that neither run nor have succeeded.
func missingIndexes(j *batchv1.Job, pods []*corev1.Pod, room int) (out []*corev1.Pod) {
	held, attempts := map[string]bool{}, map[string]int{}
	for _, p := range pods {
		index := p.Annotations[batchv1.JobCompletionIndexAnnotation]
		attempts[index]++
		held[index] = held[index] || active(p) || p.Status.Phase == corev1.PodSucceeded
	}
	for i := 0; i < int(deref(j.Spec.Completions, 0)) && len(out) < room; i++ {
		index := strconv.Itoa(i)
		if held[index] {
			continue
		}
		name := fmt.Sprintf("%s-%d-%s", j.Name, i, digest([]any{j.UID, i, attempts[index]})[:5])
		p := fromTemplate(j, batchv1.SchemeGroupVersion.WithKind("Job"), &j.Spec.Template, name)
		label(&p.Annotations, batchv1.JobCompletionIndexAnnotation, index)
		label(&p.Labels, batchv1.JobCompletionIndexAnnotation, index)
		p.Spec.Hostname = fmt.Sprintf("%s-%d", j.Name, i)
		for c := range p.Spec.Containers {
			p.Spec.Containers[c].Env = append(p.Spec.Containers[c].Env, corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", Value: index})
		}
		out = append(out, p)
	}
	return out
}
