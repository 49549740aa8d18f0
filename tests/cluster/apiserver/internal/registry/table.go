package registry

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"wattpack.io/tests/cluster/apiserver/internal/columns"
)

type table struct {
	kind     string
	fallback rest.TableConvertor
}

func tableFor(r *Resource, gr schema.GroupResource) rest.TableConvertor {
	return table{reflect.TypeOf(r.obj).Elem().Name(), rest.NewDefaultTableConvertor(gr)}
}

// ConvertToTable prints the columns that kubectl shows for the kind.
func (t table) ConvertToTable(ctx context.Context, obj, opts runtime.Object) (*metav1.Table, error) {
	if !columns.Known(t.kind) {
		return t.fallback.ConvertToTable(ctx, obj, opts)
	}
	o, ok := opts.(*metav1.TableOptions)
	return columns.Table(t.kind, obj, ok && o.NoHeaders)
}
