package workloads

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// daemonSet keeps one pod on each node that its template selects and tolerates.
func (r *Runner) daemonSet(ctx context.Context, d *appsv1.DaemonSet, s scene) error {
	revision, byNode := digest(d.Spec.Template), map[string]*corev1.Pod{}
	for _, p := range s.owned[d.UID] {
		byNode[pinnedTo(p)] = p
	}
	next := appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, Conditions: d.Status.Conditions, CollisionCount: d.Status.CollisionCount}
	replaced := count(s.owned[d.UID], func(p *corev1.Pod) bool {
		return p.Labels[appsv1.ControllerRevisionHashLabelKey] == revision && !ready(p)
	}) > 0 // one pod at a time
	for _, n := range s.nodes {
		wanted := daemonPod(d, n, revision)
		p := byNode[n.Name]
		if !selects(wanted, n) {
			continue // the pod stays in byNode and goes below
		}
		delete(byNode, n.Name)
		next.DesiredNumberScheduled++
		switch {
		case p == nil:
			if err := r.createPod(ctx, wanted); err != nil {
				return err
			}
		case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
			if err := r.deletePod(ctx, p); err != nil {
				return err
			}
		default:
			outdated := p.Labels[appsv1.ControllerRevisionHashLabelKey] != revision
			tally(&next, p, outdated)
			if outdated && active(p) && !replaced && d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
				replaced = true
				if err := r.deletePod(ctx, p); err != nil {
					return err
				}
			}
		}
	}
	for _, p := range byNode {
		if active(p) {
			next.NumberMisscheduled++
			if err := r.deletePod(ctx, p); err != nil {
				return err
			}
		}
	}
	return r.daemonSetStatus(ctx, d, next)
}

func tally(s *appsv1.DaemonSetStatus, p *corev1.Pod, outdated bool) {
	if p.Spec.NodeName != "" {
		s.CurrentNumberScheduled++
	}
	if ready(p) {
		s.NumberReady++
		s.NumberAvailable++
	}
	if !outdated {
		s.UpdatedNumberScheduled++
	}
}

func (r *Runner) daemonSetStatus(ctx context.Context, d *appsv1.DaemonSet, next appsv1.DaemonSetStatus) error {
	next.NumberUnavailable = next.DesiredNumberScheduled - next.NumberAvailable
	if apiequality.Semantic.DeepEqual(next, d.Status) {
		return nil
	}
	d = d.DeepCopy()
	d.Status = next
	_, err := r.client.AppsV1().DaemonSets(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
}

// selects says whether the daemon's pod may run on the node.
func selects(p *corev1.Pod, n *corev1.Node) bool {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); err != nil || !ok {
		return false
	}
	hard := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, p.Spec.Tolerations, hard, false)
	return !untolerated
}

const nodeNameField = "metadata.name"

// daemonPod is the template's pod pinned to the node by its name, with the tolerations that every daemon gets.
func daemonPod(d *appsv1.DaemonSet, n *corev1.Node, revision string) *corev1.Pod {
	name := fmt.Sprintf("%s-%s", d.Name, digest([]any{d.UID, n.Name, revision})[:5])
	p := fromTemplate(d, appsv1.SchemeGroupVersion.WithKind("DaemonSet"), &d.Spec.Template, name)
	label(&p.Labels, appsv1.ControllerRevisionHashLabelKey, revision)
	pin := corev1.NodeSelectorRequirement{Key: nodeNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{n.Name}}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	if p.Spec.Affinity.NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for i := range (*required).NodeSelectorTerms {
		t := &(*required).NodeSelectorTerms[i]
		t.MatchFields = append(t.MatchFields, pin)
	}
	for key, effect := range map[string]corev1.TaintEffect{
		corev1.TaintNodeNotReady: corev1.TaintEffectNoExecute, corev1.TaintNodeUnreachable: corev1.TaintEffectNoExecute,
		corev1.TaintNodeDiskPressure: corev1.TaintEffectNoSchedule, corev1.TaintNodeMemoryPressure: corev1.TaintEffectNoSchedule,
		corev1.TaintNodePIDPressure: corev1.TaintEffectNoSchedule, corev1.TaintNodeUnschedulable: corev1.TaintEffectNoSchedule,
	} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
	}
	return p
}

// pinnedTo reads back the node that daemonPod pinned the pod to.
func pinnedTo(p *corev1.Pod) string {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil || p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, t := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			if f.Key == nodeNameField && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}
