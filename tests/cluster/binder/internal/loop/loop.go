// Package loop binds ungated pending pods through the API, as kube-scheduler does.
package loop

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"wattpack.io/tests/cluster/binder/internal/fit"
)

// retryPeriod is how often pods are tried again when nothing changes in the cluster.
const retryPeriod = time.Second

// Binder watches pods and nodes and binds what fits.
type Binder struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	pods    corelisters.PodLister
	nodes   corelisters.NodeLister
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	spaces  corelisters.NamespaceLister
	wake    chan struct{}
	synced  []cache.InformerSynced
	assumed map[types.UID]string // bound here, not yet seen in the cache
}

// New prepares a binder; Run starts it.
func New(client kubernetes.Interface) (*Binder, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	pods, nodes, claims := core.Pods(), core.Nodes(), core.PersistentVolumeClaims()
	volumes, spaces := core.PersistentVolumes(), core.Namespaces()
	b := &Binder{
		client: client, factory: factory, pods: pods.Lister(), nodes: nodes.Lister(),
		claims: claims.Lister(), volumes: volumes.Lister(), spaces: spaces.Lister(),
		wake: make(chan struct{}, 1), assumed: map[types.UID]string{},
	}
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { b.poke() }, UpdateFunc: func(any, any) { b.poke() }, DeleteFunc: func(any) { b.poke() },
	}
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), nodes.Informer(), claims.Informer(), volumes.Informer(), spaces.Informer()} {
		registration, err := informer.AddEventHandler(changed)
		if err != nil {
			return nil, err
		}
		b.synced = append(b.synced, registration.HasSynced)
	}
	return b, nil
}

func (b *Binder) poke() {
	select {
	case b.wake <- struct{}{}:
	default: // a pass is due already
	}
}

// Run binds until the context ends; it calls ready when the first list has arrived.
func (b *Binder) Run(ctx context.Context, ready func()) error {
	b.factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), b.synced...) {
		return ctx.Err()
	}
	ready()
	ticker := time.NewTicker(retryPeriod)
	defer ticker.Stop()
	for {
		if err := b.pass(ctx); err != nil {
			klog.ErrorS(err, "a pass failed; it is tried again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		case <-ticker.C:
		}
	}
}

// pass tries every pending pod once, in queue order.
func (b *Binder) pass(ctx context.Context) error {
	pods, err := b.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	nodes, err := b.state(pods)
	if err != nil {
		return err
	}
	queue, nominated := []*corev1.Pod{}, map[string][]*corev1.Pod{}
	for _, p := range pods {
		if b.pending(p) {
			queue = append(queue, p)
			if n := p.Status.NominatedNodeName; n != "" {
				nominated[n] = append(nominated[n], p)
			}
		}
	}
	slices.SortFunc(queue, fit.Before)
	around, err := b.around()
	if err != nil {
		return err
	}
	for _, p := range queue {
		b.place(ctx, p, nodes, nominated, around)
	}
	return nil
}

// around lists what counts beside pods and nodes.
func (b *Binder) around() (fit.Around, error) {
	around := fit.Around{
		Claims: map[string]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{}, Namespaces: map[string]labels.Set{},
	}
	claims, err := b.claims.List(labels.Everything())
	if err != nil {
		return around, err
	}
	volumes, err := b.volumes.List(labels.Everything())
	if err != nil {
		return around, err
	}
	spaces, err := b.spaces.List(labels.Everything())
	for _, c := range claims {
		around.Claims[c.Namespace+"/"+c.Name] = c
	}
	for _, v := range volumes {
		around.Volumes[v.Name] = v
	}
	for _, n := range spaces {
		around.Namespaces[n.Name] = n.Labels
	}
	return around, err
}

func (b *Binder) pending(p *corev1.Pod) bool {
	_, assumed := b.assumed[p.UID]
	return p.Spec.NodeName == "" && !assumed && len(p.Spec.SchedulingGates) == 0 && p.DeletionTimestamp == nil &&
		p.Spec.SchedulerName == corev1.DefaultSchedulerName && p.Status.Phase == corev1.PodPending
}

// state counts every pod that has a node, or was given one a moment ago, on its node.
func (b *Binder) state(pods []*corev1.Pod) ([]*fit.Node, error) {
	list, err := b.nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	byName, nodes := map[string]*fit.Node{}, []*fit.Node{}
	for _, n := range list {
		node := fit.NewNode(n)
		byName[n.Name] = node
		nodes = append(nodes, node)
	}
	waiting := map[types.UID]string{}
	for _, p := range pods {
		name := p.Spec.NodeName
		if name == "" {
			if name = b.assumed[p.UID]; name == "" {
				continue
			}
			waiting[p.UID] = name
		}
		if n := byName[name]; n != nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			n.Add(p)
		}
	}
	b.assumed = waiting
	return nodes, nil
}

func (b *Binder) place(ctx context.Context, p *corev1.Pod, nodes []*fit.Node, nominated map[string][]*corev1.Pod, around fit.Around) {
	node, why := fit.Choose(p, nodes, nominated, around)
	var err error
	if node == "" {
		err = b.notScheduled(ctx, p, corev1.PodReasonUnschedulable, why)
	} else if err = b.bind(ctx, p, node); err == nil {
		b.assumed[p.UID] = node
		for _, n := range nodes {
			if n.Name == node {
				n.Add(p)
			}
		}
	} else if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		// As kube-scheduler does: a binding that failed is told on the pod, too.
		err = errors.Join(err, b.notScheduled(ctx, p, corev1.PodReasonSchedulerError, err.Error()))
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		klog.ErrorS(err, "cannot place pod", "pod", klog.KObj(p), "node", node)
	}
}

func (b *Binder) bind(ctx context.Context, p *corev1.Pod, node string) error {
	return b.client.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
}

// notScheduled writes the PodScheduled condition, only when it says something new.
func (b *Binder) notScheduled(ctx context.Context, p *corev1.Pod, reason, why string) error {
	p = p.DeepCopy()
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: why,
		LastTransitionTime: metav1.Now(),
	}
	for i, c := range p.Status.Conditions {
		if c.Type != corev1.PodScheduled {
			continue
		}
		if c.Status == condition.Status && c.Reason == condition.Reason && c.Message == condition.Message {
			return nil
		}
		p.Status.Conditions = slices.Delete(p.Status.Conditions, i, i+1)
		break
	}
	p.Status.Conditions = append(p.Status.Conditions, condition)
	_, err := b.client.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}
