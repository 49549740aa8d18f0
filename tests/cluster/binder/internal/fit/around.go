package fit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Around is what counts beside pods and nodes: volumes by name, claims by namespace/name, labels of namespaces.
type Around struct {
	Claims     map[string]*corev1.PersistentVolumeClaim
	Volumes    map[string]*corev1.PersistentVolume
	Namespaces map[string]labels.Set
}

// selects says whether a term of owner means the other pod.
func (a Around) selects(t corev1.PodAffinityTerm, owner, other *corev1.Pod) bool {
	return a.inNamespaces(t, owner.Namespace, other.Namespace) && matches(t.LabelSelector, other)
}

func (a Around) inNamespaces(t corev1.PodAffinityTerm, own, other string) bool {
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		return own == other
	}
	if slices.Contains(t.Namespaces, other) {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	return err == nil && selector.Matches(a.Namespaces[other])
}

// unmountable says why the pod's volumes keep it off the node. A claim without a volume waits for its first consumer.
func (a Around) unmountable(pod *corev1.Pod, n *Node) string {
	for _, v := range pod.Spec.Volumes {
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = pod.Name + "-" + v.Name
		default:
			continue
		}
		claim := a.Claims[pod.Namespace+"/"+name]
		if claim == nil {
			return fmt.Sprintf("persistentvolumeclaim %q not found", name)
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		volume := a.Volumes[claim.Spec.VolumeName]
		if volume == nil {
			return fmt.Sprintf("persistentvolume %q not found", claim.Spec.VolumeName)
		}
		if affinity := volume.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
			if ok, err := corev1helpers.MatchNodeSelectorTerms(n.Node, affinity.Required); err != nil || !ok {
				return "node(s) didn't match PersistentVolume's node affinity"
			}
		}
	}
	return ""
}
