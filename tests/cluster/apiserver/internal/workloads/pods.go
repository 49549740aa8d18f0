package workloads

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
)

// digest names a value in ten letters that are safe in object names.
func digest(v any) string {
	raw, err := json.Marshal(v)
	if err != nil { // only plain API types come here
		panic(err)
	}
	h := fnv.New32a()
	h.Write(raw)
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// fromTemplate makes a pod of the owner's template.
func fromTemplate(owner metav1.Object, kind schema.GroupVersionKind, t *corev1.PodTemplateSpec, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: owner.GetNamespace(), Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations),
			Finalizers: slices.Clone(t.Finalizers), OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

func active(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && active(p)
		}
	}
	return false
}

func count(pods []*corev1.Pod, f func(*corev1.Pod) bool) int32 {
	n := int32(0)
	for _, p := range pods {
		if f(p) {
			n++
		}
	}
	return n
}

func filter(pods []*corev1.Pod, f func(*corev1.Pod) bool) []*corev1.Pod {
	out := []*corev1.Pod{}
	for _, p := range pods {
		if f(p) {
			out = append(out, p)
		}
	}
	return out
}

// expendableFirst orders pods for deletion as replica sets do: without a node, then not ready, then the newest.
func expendableFirst(pods []*corev1.Pod) {
	rank := func(p *corev1.Pod) int {
		switch {
		case p.Spec.NodeName == "":
			return 0
		case !ready(p):
			return 1
		}
		return 2
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
}

// freeNames gives n names of the owner's numbered pods that no existing pod has.
func freeNames(owner metav1.Object, existing []*corev1.Pod, n int) []string {
	taken := map[string]bool{}
	for _, p := range existing {
		taken[p.Name] = true
	}
	out := []string{}
	for i := 0; len(out) < n; i++ {
		name := fmt.Sprintf("%s-%s", owner.GetName(), digest([]any{owner.GetUID(), i})[:5])
		if !taken[name] {
			taken[name] = true
			out = append(out, name)
		}
	}
	return out
}

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func label(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
