package columns

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// of adapts a typed cell function.
func of[T runtime.Object](f func(T) []any) func(runtime.Object) []any {
	return func(o runtime.Object) []any { return f(o.(T)) }
}

func columns(names string) []string { return strings.Split(names, ",") }

var layouts = map[string]layout{
	"Pod":       {columns("Name,Ready,Status,Restarts,Age,+IP,+Node,+Nominated Node,+Readiness Gates"), of(pod)},
	"Node":      {columns("Name,Status,Roles,Age,Version,+Internal-IP"), of(node)},
	"Namespace": {columns("Name,Status,Age"), of(func(n *corev1.Namespace) []any { return []any{string(n.Status.Phase)} })},
	"Service": {columns("Name,Type,Cluster-IP,External-IP,Port(s),Age"), of(func(s *corev1.Service) []any {
		return []any{string(s.Spec.Type), orNone(s.Spec.ClusterIP), "<none>", ports(s)}
	})},
	"ConfigMap": {columns("Name,Data,Age"), of(func(c *corev1.ConfigMap) []any { return []any{len(c.Data) + len(c.BinaryData)} })},
	"Secret":    {columns("Name,Type,Data,Age"), of(func(s *corev1.Secret) []any { return []any{string(s.Type), len(s.Data)} })},
	"Deployment": {columns("Name,Ready,Up-to-date,Available,Age"), of(func(d *appsv1.Deployment) []any {
		return []any{fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, value(d.Spec.Replicas)), d.Status.UpdatedReplicas, d.Status.AvailableReplicas}
	})},
	"ReplicaSet": {columns("Name,Desired,Current,Ready,Age"), of(func(r *appsv1.ReplicaSet) []any {
		return []any{value(r.Spec.Replicas), r.Status.Replicas, r.Status.ReadyReplicas}
	})},
	"StatefulSet": {columns("Name,Ready,Age"), of(func(s *appsv1.StatefulSet) []any {
		return []any{fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, value(s.Spec.Replicas))}
	})},
	"DaemonSet": {columns("Name,Desired,Current,Ready,Up-to-date,Available,Node Selector,Age"), of(func(d *appsv1.DaemonSet) []any {
		s := d.Status
		return []any{s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled, s.NumberAvailable, pairs(d.Spec.Template.Spec.NodeSelector)}
	})},
	"Job": {columns("Name,Status,Completions,Duration,Age"), of(job)},
	"Lease": {columns("Name,Holder,Age"), of(func(l *coordinationv1.Lease) []any {
		if l.Spec.HolderIdentity == nil {
			return []any{""}
		}
		return []any{*l.Spec.HolderIdentity}
	})},
	"PriorityClass": {columns("Name,Value,Global-Default,Age,PreemptionPolicy"), of(func(c *schedulingv1.PriorityClass) []any {
		policy := corev1.PreemptLowerPriority
		if c.PreemptionPolicy != nil {
			policy = *c.PreemptionPolicy
		}
		return []any{int64(c.Value), c.GlobalDefault, string(policy)}
	})},
	"PodDisruptionBudget": {columns("Name,Min Available,Max Unavailable,Allowed Disruptions,Age"), of(func(b *policyv1.PodDisruptionBudget) []any {
		return []any{share(b.Spec.MinAvailable), share(b.Spec.MaxUnavailable), int64(b.Status.DisruptionsAllowed)}
	})},
	"Event": {columns("Last Seen,Type,Reason,Object,Message"), of(event)},
}

func pod(p *corev1.Pod) []any {
	ready, restarts := 0, int64(0)
	for _, c := range p.Status.ContainerStatuses {
		restarts += int64(c.RestartCount)
		if c.Ready {
			ready++
		}
	}
	return []any{fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers)), podStatus(p), restarts,
		orNone(p.Status.PodIP), orNone(p.Spec.NodeName), orNone(p.Status.NominatedNodeName), readinessGates(p)}
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	met := 0
	for _, gate := range p.Spec.ReadinessGates {
		for _, c := range p.Status.Conditions {
			if c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue {
				met++
			}
		}
	}
	return fmt.Sprintf("%d/%d", met, len(p.Spec.ReadinessGates))
}

func podStatus(p *corev1.Pod) string {
	switch {
	case p.DeletionTimestamp != nil:
		return "Terminating"
	case p.Status.Reason != "":
		return p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			return corev1.PodReasonSchedulingGated
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "":
			return c.State.Terminated.Reason
		}
	}
	return string(p.Status.Phase)
}

func node(n *corev1.Node) []any {
	status, roles := "Unknown", []string{}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = map[corev1.ConditionStatus]string{corev1.ConditionTrue: "Ready", corev1.ConditionFalse: "NotReady", corev1.ConditionUnknown: "Unknown"}[c.Status]
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	for k := range n.Labels {
		if role, ok := strings.CutPrefix(k, "node-role.kubernetes.io/"); ok {
			roles = append(roles, role)
		}
	}
	ip := ""
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			ip = a.Address
		}
	}
	return []any{status, orNone(strings.Join(sorted(roles), ",")), n.Status.NodeInfo.KubeletVersion, orNone(ip)}
}

func job(j *batchv1.Job) []any {
	status := "Running"
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			status = string(c.Type)
		}
	}
	want := "1"
	if j.Spec.Completions != nil {
		want = fmt.Sprint(*j.Spec.Completions)
	}
	lasted := ""
	switch start, end := j.Status.StartTime, j.Status.CompletionTime; {
	case start == nil:
	case end != nil:
		lasted = duration.HumanDuration(end.Sub(start.Time))
	default:
		lasted = Age(start.Time)
	}
	return []any{status, fmt.Sprintf("%d/%s", j.Status.Succeeded, want), lasted}
}

func event(e *corev1.Event) []any {
	seen := e.LastTimestamp.Time
	if seen.IsZero() {
		seen = e.EventTime.Time
	}
	if seen.IsZero() {
		seen = e.CreationTimestamp.Time
	}
	object := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
	return []any{Age(seen), e.Type, e.Reason, object, strings.TrimSpace(e.Message)}
}

func ports(s *corev1.Service) string {
	out := []string{}
	for _, p := range s.Spec.Ports {
		out = append(out, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}
	return orNone(strings.Join(out, ","))
}

func share(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}
