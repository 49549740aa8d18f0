package fit_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"wattpack.io/tests/cluster/binder/internal/fit"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

func node(name string, gpus string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{gpu: resource.MustParse(gpus), corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("3")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func pod(name, gpus string, change ...func(*corev1.Pod)) *corev1.Pod {
	requests := corev1.ResourceList{gpu: resource.MustParse(gpus)}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func priority(v int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &v } }

func nominated(n string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.NominatedNodeName = n }
}

func cluster(nodes ...*corev1.Node) (out []*fit.Node) {
	for _, n := range nodes {
		out = append(out, fit.NewNode(n))
	}
	return out
}

func TestChoose(t *testing.T) {
	full := fit.NewNode(node("a", "8"))
	full.Add(pod("there", "7"))
	crowded := fit.NewNode(node("a", "8"))
	for range 3 {
		crowded.Add(pod("small", "0"))
	}
	tainted, cordoned, broken := node("a", "8"), node("a", "8"), node("a", "8")
	tainted.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
	cordoned.Spec.Unschedulable = true
	broken.Status.Conditions = nil
	rival := pod("rival", "6", priority(5), nominated("a"))
	for _, c := range []struct {
		name  string
		pod   *corev1.Pod
		nodes []*fit.Node
		rival *corev1.Pod
		want  string
		why   string
	}{
		{"first by name", pod("p", "1"), cluster(node("b", "8"), node("a", "8")), nil, "a", ""},
		{"what others use counts", pod("p", "2"), []*fit.Node{full}, nil, "", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."},
		{"pods count", pod("p", "0"), []*fit.Node{crowded}, nil, "", "0/1 nodes are available: 1 Too many pods."},
		{"an untolerated taint", pod("p", "1"), cluster(tainted), nil, "", "0/1 nodes are available: 1 node(s) had untolerated taint {k: }."},
		{"a cordoned node", pod("p", "1"), cluster(cordoned), nil, "", "0/1 nodes are available: 1 node(s) were unschedulable."},
		{"a node that is not ready", pod("p", "1"), cluster(broken), nil, "", "0/1 nodes are available: 1 node(s) were not ready."},
		{"no nodes", pod("p", "1"), nil, nil, "", "0/0 nodes are available."},
		{"the nominated node first", pod("p", "1", nominated("b")), cluster(node("a", "8"), node("b", "8")), nil, "b", ""},
		{"a nominated node without room", pod("p", "4", nominated("b")), cluster(node("a", "8"), node("b", "2")), nil, "a", ""},
		{"room is left for a nominated pod", pod("p", "4"), cluster(node("a", "8"), node("b", "8")), rival, "b", ""},
		{"but not for one of lower priority", pod("p", "4", priority(9)), cluster(node("a", "8"), node("b", "8")), rival, "a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			waiting := map[string][]*corev1.Pod{}
			if c.rival != nil {
				waiting["a"] = append(waiting["a"], c.rival)
			}
			got, why := fit.Choose(c.pod, c.nodes, waiting, fit.Around{})
			if got != c.want || why != c.why {
				t.Errorf("got %q (%s), wanted %q (%s)", got, why, c.want, c.why)
			}
		})
	}
}

func TestPortsOfTheHostAreTakenOnce(t *testing.T) {
	port := func(number int32, address string, protocol corev1.Protocol) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: number, ContainerPort: 1, HostIP: address, Protocol: protocol}}
		}
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecar := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{RestartPolicy: &always, Ports: []corev1.ContainerPort{{HostPort: 80}}}}
	}
	network := func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
	}
	for _, c := range []struct {
		name  string
		there func(*corev1.Pod)
		comes func(*corev1.Pod)
		fits  bool
	}{
		{"the same", port(80, "", "TCP"), port(80, "", ""), false},
		{"another number", port(80, "", "TCP"), port(81, "", "TCP"), true},
		{"another protocol", port(80, "", "TCP"), port(80, "", "UDP"), true},
		{"two addresses", port(80, "10.0.0.1", "TCP"), port(80, "10.0.0.2", "TCP"), true},
		{"one of all addresses", port(80, "0.0.0.0", "TCP"), port(80, "10.0.0.2", "TCP"), false},
		{"a sidecar's", sidecar, port(80, "", "TCP"), false},
		{"on the network of the host", network, port(80, "", "TCP"), false},
		{"none", func(*corev1.Pod) {}, port(80, "", "TCP"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := fit.NewNode(node("a", "8"))
			n.Add(pod("there", "1", c.there))
			if why := fit.Why(pod("comes", "1", c.comes), n, nil); (why == "") != c.fits {
				t.Errorf("%q", why)
			}
		})
	}
}

func TestBeforeOrdersByPriorityThenAgeThenName(t *testing.T) {
	at := func(s int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(s, 0)) }
	}
	pods := []*corev1.Pod{
		pod("d", "0", at(2)), pod("c", "0", at(1)), pod("b", "0", at(1)), pod("a", "0", at(3), priority(7)),
		pod("e", "0", at(0), priority(-2000000000)), pod("z", "0", at(9), priority(2000000000)),
	}
	slices.SortFunc(pods, fit.Before)
	order := ""
	for _, p := range pods {
		order += p.Name
	}
	if order != "zabcde" {
		t.Errorf("order %s", order)
	}
}
