// Package workloads plays kube-controller-manager's workload controllers as far as the tests need them: each pass
// looks at everything in the caches and takes the next steps. The names of what a pass creates follow from its owner,
// so a pass over a stale cache repeats itself instead of creating twice.
package workloads

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	settlePeriod = 20 * time.Millisecond // changes that come together are looked at together
	retryPeriod  = time.Second
)

// Runner holds the caches and the client.
type Runner struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	wake    chan struct{}
	synced  []cache.InformerSynced
}

// New prepares the controllers on the factory's informers; start the factory afterwards.
func New(client kubernetes.Interface, factory informers.SharedInformerFactory) (*Runner, error) {
	r := &Runner{client: client, factory: factory, wake: make(chan struct{}, 1)}
	core, apps := factory.Core().V1(), factory.Apps().V1()
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.poke() }, UpdateFunc: func(any, any) { r.poke() }, DeleteFunc: func(any) { r.poke() },
	}
	for _, informer := range []cache.SharedIndexInformer{
		core.Pods().Informer(), core.Nodes().Informer(), apps.Deployments().Informer(), apps.ReplicaSets().Informer(),
		apps.StatefulSets().Informer(), apps.DaemonSets().Informer(), factory.Batch().V1().Jobs().Informer(),
		factory.Policy().V1().PodDisruptionBudgets().Informer(),
	} {
		registration, err := informer.AddEventHandler(changed)
		if err != nil {
			return nil, err
		}
		r.synced = append(r.synced, registration.HasSynced)
	}
	return r, nil
}

func (r *Runner) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // a pass is due already
	}
}

// Run takes passes until the context ends.
func (r *Runner) Run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), r.synced...) {
		return
	}
	ticker := time.NewTicker(retryPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := r.pass(ctx); err != nil && ctx.Err() == nil {
			klog.V(2).InfoS("workload controllers will try again", "why", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-r.wake:
			time.Sleep(settlePeriod)
		}
	}
}

// scene is what one pass looks at.
type scene struct {
	pods     []*corev1.Pod
	nodes    []*corev1.Node
	owned    map[types.UID][]*corev1.Pod        // by controller
	replicas map[types.UID][]*appsv1.ReplicaSet // by controller
}

func (r *Runner) look() (s scene, err error) {
	core, apps := r.factory.Core().V1(), r.factory.Apps().V1()
	s.owned, s.replicas = map[types.UID][]*corev1.Pod{}, map[types.UID][]*appsv1.ReplicaSet{}
	if s.pods, err = core.Pods().Lister().List(labels.Everything()); err != nil {
		return s, err
	}
	if s.nodes, err = core.Nodes().Lister().List(labels.Everything()); err != nil {
		return s, err
	}
	for _, p := range s.pods {
		if ref := metav1.GetControllerOf(p); ref != nil {
			s.owned[ref.UID] = append(s.owned[ref.UID], p)
		}
	}
	sets, err := apps.ReplicaSets().Lister().List(labels.Everything())
	for _, rs := range sets {
		if ref := metav1.GetControllerOf(rs); ref != nil {
			s.replicas[ref.UID] = append(s.replicas[ref.UID], rs)
		}
	}
	return s, err
}

func (r *Runner) pass(ctx context.Context) error {
	s, err := r.look()
	if err != nil {
		return err
	}
	apps := r.factory.Apps().V1()
	deployments, e1 := apps.Deployments().Lister().List(labels.Everything())
	replicaSets, e2 := apps.ReplicaSets().Lister().List(labels.Everything())
	statefulSets, e3 := apps.StatefulSets().Lister().List(labels.Everything())
	daemonSets, e4 := apps.DaemonSets().Lister().List(labels.Everything())
	jobs, e5 := r.factory.Batch().V1().Jobs().Lister().List(labels.Everything())
	budgets, e6 := r.factory.Policy().V1().PodDisruptionBudgets().Lister().List(labels.Everything())
	return errors.Join(e1, e2, e3, e4, e5, e6,
		each(deployments, func(d *appsv1.Deployment) error { return r.deployment(ctx, d, s) }),
		each(replicaSets, func(rs *appsv1.ReplicaSet) error { return r.replicaSet(ctx, rs, s) }),
		each(statefulSets, func(ss *appsv1.StatefulSet) error { return r.statefulSet(ctx, ss, s) }),
		each(daemonSets, func(d *appsv1.DaemonSet) error { return r.daemonSet(ctx, d, s) }),
		each(jobs, func(j *batchv1.Job) error { return r.job(ctx, j, s) }),
		r.orphans(ctx, jobs, s),
		each(budgets, func(b *policyv1.PodDisruptionBudget) error { return r.budget(ctx, b, s) }),
	)
}

// each reconciles every object that is not being deleted; a lost race is no error, because the next pass sees it.
func each[T metav1.Object](objects []T, reconcile func(T) error) error {
	var all []error
	for _, o := range objects {
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		if err := reconcile(o); err != nil && !raced(err) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

func raced(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

func (r *Runner) createPod(ctx context.Context, p *corev1.Pod) error {
	_, err := r.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (r *Runner) deletePod(ctx context.Context, p *corev1.Pod) error {
	err := r.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if raced(err) {
		return nil
	}
	return err
}
