package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// crowded says why the pod must not join the pods that are in the node's domains already; empty means that it may.
func crowded(pod *corev1.Pod, n *Node, nodes []*Node, around Around) string {
	if lonely(pod, n, nodes, around) {
		return "node(s) didn't match pod affinity rules"
	}
	if repelled(pod, n, nodes, around) {
		return "node(s) didn't match pod anti-affinity rules"
	}
	for _, c := range hardSpread(pod) {
		if !spread(pod, n, nodes, c) {
			return "node(s) didn't match pod topology spread constraints"
		}
	}
	return ""
}

// lonely says whether a pod that wants company has none in a domain of the node. A pod counts as company if every term
// matches it; the first of a group that wants its own company may go to any node that has the domains' labels.
func lonely(pod *corev1.Pod, n *Node, nodes []*Node, around Around) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return false
	}
	terms := pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	company := func(other *corev1.Pod) bool {
		return !slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return !around.selects(t, pod, other) })
	}
	near, anywhere := map[string]bool{}, false
	for _, other := range nodes {
		for _, t := range terms {
			value, known := other.Labels[t.TopologyKey]
			if !known || !slices.ContainsFunc(other.members, company) {
				continue
			}
			anywhere = true
			if here, known := n.Labels[t.TopologyKey]; known && here == value {
				near[t.TopologyKey] = true
			}
		}
	}
	first := !anywhere && company(pod)
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		_, known := n.Labels[t.TopologyKey]
		return !known || !first && !near[t.TopologyKey]
	})
}

// repelled holds both ways: the pod may not want the others, or one of them may not want the pod.
func repelled(pod *corev1.Pod, n *Node, nodes []*Node, around Around) bool {
	for _, other := range nodes {
		for _, member := range other.members {
			if excludes(pod, member, n, other, around) || excludes(member, pod, n, other, around) {
				return true
			}
		}
	}
	return false
}

// excludes says whether owner's required anti-affinity keeps the other pod out of a domain that both nodes share.
func excludes(owner, other *corev1.Pod, a, b *Node, around Around) bool {
	if owner.Spec.Affinity == nil || owner.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	terms := owner.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		value, known := a.Labels[t.TopologyKey]
		there, alsoKnown := b.Labels[t.TopologyKey]
		return known && alsoKnown && value == there && around.selects(t, owner, other)
	})
}

func hardSpread(pod *corev1.Pod) (hard []corev1.TopologySpreadConstraint) {
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			hard = append(hard, c)
		}
	}
	return hard
}

// spread says whether the pod on the node keeps the fullest domain within maxSkew of the emptiest eligible one.
func spread(pod *corev1.Pod, n *Node, nodes []*Node, c corev1.TopologySpreadConstraint) bool {
	here, known := n.Labels[c.TopologyKey]
	if !known {
		return false
	}
	selector := c.LabelSelector.DeepCopy()
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok && selector != nil {
			selector = metav1.AddLabelToSelector(selector, key, value)
		}
	}
	counts := map[string]int32{}
	for _, other := range nodes {
		if !counted(pod, other, c) {
			continue
		}
		counts[other.Labels[c.TopologyKey]] += count(other.members, func(p *corev1.Pod) bool {
			return p.Namespace == pod.Namespace && p.DeletionTimestamp == nil && matches(selector, p)
		})
	}
	own := int32(0)
	if matches(selector, pod) {
		own = 1
	}
	return counts[here]+own-least(counts, c.MinDomains) <= c.MaxSkew
}

// counted says whether the node's domains take part in the constraint.
func counted(pod *corev1.Pod, n *Node, c corev1.TopologySpreadConstraint) bool {
	for _, each := range hardSpread(pod) {
		if _, known := n.Labels[each.TopologyKey]; !known {
			return false
		}
	}
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.Node); err != nil || !ok {
			return false
		}
	}
	if c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore {
		return true
	}
	_, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, blocking, false)
	return !found
}

// least is what the emptiest domain holds; with fewer domains than wanted an empty one counts as well.
func least(counts map[string]int32, wanted *int32) int32 {
	if len(counts) == 0 || wanted != nil && len(counts) < int(*wanted) {
		return 0
	}
	least := int32(-1)
	for _, n := range counts {
		if least < 0 || n < least {
			least = n
		}
	}
	return least
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
