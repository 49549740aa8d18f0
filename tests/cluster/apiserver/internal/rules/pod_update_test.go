package rules_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"wattpack.io/tests/cluster/apiserver/internal/rules"
)

func gated(names ...string) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, n := range names {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: n})
	}
	return p
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func pinned(p *corev1.Pod, terms ...corev1.NodeSelectorTerm) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
	return p
}

// The whole table runs through the server in test_gated_pods.py; these rows hold what cannot be said there.
func TestPodUpdate(t *testing.T) {
	zone := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{in("zone", "a")}}
	zoneAndName := corev1.NodeSelectorTerm{
		MatchExpressions: zone.MatchExpressions,
		MatchFields:      []corev1.NodeSelectorRequirement{in("metadata.name", "n")},
	}
	negative := func(seconds int64) *corev1.Pod {
		p := gated("g")
		p.Spec.TerminationGracePeriodSeconds = &seconds
		return p
	}
	for _, c := range []struct {
		name     string
		now, was *corev1.Pod
		accepted bool
	}{
		{"nothing changes", gated("g"), gated("g"), true},
		{"narrowed while gated", pinned(gated("g"), zoneAndName), pinned(gated("g"), zone), true},
		{"narrowed after the gate", pinned(gated(), zoneAndName), pinned(gated(), zone), false},
		{"narrowed with the last gate", pinned(gated(), zoneAndName), pinned(gated("g"), zone), true},
		{"widened", pinned(gated("g"), zone), pinned(gated("g"), zoneAndName), false},
		{"a nil affinity and an empty one", pinned(gated("g")), gated("g"), true},
		{"a negative grace period becomes one second", negative(1), negative(-1), true},
		{"a negative grace period becomes two seconds", negative(2), negative(-1), false},
		{"no containers any more", &corev1.Pod{}, gated(), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.now.DeepCopy()
			errs := rules.PodUpdate(c.now, c.was)
			if (len(errs) == 0) != c.accepted {
				t.Errorf("accepted %v, wanted %v: %v", len(errs) == 0, c.accepted, errs)
			}
			if before.String() != c.now.String() {
				t.Error("the rule changed the pod that it judged")
			}
		})
	}
}
