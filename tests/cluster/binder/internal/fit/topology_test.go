package fit_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"wattpack.io/tests/cluster/binder/internal/fit"
)

var replicas = metav1.LabelSelector{MatchLabels: map[string]string{"app": "controller"}}

func labelled(p *corev1.Pod) { p.Labels = map[string]string{"app": "controller"} }

func apart(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "name", LabelSelector: &replicas}},
	}}
}

func evenly(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &replicas,
		}}
	}
}

func near(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "name", LabelSelector: &replicas}},
	}}
}

func apartFromTeams(p *corev1.Pod) {
	apart(p)
	terms := p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	terms[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
}

func over(domains int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints[0].MinDomains = &domains }
}

func holding(name string, pods ...*corev1.Pod) *fit.Node {
	n := fit.NewNode(node(name, "8"))
	for _, p := range pods {
		n.Add(p)
	}
	return n
}

func TestRequiredRulesBetweenPods(t *testing.T) {
	elsewhere := pod("x", "1", labelled)
	elsewhere.Namespace = "other"
	around := fit.Around{Namespaces: map[string]labels.Set{"other": {"team": "x"}}}
	for _, c := range []struct {
		name  string
		pod   *corev1.Pod
		nodes []*fit.Node
		want  string
		why   string
	}{
		{"a replica keeps away from its like", pod("p", "1", labelled, apart), []*fit.Node{holding("a", pod("x", "1", labelled)), holding("b")}, "b", ""},
		{"and its like keeps it away", pod("p", "1", labelled), []*fit.Node{holding("a", pod("x", "1", labelled, apart)), holding("b")}, "b", ""},
		{"another namespace is another matter", pod("p", "1", labelled, apart), []*fit.Node{holding("a", elsewhere)}, "a", ""},
		{"no node is left", pod("p", "1", labelled, apart), []*fit.Node{holding("a", pod("x", "1", labelled))}, "", "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."},
		{"the emptier domain", pod("p", "1", labelled, evenly("name")), []*fit.Node{holding("a", pod("x", "1", labelled)), holding("b")}, "b", ""},
		{"a skew that is allowed", pod("p", "1", labelled, evenly("name")), []*fit.Node{holding("a"), holding("b")}, "a", ""},
		{"company", pod("p", "1", near), []*fit.Node{holding("a"), holding("b", pod("x", "1", labelled))}, "b", ""},
		{"nobody is there", pod("p", "1", near), []*fit.Node{holding("a")}, "", "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
		{"the first of its own", pod("p", "1", labelled, near), []*fit.Node{holding("a")}, "a", ""},
		{"the second of its own", pod("p", "1", labelled, near), []*fit.Node{holding("a"), holding("b", pod("x", "1", labelled))}, "b", ""},
		{"of a namespace by its label", pod("p", "1", labelled, apartFromTeams), []*fit.Node{holding("a", elsewhere), holding("b")}, "b", ""},
		{"too few domains", pod("p", "1", labelled, evenly("name"), over(3)), []*fit.Node{holding("a", pod("x", "1", labelled)), holding("b", pod("y", "1", labelled))}, "", "0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints."},
		{"a node without the domain's label", pod("p", "1", labelled, evenly("zone")), []*fit.Node{holding("a")}, "", "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why := fit.Choose(c.pod, c.nodes, nil, around)
			if got != c.want || why != c.why {
				t.Errorf("got %q (%s), wanted %q (%s)", got, why, c.want, c.why)
			}
		})
	}
}
