package columns_test

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"wattpack.io/tests/cluster/apiserver/internal/columns"
)

func TestEveryRowHasACellForEachColumn(t *testing.T) {
	old := metav1.NewTime(time.Now().Add(-3 * time.Hour))
	for kind, obj := range map[string]runtime.Object{
		"Pod":  &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: old}},
		"Node": &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: old}},
		"Job":  &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", CreationTimestamp: old}},
		"Event": &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "e"}, LastTimestamp: old, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p"},
		},
	} {
		table, err := columns.Table(kind, obj, false)
		if err != nil {
			t.Fatal(err)
		}
		if cells, headers := len(table.Rows[0].Cells), len(table.ColumnDefinitions); cells != headers {
			t.Errorf("%s: %d cells, %d columns", kind, cells, headers)
		}
	}
}

func TestPodStatusSaysTheMostUsefulThing(t *testing.T) {
	now := metav1.Now()
	gated := corev1.PodCondition{Type: corev1.PodScheduled, Reason: corev1.PodReasonSchedulingGated}
	waiting := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}
	for want, p := range map[string]*corev1.Pod{
		"Pending":          {Status: corev1.PodStatus{Phase: corev1.PodPending}},
		"SchedulingGated":  {Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{gated}}},
		"ImagePullBackOff": {Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting}}},
		"Evicted":          {Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}},
		"Terminating":      {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}},
	} {
		table, err := columns.Table("Pod", p, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(table.Rows[0].Cells[2]); got != want {
			t.Errorf("got %s, wanted %s", got, want)
		}
	}
}

func TestListsKeepTheirContinuation(t *testing.T) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "more", ResourceVersion: "7"}, Items: make([]corev1.Pod, 2)}
	table, err := columns.Table("Pod", list, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 2 || table.Continue != "more" || table.ResourceVersion != "7" {
		t.Errorf("%d rows, continue %q, version %q", len(table.Rows), table.Continue, table.ResourceVersion)
	}
}
