package workloads

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// job runs pods until enough have succeeded or too many have failed. As in Kubernetes a pod keeps a finalizer until its
// end is counted, so one that was deleted or evicted counts as failed.
func (r *Runner) job(ctx context.Context, j *batchv1.Job, s scene) error {
	pods := s.owned[j.UID]
	if finished(j) {
		return r.release(ctx, filter(pods, func(p *corev1.Pod) bool { return !active(p) }))
	}
	running := filter(pods, active)
	next := j.Status.DeepCopy()
	countEnded(next, pods)
	waiting := deref(next.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	succeeded, failed := next.Succeeded+int32(len(waiting.Succeeded)), next.Failed+int32(len(waiting.Failed))
	next.Active = int32(len(running))
	ready := count(pods, ready)
	next.Ready = &ready
	suspended := deref(j.Spec.Suspend, false)
	if next.StartTime == nil && !suspended {
		now := metav1.Now()
		next.StartTime = &now
	}
	tooMany := failed > deref(j.Spec.BackoffLimit, 6)
	done := j.Spec.Completions != nil && succeeded >= *j.Spec.Completions || j.Spec.Completions == nil && succeeded > 0 && len(running) == 0
	if len(waiting.Succeeded)+len(waiting.Failed) == 0 {
		switch {
		case done:
			finish(next, batchv1.JobComplete, "CompletionsReached")
		case tooMany:
			finish(next, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
		}
	}
	if suspended || done || tooMany {
		if err := r.end(ctx, running); err != nil {
			return err
		}
	} else if err := r.startJobPods(ctx, j, pods, running, succeeded); err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(*next, j.Status) {
		j = j.DeepCopy()
		j.Status = *next
		if _, err := r.client.BatchV1().Jobs(j.Namespace).UpdateStatus(ctx, j, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return r.release(ctx, filter(pods, func(p *corev1.Pod) bool { return uncounted(waiting, p.UID) }))
}

// countEnded notes pods that have ended since, and counts those that were noted and have let go of their finalizer.
func countEnded(s *batchv1.JobStatus, pods []*corev1.Pod) {
	held := map[types.UID]bool{}
	for _, p := range pods {
		held[p.UID] = tracked(p)
	}
	noted := deref(s.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	settle := func(uids []types.UID, total *int32) (left []types.UID) {
		for _, uid := range uids {
			if held[uid] {
				left = append(left, uid)
			} else {
				*total++
			}
		}
		return left
	}
	next := batchv1.UncountedTerminatedPods{Succeeded: settle(noted.Succeeded, &s.Succeeded), Failed: settle(noted.Failed, &s.Failed)}
	for _, p := range pods {
		if active(p) || !tracked(p) || uncounted(noted, p.UID) {
			continue
		}
		if p.Status.Phase == corev1.PodSucceeded {
			next.Succeeded = append(next.Succeeded, p.UID)
		} else {
			next.Failed = append(next.Failed, p.UID)
		}
	}
	s.UncountedTerminatedPods = &next
}

func uncounted(noted batchv1.UncountedTerminatedPods, uid types.UID) bool {
	return slices.Contains(noted.Succeeded, uid) || slices.Contains(noted.Failed, uid)
}

func tracked(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }

// release lets go of pods whose end is noted, or whose Job is gone.
func (r *Runner) release(ctx context.Context, pods []*corev1.Pod) error {
	for _, p := range pods {
		if !tracked(p) {
			continue
		}
		p = p.DeepCopy()
		p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
		if _, err := r.client.CoreV1().Pods(p.Namespace).Update(ctx, p, metav1.UpdateOptions{}); err != nil && !raced(err) {
			return err
		}
	}
	return nil
}

// end deletes pods that the Job itself no longer wants: they count for nothing.
func (r *Runner) end(ctx context.Context, pods []*corev1.Pod) error {
	if err := r.release(ctx, pods); err != nil {
		return err
	}
	for _, p := range pods {
		if err := r.deletePod(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// orphans lets go of pods whose Job is gone or going.
func (r *Runner) orphans(ctx context.Context, jobs []*batchv1.Job, s scene) error {
	living := map[types.UID]bool{}
	for _, j := range jobs {
		living[j.UID] = j.DeletionTimestamp == nil
	}
	return r.release(ctx, filter(s.pods, func(p *corev1.Pod) bool {
		owner := metav1.GetControllerOf(p)
		return owner == nil || !living[owner.UID]
	}))
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
			p := fromTemplate(j, kind, &j.Spec.Template, name)
			p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
			if err := r.createPod(ctx, p); err != nil {
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
		p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
		p.Spec.Hostname = fmt.Sprintf("%s-%d", j.Name, i)
		for c := range p.Spec.Containers {
			p.Spec.Containers[c].Env = append(p.Spec.Containers[c].Env, corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", Value: index})
		}
		out = append(out, p)
	}
	return out
}
