package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// crowded says why the pod must not join the pods that are in the node's domains already; empty means that it may.
func crowded(pod *corev1.Pod, n *Node, nodes []*Node) string {
	if repelled(pod, n, nodes) {
		return "node(s) didn't match pod anti-affinity rules"
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && !spread(pod, n, nodes, c) {
			return "node(s) didn't match pod topology spread constraints"
		}
	}
	return ""
}

// repelled holds both ways: the pod may not want the others, or one of them may not want the pod.
func repelled(pod *corev1.Pod, n *Node, nodes []*Node) bool {
	for _, other := range nodes {
		for _, member := range other.members {
			if excludes(pod, member, n, other) || excludes(member, pod, n, other) {
				return true
			}
		}
	}
	return false
}

// excludes says whether owner's required anti-affinity keeps the other pod out of a domain that both nodes share.
func excludes(owner, other *corev1.Pod, a, b *Node) bool {
	if owner.Spec.Affinity == nil || owner.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	terms := owner.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		value, known := a.Labels[t.TopologyKey]
		inNamespace := slices.Contains(t.Namespaces, other.Namespace) || len(t.Namespaces) == 0 && owner.Namespace == other.Namespace
		return known && value == b.Labels[t.TopologyKey] && inNamespace && matches(t.LabelSelector, other)
	})
}

// spread says whether the pod on the node keeps the fullest domain within maxSkew of the emptiest eligible one.
func spread(pod *corev1.Pod, n *Node, nodes []*Node, c corev1.TopologySpreadConstraint) bool {
	here, known := n.Labels[c.TopologyKey]
	if !known {
		return false
	}
	counts := map[string]int32{}
	for _, other := range nodes {
		domain, known := other.Labels[c.TopologyKey]
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(other.Node); !known || err != nil || !ok {
			continue
		}
		counts[domain] += count(other.members, func(p *corev1.Pod) bool {
			return p.Namespace == pod.Namespace && p.DeletionTimestamp == nil && matches(c.LabelSelector, p)
		})
	}
	least := counts[here]
	for _, n := range counts {
		least = min(least, n)
	}
	own := int32(0)
	if matches(c.LabelSelector, pod) {
		own = 1
	}
	return counts[here]+own-least <= c.MaxSkew
}

func matches(s *metav1.LabelSelector, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

func count(pods []*corev1.Pod, f func(*corev1.Pod) bool) (n int32) {
	for _, p := range pods {
		if f(p) {
			n++
		}
	}
	return n
}
