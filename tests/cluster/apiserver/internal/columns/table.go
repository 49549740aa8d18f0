// Package columns prints the built-in kinds as kubectl shows them.
package columns

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// layout gives the columns between Name and Age; those from wide on are shown by `-o wide` only.
type layout struct {
	names []string
	wide  int
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
		out.Rows = append(out.Rows, metav1.TableRow{Cells: l.row(kind, acc, o), Object: runtime.RawExtension{Object: o}})
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
		out.ColumnDefinitions = l.headers(kind)
	}
	return out, nil
}

func (l layout) row(kind string, acc metav1.Object, o runtime.Object) []any {
	cells := l.cells(o)
	if kind == "Event" { // kubectl shows when an event was last seen in place of its name
		return cells
	}
	age := Age(acc.GetCreationTimestamp().Time)
	narrow := l.narrow()
	out := append([]any{acc.GetName()}, cells[:narrow]...)
	out = append(out, age)
	return append(out, cells[narrow:]...)
}

func (l layout) narrow() int {
	if l.wide == 0 {
		return len(l.names)
	}
	return l.wide
}

func (l layout) headers(kind string) (out []metav1.TableColumnDefinition) {
	column := func(name string, priority int32) {
		d := metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority}
		if name == "Name" {
			d.Format = "name"
		}
		out = append(out, d)
	}
	if kind == "Event" {
		for _, n := range l.names {
			column(n, 0)
		}
		return out
	}
	column("Name", 0)
	for _, n := range l.names[:l.narrow()] {
		column(n, 0)
	}
	column("Age", 0)
	for _, n := range l.names[l.narrow():] {
		column(n, 1)
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
