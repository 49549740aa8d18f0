package workloads

import (
	"context"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deployment keeps a replica set of the current template and retires the older ones. The new set gets all of its
// replicas at once; old ones go as new ones become ready (Recreate: before).
func (r *Runner) deployment(ctx context.Context, d *appsv1.Deployment, s scene) error {
	sets := s.replicas[d.UID]
	name := d.Name + "-" + digest(d.Spec.Template)
	var current *appsv1.ReplicaSet
	old := []*appsv1.ReplicaSet{}
	for _, rs := range sets {
		if rs.Name == name {
			current = rs
		} else {
			old = append(old, rs)
		}
	}
	want := deref(d.Spec.Replicas, 1)
	recreate := d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
	if err := r.retire(ctx, old, current, want, recreate); err != nil {
		return err
	}
	if current == nil {
		for _, rs := range old {
			if recreate && rs.Status.Replicas > 0 {
				return r.deploymentStatus(ctx, d, sets, nil)
			}
		}
		_, err := r.client.AppsV1().ReplicaSets(d.Namespace).Create(ctx, newReplicaSet(d, name), metav1.CreateOptions{})
		return err
	}
	if !d.Spec.Paused && deref(current.Spec.Replicas, 1) != want {
		if err := r.resize(ctx, current, want); err != nil {
			return err
		}
	}
	return r.deploymentStatus(ctx, d, sets, current)
}

func newReplicaSet(d *appsv1.Deployment, name string) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: d.Namespace, Labels: maps.Clone(d.Spec.Template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector.DeepCopy(), Template: *d.Spec.Template.DeepCopy()},
	}
	hash := digest(d.Spec.Template)
	label(&rs.Labels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	label(&rs.Spec.Selector.MatchLabels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	label(&rs.Spec.Template.Labels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	return rs
}

func (r *Runner) retire(ctx context.Context, old []*appsv1.ReplicaSet, current *appsv1.ReplicaSet, want int32, recreate bool) error {
	keep := want
	if current != nil {
		keep -= current.Status.ReadyReplicas
	}
	if recreate {
		keep = 0
	}
	for _, rs := range old {
		now := deref(rs.Spec.Replicas, 1)
		next := min(now, max(keep, 0))
		keep -= next
		if next != now {
			if err := r.resize(ctx, rs, next); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Runner) resize(ctx context.Context, rs *appsv1.ReplicaSet, replicas int32) error {
	rs = rs.DeepCopy()
	rs.Spec.Replicas = &replicas
	_, err := r.client.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs, metav1.UpdateOptions{})
	return err
}

func (r *Runner) deploymentStatus(ctx context.Context, d *appsv1.Deployment, sets []*appsv1.ReplicaSet, current *appsv1.ReplicaSet) error {
	next := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Conditions: d.Status.Conditions}
	for _, rs := range sets {
		next.Replicas += rs.Status.Replicas
		next.ReadyReplicas += rs.Status.ReadyReplicas
		next.AvailableReplicas += rs.Status.AvailableReplicas
	}
	if current != nil {
		next.UpdatedReplicas = current.Status.Replicas
	}
	want := deref(d.Spec.Replicas, 1)
	next.UnavailableReplicas = max(want-next.AvailableReplicas, 0)
	status, reason := corev1.ConditionFalse, "MinimumReplicasUnavailable"
	if next.AvailableReplicas >= want {
		status, reason = corev1.ConditionTrue, "MinimumReplicasAvailable"
	}
	if len(next.Conditions) == 0 || next.Conditions[0].Status != status {
		next.Conditions = []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentAvailable, Status: status, Reason: reason,
			LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}
	}
	if apiequality.Semantic.DeepEqual(next, d.Status) {
		return nil
	}
	d = d.DeepCopy()
	d.Status = next
	_, err := r.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
}

// replicaSet keeps the number of active pods.
func (r *Runner) replicaSet(ctx context.Context, rs *appsv1.ReplicaSet, s scene) error {
	pods := s.owned[rs.UID]
	now := filter(pods, active)
	missing := int(deref(rs.Spec.Replicas, 1)) - len(now)
	for _, name := range freeNames(rs, pods, max(missing, 0)) {
		if err := r.createPod(ctx, fromTemplate(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), &rs.Spec.Template, name)); err != nil {
			return err
		}
	}
	if missing < 0 {
		expendableFirst(now)
		for _, p := range now[:-missing] {
			if err := r.deletePod(ctx, p); err != nil {
				return err
			}
		}
	}
	ready := count(pods, ready)
	next := appsv1.ReplicaSetStatus{
		ObservedGeneration: rs.Generation, Replicas: count(pods, active), FullyLabeledReplicas: count(pods, active),
		ReadyReplicas: ready, AvailableReplicas: ready, Conditions: rs.Status.Conditions,
	}
	if apiequality.Semantic.DeepEqual(next, rs.Status) {
		return nil
	}
	rs = rs.DeepCopy()
	rs.Status = next
	_, err := r.client.AppsV1().ReplicaSets(rs.Namespace).UpdateStatus(ctx, rs, metav1.UpdateOptions{})
	return err
}
