package collector

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func owner(uid types.UID, blocks bool) metav1.OwnerReference {
	return metav1.OwnerReference{UID: uid, BlockOwnerDeletion: &blocks}
}

func TestDependentsFollowTheirReferences(t *testing.T) {
	g := newGraph()
	g.put(node{uid: "parent"})
	g.put(node{uid: "child", owners: []metav1.OwnerReference{owner("parent", true), owner("other", false)}})
	if found := g.dependentsOf("parent"); len(found) != 1 || !found[0].blocks("parent") || found[0].blocks("other") {
		t.Errorf("dependents of parent: %+v", found)
	}
	g.put(node{uid: "child", owners: []metav1.OwnerReference{owner("other", false)}})
	if found := g.dependentsOf("parent"); len(found) != 0 {
		t.Errorf("a dropped reference stayed: %+v", found)
	}
	g.drop("child")
	if found := g.dependentsOf("other"); len(found) != 0 || len(g.dependents) != 0 {
		t.Errorf("a deleted dependent stayed: %+v", found)
	}
}

func TestOnlyObjectsThatWaitAreLeaving(t *testing.T) {
	g := newGraph()
	g.put(node{uid: "going", deleting: true, finalizers: []string{metav1.FinalizerOrphanDependents}})
	g.put(node{uid: "staying", finalizers: []string{metav1.FinalizerOrphanDependents}})
	g.put(node{uid: "owned", owners: []metav1.OwnerReference{owner("going", false)}})
	g.put(node{uid: "owned-and-going", deleting: true, owners: []metav1.OwnerReference{owner("going", false)}})
	if found := g.leaving(metav1.FinalizerOrphanDependents); len(found) != 1 || found[0].uid != "going" {
		t.Errorf("leaving: %+v", found)
	}
	if found := g.owned(); len(found) != 1 || found[0].uid != "owned" {
		t.Errorf("owned: %+v", found)
	}
}
