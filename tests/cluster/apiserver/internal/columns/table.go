// Package columns prints the built-in kinds as kubectl shows them.
package columns

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// layout names the columns of a kind: "Name" and "Age" come from the metadata, the others from cells in their order.
// A plus in front marks a column that only `-o wide` shows.
type layout struct {
	names []string
	cells func(runtime.Object) []any
}

// Known says whether this package has columns for the kind.
func Known(kind string) bool { _, ok := layouts[kind]; return ok }

// Table prints one object or a list of a known kind.
func Table(kind string, obj runtime.Object, noHeaders bool) (*metav1.Table, error) {
	l := layouts[kind]
	out := &metav1.Table{}
	row := func(o runtime.Object) error {
		acc, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		out.Rows = append(out.Rows, metav1.TableRow{Cells: l.row(acc, o), Object: runtime.RawExtension{Object: o}})
		return nil
	}
	if meta.IsListType(obj) {
		list, err := meta.ListAccessor(obj)
		if err != nil {
			return nil, err
		}
		out.ResourceVersion, out.Continue, out.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
		if err := meta.EachListItem(obj, row); err != nil {
			return nil, err
		}
	} else {
		acc, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		out.ResourceVersion = acc.GetResourceVersion()
		if err := row(obj); err != nil {
			return nil, err
		}
	}
	if !noHeaders {
		out.ColumnDefinitions = l.headers()
	}
	return out, nil
}

func (l layout) row(acc metav1.Object, o runtime.Object) (out []any) {
	cells := l.cells(o)
	for _, name := range l.names {
		switch name {
		case "Name":
			out = append(out, acc.GetName())
		case "Age":
			out = append(out, Age(acc.GetCreationTimestamp().Time))
		default:
			out = append(out, cells[0])
			cells = cells[1:]
		}
	}
	return out
}

func (l layout) headers() (out []metav1.TableColumnDefinition) {
	for _, name := range l.names {
		d := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if wide, ok := strings.CutPrefix(name, "+"); ok {
			d.Name, d.Priority = wide, 1
		}
		if name == "Name" {
			d.Format = "name"
		}
		out = append(out, d)
	}
	return out
}

// Age prints the time since t in kubectl's short form.
func Age(t time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t))
}
