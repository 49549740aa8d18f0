package workloads

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statefulSet takes one step: it makes the next missing pod, removes a surplus, failed or outdated one, or waits.
func (r *Runner) statefulSet(ctx context.Context, ss *appsv1.StatefulSet, s scene) error {
	want, byName := int(deref(ss.Spec.Replicas, 1)), map[string]*corev1.Pod{}
	revision := digest(ss.Spec.Template)
	for _, p := range s.owned[ss.UID] {
		byName[p.Name] = p
	}
	if err := r.statefulSetStatus(ctx, ss, s.owned[ss.UID], revision); err != nil {
		return err
	}
	ordered := ss.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	for i := range want {
		p := byName[ordinalName(ss, i)]
		delete(byName, ordinalName(ss, i))
		switch {
		case p == nil:
			if err := r.createOrdinal(ctx, ss, i, revision); err != nil {
				return err
			}
		case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
			if err := r.deletePod(ctx, p); err != nil {
				return err
			}
		}
		if ordered && (p == nil || !ready(p)) {
			return r.replaceStuck(ctx, ss, p, revision)
		}
	}
	for i := highest(ss, byName); i >= want; i-- {
		if p := byName[ordinalName(ss, i)]; p != nil {
			return r.deletePod(ctx, p) // the next pass goes on when it has gone
		}
	}
	return r.replaceOutdated(ctx, ss, s.owned[ss.UID], revision)
}

func ordinalName(ss *appsv1.StatefulSet, i int) string {
	start := 0
	if ss.Spec.Ordinals != nil {
		start = int(ss.Spec.Ordinals.Start)
	}
	return fmt.Sprintf("%s-%d", ss.Name, start+i)
}

func highest(ss *appsv1.StatefulSet, pods map[string]*corev1.Pod) int {
	i := int(deref(ss.Spec.Replicas, 1)) + len(pods)
	return i
}

func (r *Runner) createOrdinal(ctx context.Context, ss *appsv1.StatefulSet, i int, revision string) error {
	name := ordinalName(ss, i)
	p := fromTemplate(ss, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), &ss.Spec.Template, name)
	label(&p.Labels, appsv1.StatefulSetPodNameLabel, name)
	label(&p.Labels, appsv1.PodIndexLabel, fmt.Sprint(i))
	label(&p.Labels, appsv1.StatefulSetRevisionLabel, revision)
	p.Spec.Hostname, p.Spec.Subdomain = name, ss.Spec.ServiceName
	for _, t := range ss.Spec.VolumeClaimTemplates {
		claim := t.DeepCopy()
		claim.Name, claim.Namespace = t.Name+"-"+name, ss.Namespace
		if _, err := r.client.CoreV1().PersistentVolumeClaims(ss.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}})
	}
	return r.createPod(ctx, p)
}

// replaceStuck removes an outdated pod that never became ready, so that a repaired template can take effect.
func (r *Runner) replaceStuck(ctx context.Context, ss *appsv1.StatefulSet, p *corev1.Pod, revision string) error {
	rolling := ss.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType
	if p != nil && rolling && active(p) && p.Labels[appsv1.StatefulSetRevisionLabel] != revision {
		return r.deletePod(ctx, p)
	}
	return nil
}

// replaceOutdated removes the outdated pod with the highest ordinal when all pods are ready.
func (r *Runner) replaceOutdated(ctx context.Context, ss *appsv1.StatefulSet, pods []*corev1.Pod, revision string) error {
	if ss.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType || int(count(pods, ready)) < len(pods) {
		return nil
	}
	byName := map[string]*corev1.Pod{}
	for _, p := range pods {
		byName[p.Name] = p
	}
	for i := int(deref(ss.Spec.Replicas, 1)) - 1; i >= 0; i-- {
		if p := byName[ordinalName(ss, i)]; p != nil && p.Labels[appsv1.StatefulSetRevisionLabel] != revision {
			return r.deletePod(ctx, p)
		}
	}
	return nil
}

func (r *Runner) statefulSetStatus(ctx context.Context, ss *appsv1.StatefulSet, pods []*corev1.Pod, revision string) error {
	updated := count(pods, func(p *corev1.Pod) bool { return active(p) && p.Labels[appsv1.StatefulSetRevisionLabel] == revision })
	next := ss.Status.DeepCopy()
	next.ObservedGeneration, next.Replicas, next.UpdatedReplicas = ss.Generation, count(pods, active), updated
	next.ReadyReplicas = count(pods, ready)
	next.AvailableReplicas, next.UpdateRevision = next.ReadyReplicas, ss.Name+"-"+revision
	if updated == deref(ss.Spec.Replicas, 1) || next.CurrentRevision == "" {
		next.CurrentRevision, next.CurrentReplicas = next.UpdateRevision, updated
	}
	if apiequality.Semantic.DeepEqual(*next, ss.Status) {
		return nil
	}
	ss = ss.DeepCopy()
	ss.Status = *next
	_, err := r.client.AppsV1().StatefulSets(ss.Namespace).UpdateStatus(ctx, ss, metav1.UpdateOptions{})
	return err
}
