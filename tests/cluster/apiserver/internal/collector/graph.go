// Package collector deletes objects whose owners are gone, and finishes foreground and orphaning deletions.
package collector

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// node is one object of the cluster.
type node struct {
	resource   schema.GroupVersionResource
	namespace  string
	name       string
	uid        types.UID
	owners     []metav1.OwnerReference
	finalizers []string
	deleting   bool
}

// graph holds every object and who depends on whom.
type graph struct {
	mu         sync.Mutex
	nodes      map[types.UID]node
	dependents map[types.UID]map[types.UID]bool
}

func newGraph() *graph {
	return &graph{nodes: map[types.UID]node{}, dependents: map[types.UID]map[types.UID]bool{}}
}

func (g *graph) put(n node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unlink(n.uid)
	g.nodes[n.uid] = n
	for _, o := range n.owners {
		if g.dependents[o.UID] == nil {
			g.dependents[o.UID] = map[types.UID]bool{}
		}
		g.dependents[o.UID][n.uid] = true
	}
}

func (g *graph) drop(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unlink(uid)
	delete(g.nodes, uid)
}

func (g *graph) unlink(uid types.UID) {
	for _, o := range g.nodes[uid].owners {
		delete(g.dependents[o.UID], uid)
		if len(g.dependents[o.UID]) == 0 {
			delete(g.dependents, o.UID)
		}
	}
}

func (g *graph) get(uid types.UID) (node, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, ok := g.nodes[uid]
	return n, ok
}

// owned lists the objects that have owners and are not being deleted.
func (g *graph) owned() (out []node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.nodes {
		if len(n.owners) > 0 && !n.deleting {
			out = append(out, n)
		}
	}
	return out
}

// leaving lists the objects that wait for this finalizer.
func (g *graph) leaving(finalizer string) (out []node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.nodes {
		if n.deleting && n.has(finalizer) {
			out = append(out, n)
		}
	}
	return out
}

func (g *graph) dependentsOf(uid types.UID) (out []node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for d := range g.dependents[uid] {
		out = append(out, g.nodes[d])
	}
	return out
}

func (n node) has(finalizer string) bool {
	for _, f := range n.finalizers {
		if f == finalizer {
			return true
		}
	}
	return false
}

// blocks says whether the object holds back its owner's foreground deletion.
func (n node) blocks(owner types.UID) bool {
	for _, o := range n.owners {
		if o.UID == owner {
			return o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion
		}
	}
	return false
}
