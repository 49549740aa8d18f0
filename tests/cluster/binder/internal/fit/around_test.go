package fit_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"wattpack.io/tests/cluster/binder/internal/fit"
)

func with(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Namespace = "team"
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}})
	}
}

func TestVolumesKeepAPodNearThem(t *testing.T) {
	claim := func(volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	onB := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "name", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}}
	local := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Spec: corev1.PersistentVolumeSpec{
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{onB}}},
	}}
	around := fit.Around{
		Claims: map[string]*corev1.PersistentVolumeClaim{
			"team/local": claim("local"), "team/anywhere": claim("network"), "team/new": claim(""), "team/gone": claim("gone"),
		},
		Volumes: map[string]*corev1.PersistentVolume{"local": local, "network": {}},
	}
	for _, c := range []struct {
		claim string
		node  string
		why   string
	}{
		{"local", "b", ""},
		{"anywhere", "a", ""},
		{"new", "a", ""},
		{"none", "", `0/2 nodes are available: 2 persistentvolumeclaim "none" not found.`},
		{"gone", "", `0/2 nodes are available: 2 persistentvolume "gone" not found.`},
	} {
		t.Run(c.claim, func(t *testing.T) {
			got, why := fit.Choose(pod("p", "1", with(c.claim)), cluster(node("a", "8"), node("b", "8")), nil, around)
			if got != c.node || why != c.why {
				t.Errorf("got %q (%s), wanted %q (%s)", got, why, c.node, c.why)
			}
		})
	}
}
