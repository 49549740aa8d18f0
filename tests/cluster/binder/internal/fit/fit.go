// Package fit decides where a pod fits, as pure functions. It stands in for kube-scheduler in tests and is simple on
// purpose: required rules only filter, preferred node affinity orders, then the first node by name wins. Pod (anti-)
// affinity and topology spread count where they are required, volumes by their node affinity, and ports of the host.
// No preemption.
package fit

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Node is a node with what its pods request.
type Node struct {
	*corev1.Node
	requested map[corev1.ResourceName]int64 // milli-units
	members   []*corev1.Pod
}

// NewNode has no pods yet.
func NewNode(n *corev1.Node) *Node {
	return &Node{Node: n, requested: map[corev1.ResourceName]int64{}}
}

// Add counts a pod on the node.
func (n *Node) Add(pod *corev1.Pod) {
	n.members = append(n.members, pod)
	for name, milli := range requests(pod) {
		n.requested[name] += milli
	}
}

func requests(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	out := map[corev1.ResourceName]int64{}
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		out[name] = q.MilliValue()
	}
	return out
}

// Why says why the pod does not fit on the node, in kube-scheduler's words; empty means that it fits. The pods of
// reserved count as if they were on the node.
func Why(pod *corev1.Pod, n *Node, reserved []*corev1.Pod) string {
	if !ready(n.Node) {
		return "node(s) were not ready"
	}
	if n.Spec.Unschedulable {
		return "node(s) were unschedulable"
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.Node); err != nil || !ok {
		return "node(s) didn't match Pod's node affinity/selector"
	}
	if taint, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, blocking, false); found {
		return fmt.Sprintf("node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value)
	}
	if portTaken(pod, n.members) || portTaken(pod, reserved) {
		return "node(s) didn't have free ports for the requested pod ports"
	}
	return short(pod, n, reserved)
}

func blocking(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }

func short(pod *corev1.Pod, n *Node, reserved []*corev1.Pod) string {
	used, pods := map[corev1.ResourceName]int64{}, int64(len(n.members))
	for name, milli := range n.requested {
		used[name] = milli
	}
	for _, other := range reserved {
		pods++
		for name, milli := range requests(other) {
			used[name] += milli
		}
	}
	if room := n.Status.Allocatable[corev1.ResourcePods]; !room.IsZero() && pods+1 > room.Value() {
		return "Too many pods"
	}
	wanted := requests(pod)
	names := make([]corev1.ResourceName, 0, len(wanted))
	for name := range wanted {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		room := n.Status.Allocatable[name]
		if wanted[name] > 0 && used[name]+wanted[name] > room.MilliValue() {
			return "Insufficient " + string(name)
		}
	}
	return ""
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Choose names the node for the pod: its nominated node if it fits there, else the best preferred, else the first by
// name. Without one it says why, as kube-scheduler does. nominated holds the other pending pods by nominated node.
func Choose(pod *corev1.Pod, nodes []*Node, nominated map[string][]*corev1.Pod, around Around) (node, why string) {
	counts, best, bestScore := map[string]int{}, "", int64(-1)
	ordered := slices.SortedFunc(slices.Values(nodes), func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	terms, err := preferred(pod)
	if err != nil {
		return "", err.Error()
	}
	for _, n := range ordered {
		reason := Why(pod, n, rivals(pod, nominated[n.Name]))
		if reason == "" {
			reason = around.unmountable(pod, n)
		}
		if reason == "" {
			reason = crowded(pod, n, nodes, around)
		}
		if reason != "" {
			counts[reason]++
			continue
		}
		if n.Name == pod.Status.NominatedNodeName {
			return n.Name, ""
		}
		if score := terms.Score(n.Node); score > bestScore {
			best, bestScore = n.Name, score
		}
	}
	if best == "" {
		return "", summary(len(nodes), counts)
	}
	return best, ""
}

func preferred(pod *corev1.Pod) (*nodeaffinity.PreferredSchedulingTerms, error) {
	var terms []corev1.PreferredSchedulingTerm
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		terms = a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return nodeaffinity.NewPreferredSchedulingTerms(terms)
}

// rivals are the pods nominated to a node that this pod must leave room for.
func rivals(pod *corev1.Pod, nominated []*corev1.Pod) (out []*corev1.Pod) {
	for _, other := range nominated {
		if other.UID != pod.UID && Priority(other) >= Priority(pod) {
			out = append(out, other)
		}
	}
	return out
}

func summary(nodes int, counts map[string]int) string {
	reasons := []string{}
	for reason, n := range counts {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(reasons)
	message := fmt.Sprintf("0/%d nodes are available", nodes)
	if len(reasons) > 0 {
		message += ": " + strings.Join(reasons, ", ")
	}
	return message + "."
}

// Priority is the pod's resolved priority.
func Priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// Before orders the queue: higher priority, then older, then by name.
func Before(a, b *corev1.Pod) int {
	if pa, pb := Priority(a), Priority(b); pa != pb {
		return int(min(max(int64(pb)-int64(pa), -1), 1))
	}
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
}
