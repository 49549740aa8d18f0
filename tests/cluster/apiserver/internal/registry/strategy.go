package registry

import (
	"context"
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"wattpack.io/tests/cluster/apiserver/internal/scheme"
)

// strategy is the REST strategy of every built-in resource.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	*Resource
}

func (s strategy) NamespaceScoped() bool                                     { return !s.cluster }
func (s strategy) AllowCreateOnUpdate() bool                                 { return s.upsert }
func (s strategy) AllowUnconditionalUpdate() bool                            { return true }
func (s strategy) Canonicalize(runtime.Object)                               {}
func (s strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (s strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (s strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if s.status && !s.keepStatus {
		structField(obj, "Status").SetZero()
	}
	if s.create != nil {
		s.create(obj)
	}
	if structField(obj, "Spec").IsValid() {
		accessor(obj).SetGeneration(1)
	}
	scheme.Scheme.Default(obj)
}

func (s strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if s.status {
		structField(obj, "Status").Set(structField(old, "Status"))
	}
	if s.update != nil {
		s.update(obj, old)
	}
	if spec := structField(obj, "Spec"); spec.IsValid() {
		generation := accessor(old).GetGeneration()
		if !apiequality.Semantic.DeepEqual(spec.Interface(), structField(old, "Spec").Interface()) {
			generation++
		}
		accessor(obj).SetGeneration(generation)
	}
}

func (s strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	nameFn := s.name
	if nameFn == nil {
		nameFn = validation.NameIsDNSSubdomain
	}
	errs := validation.ValidateObjectMetaAccessor(accessor(obj), !s.cluster, nameFn, field.NewPath("metadata"))
	if s.validate != nil {
		errs = append(errs, s.validate(obj)...)
	}
	return errs
}

func (s strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	errs := validation.ValidateObjectMetaAccessorUpdate(accessor(obj), accessor(old), field.NewPath("metadata"))
	if s.validate != nil {
		errs = append(errs, s.validate(obj)...)
	}
	if s.validateUpdate != nil {
		errs = append(errs, s.validateUpdate(obj, old)...)
	}
	return errs
}

func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if !s.status {
		return nil
	}
	return s.reset("status")
}

func (s strategy) reset(path string) map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(s.gv.String()): fieldpath.NewSet(fieldpath.MakePathOrDie(path))}
}

// gracefulStrategy also defers deletion (pods).
type gracefulStrategy struct{ strategy }

func (s gracefulStrategy) CheckGracefulDelete(_ context.Context, obj runtime.Object, o *metav1.DeleteOptions) bool {
	return s.grace != nil && s.grace(obj, o)
}

// statusStrategy updates only .status, labels and annotations.
type statusStrategy struct{ strategy }

func (s statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if spec := structField(obj, "Spec"); spec.IsValid() {
		spec.Set(structField(old, "Spec"))
	}
	a, b := accessor(obj), accessor(old)
	a.SetOwnerReferences(b.GetOwnerReferences())
	a.SetFinalizers(b.GetFinalizers())
	a.SetDeletionTimestamp(b.GetDeletionTimestamp())
	a.SetGeneration(b.GetGeneration())
}

func (s statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateObjectMetaAccessorUpdate(accessor(obj), accessor(old), field.NewPath("metadata"))
}

func (s statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.reset("spec")
}

func structField(o runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(o).Elem().FieldByName(name)
}

func zero(o runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(o).Elem()).Interface().(runtime.Object)
}

// accessor panics on a type without metadata: every stored built-in has it.
func accessor(o runtime.Object) metav1.Object {
	a, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	return a
}
