package collector

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	discoveryPeriod = time.Second // how soon a new CRD's objects are watched
	settlePeriod    = 30 * time.Millisecond
)

// Collector watches the metadata of every object.
type Collector struct {
	discovery discovery.DiscoveryInterface
	client    metadata.Interface
	factory   metadatainformer.SharedInformerFactory
	graph     *graph
	watched   map[schema.GroupVersionResource]cache.InformerSynced
	kinds     map[schema.GroupVersionKind]metav1.APIResource
	gone      map[types.UID]bool // owners known to be absent; a UID never comes back
	wake      chan struct{}
}

// New prepares a collector.
func New(d discovery.DiscoveryInterface, client metadata.Interface) *Collector {
	return &Collector{
		discovery: d, client: client, factory: metadatainformer.NewSharedInformerFactory(client, 0), graph: newGraph(),
		watched: map[schema.GroupVersionResource]cache.InformerSynced{}, kinds: map[schema.GroupVersionKind]metav1.APIResource{},
		gone: map[types.UID]bool{}, wake: make(chan struct{}, 1),
	}
}

// Run collects until the context ends.
func (c *Collector) Run(ctx context.Context) {
	ticker := time.NewTicker(discoveryPeriod)
	defer ticker.Stop()
	c.discover(ctx)
	for ctx.Err() == nil {
		if c.synced() {
			c.pass(ctx)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
			c.discover(ctx)
		case <-c.wake:
			time.Sleep(settlePeriod)
		}
	}
}

func (c *Collector) synced() bool {
	for _, synced := range c.watched {
		if !synced() {
			return false
		}
	}
	return true
}

// discover starts a watch for each resource that can be deleted; events come and go by themselves.
func (c *Collector) discover(ctx context.Context) {
	lists, err := c.discovery.ServerPreferredResources()
	if err != nil {
		klog.V(2).InfoS("garbage collector will look for resources again", "why", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			gvr := gv.WithResource(r.Name)
			c.kinds[gv.WithKind(r.Kind)] = r
			if c.watched[gvr] == nil && r.Name != "events" && containsAll(r.Verbs, "delete", "list", "watch") {
				c.watch(ctx, gvr)
			}
		}
	}
}

func containsAll(have []string, wanted ...string) bool {
	for _, w := range wanted {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}

func (c *Collector) watch(ctx context.Context, gvr schema.GroupVersionResource) {
	informer := c.factory.ForResource(gvr).Informer()
	put := func(o any) {
		m := o.(*metav1.PartialObjectMetadata)
		c.graph.put(node{gvr, m.Namespace, m.Name, m.UID, m.OwnerReferences, m.Finalizers, m.DeletionTimestamp != nil})
		c.poke()
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, o any) { put(o) },
		DeleteFunc: func(o any) {
			if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = t.Obj
			}
			c.graph.drop(o.(*metav1.PartialObjectMetadata).UID)
			c.poke()
		},
	})
	if err != nil {
		klog.ErrorS(err, "garbage collector cannot watch", "resource", gvr)
		return
	}
	c.watched[gvr] = registration.HasSynced
	c.factory.Start(ctx.Done())
}

func (c *Collector) poke() {
	select {
	case c.wake <- struct{}{}:
	default: // a pass is due already
	}
}

func (c *Collector) pass(ctx context.Context) {
	for _, n := range c.graph.owned() {
		c.judge(ctx, n)
	}
	for _, n := range c.graph.leaving(metav1.FinalizerOrphanDependents) {
		c.orphan(ctx, n)
	}
	for _, n := range c.graph.leaving(metav1.FinalizerDeleteDependents) {
		c.foreground(ctx, n)
	}
}

// judge deletes an object none of whose owners is left.
func (c *Collector) judge(ctx context.Context, n node) {
	for _, o := range n.owners {
		if !c.absent(ctx, n, o) {
			return
		}
	}
	c.delete(ctx, n, metav1.DeletePropagationBackground)
}

// absent says whether an owner surely does not exist: neither in the caches nor, asked once, on the server.
func (c *Collector) absent(ctx context.Context, n node, o metav1.OwnerReference) bool {
	if _, ok := c.graph.get(o.UID); ok {
		return false
	}
	if c.gone[o.UID] {
		return true
	}
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return false
	}
	r, ok := c.kinds[gv.WithKind(o.Kind)]
	if !ok {
		return false // an unknown kind keeps its dependents, as in Kubernetes
	}
	resource := c.client.Resource(gv.WithResource(r.Name))
	var found *metav1.PartialObjectMetadata
	if r.Namespaced {
		found, err = resource.Namespace(n.namespace).Get(ctx, o.Name, metav1.GetOptions{})
	} else {
		found, err = resource.Get(ctx, o.Name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) || (err == nil && found.UID != o.UID) {
		c.gone[o.UID] = true
		return true
	}
	return false
}

// orphan takes the owner out of its dependents and lets it go.
func (c *Collector) orphan(ctx context.Context, owner node) {
	for _, d := range c.graph.dependentsOf(owner.uid) {
		kept := slices.DeleteFunc(slices.Clone(d.owners), func(o metav1.OwnerReference) bool { return o.UID == owner.uid })
		if err := c.patch(ctx, d, map[string]any{"ownerReferences": kept, "uid": d.uid}); err != nil {
			return // the next pass tries again
		}
	}
	c.release(ctx, owner, metav1.FinalizerOrphanDependents)
}

// foreground deletes the dependents first; the owner goes when none is left that blocks it.
func (c *Collector) foreground(ctx context.Context, owner node) {
	blocked := false
	for _, d := range c.graph.dependentsOf(owner.uid) {
		blocked = blocked || d.blocks(owner.uid)
		if !d.deleting {
			c.delete(ctx, d, metav1.DeletePropagationForeground)
		}
	}
	if !blocked {
		c.release(ctx, owner, metav1.FinalizerDeleteDependents)
	}
}

func (c *Collector) release(ctx context.Context, n node, finalizer string) {
	kept := slices.DeleteFunc(slices.Clone(n.finalizers), func(f string) bool { return f == finalizer })
	if err := c.patch(ctx, n, map[string]any{"finalizers": kept, "uid": n.uid}); err != nil && !apierrors.IsNotFound(err) {
		klog.V(2).InfoS("garbage collector will try again", "name", n.name, "why", err)
	}
}

func (c *Collector) delete(ctx context.Context, n node, policy metav1.DeletionPropagation) {
	err := c.client.Resource(n.resource).Namespace(n.namespace).Delete(ctx, n.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &n.uid}, PropagationPolicy: &policy,
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		klog.V(2).InfoS("garbage collector will try again", "name", n.name, "why", err)
	}
}
