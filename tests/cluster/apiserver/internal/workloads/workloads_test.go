package workloads

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func named(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, f := range change {
		f(p)
	}
	return p
}

func phase(v corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = v } }

func index(v string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: v} }
}

// A pass over a stale cache must ask for the same names again, so that the server refuses the second pod.
func TestNamesFollowFromTheOwnerAndSkipTakenOnes(t *testing.T) {
	owner := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}}
	first := freeNames(owner, nil, 2)
	if again := freeNames(owner, nil, 2); !slices.Equal(first, again) {
		t.Errorf("%v, then %v", first, again)
	}
	next := freeNames(owner, []*corev1.Pod{named(first[0])}, 2)
	if next[0] != first[1] || slices.Contains(next, first[0]) {
		t.Errorf("after %s: %v", first[0], next)
	}
	other := freeNames(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "v"}}, nil, 1)
	if other[0] == first[0] {
		t.Error("a replaced owner gave the same names")
	}
}

func TestOnlyIndexesThatNeitherRunNorSucceededAreStarted(t *testing.T) {
	completions := int32(4)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "gang", UID: "u"}, Spec: batchv1.JobSpec{Completions: &completions}}
	pods := []*corev1.Pod{
		named("a", index("0"), phase(corev1.PodSucceeded)), named("b", index("1"), phase(corev1.PodRunning)),
		named("c", index("2"), phase(corev1.PodFailed)),
	}
	got := []string{}
	for _, p := range missingIndexes(j, pods, 9) {
		got = append(got, p.Annotations[batchv1.JobCompletionIndexAnnotation])
	}
	if !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("started %v", got)
	}
	if n := len(missingIndexes(j, pods, 1)); n != 1 {
		t.Errorf("room for one, started %d", n)
	}
}

func TestADeletedPodCountsAsFailedOnceAndOnlyAfterItWasNoted(t *testing.T) {
	held := func(p *corev1.Pod) { p.UID, p.Finalizers = types.UID(p.Name), []string{batchv1.JobTrackingFinalizer} }
	deleted := func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }
	pods := []*corev1.Pod{
		named("gone", held, deleted, phase(corev1.PodRunning)), named("done", held, phase(corev1.PodSucceeded)),
		named("there", held, phase(corev1.PodRunning)), named("disowned", deleted, phase(corev1.PodRunning)),
	}
	s := &batchv1.JobStatus{}
	countEnded(s, pods)
	if u := s.UncountedTerminatedPods; fmt.Sprint(u.Failed, u.Succeeded, s.Failed, s.Succeeded) != "[gone] [done] 0 0" {
		t.Errorf("noted %v, counted %d and %d", u, s.Failed, s.Succeeded)
	}
	countEnded(s, pods) // its finalizer is still there: neither noted again nor counted
	for _, p := range pods[:2] {
		p.Finalizers = nil
	}
	countEnded(s, pods)
	countEnded(s, pods[2:])
	if u := s.UncountedTerminatedPods; fmt.Sprint(u.Failed, u.Succeeded, s.Failed, s.Succeeded) != "[] [] 1 1" {
		t.Errorf("left %v, counted %d and %d", u, s.Failed, s.Succeeded)
	}
}

func TestDesiredHealthy(t *testing.T) {
	number, share := intstr.FromInt32(2), intstr.FromString("30%")
	for _, c := range []struct {
		name string
		spec policyv1.PodDisruptionBudgetSpec
		want int
	}{
		{"at least two", policyv1.PodDisruptionBudgetSpec{MinAvailable: &number}, 2},
		{"at least 30 %, rounded up", policyv1.PodDisruptionBudgetSpec{MinAvailable: &share}, 2},
		{"at most two away", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &number}, 3},
		{"at most 30 % away, rounded up", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &share}, 3},
	} {
		got, err := desiredHealthy(&policyv1.PodDisruptionBudget{Spec: c.spec}, 5)
		if err != nil || got != c.want {
			t.Errorf("%s: %d (%v), wanted %d", c.name, got, err, c.want)
		}
	}
}

func TestADaemonPodIsPinnedInEveryTermAndStaysThere(t *testing.T) {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "u"}}
	in := func(zone string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}
	}
	d.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{in("a"), in("b")}},
	}}
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
	}
	p := daemonPod(d, node("n1", "a"), "r")
	if pinnedTo(p) != "n1" || !selects(p, node("n1", "b")) || selects(p, node("n2", "a")) || selects(p, node("n1", "c")) {
		t.Errorf("pinned to %q: %v", pinnedTo(p), p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if len(d.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields) != 0 {
		t.Error("the template was changed")
	}
}

func TestThePodWithTheLeastToLoseGoesFirst(t *testing.T) {
	onNode := func(p *corev1.Pod) { p.Spec.NodeName = "n" }
	isReady := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	pods := []*corev1.Pod{named("ready", onNode, isReady), named("starting", onNode), named("waiting")}
	expendableFirst(pods)
	if got := fmt.Sprint(pods[0].Name, " ", pods[1].Name, " ", pods[2].Name); got != "waiting starting ready" {
		t.Error(got)
	}
}
