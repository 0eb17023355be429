package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"

	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// world is the scheduler's view of one snapshot, and the framework that runs the plugins on it.
type world struct {
	*nodeInfos
	framework  framework.Framework
	plugins    map[string]fwk.Plugin
	byName     map[string]*v1.Pod
	pods       []*v1.Pod
	serial     int
	addsLabels bool // whether the API server of the cluster adds labels to pods that it binds: some pod has them
	ctx        context.Context
	cancel     context.CancelFunc
}

// shared is the state that all worlds share, because it is expensive to create.
var shared = sync.OnceValues(func() (*common, error) {
	var versioned configv1.KubeSchedulerConfiguration
	configscheme.Scheme.Default(&versioned)
	var internal config.KubeSchedulerConfiguration
	if err := configscheme.Scheme.Convert(&versioned, &internal, nil); err != nil {
		return nil, err
	}
	client, err := clientset.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	if err != nil {
		return nil, err
	}
	return &common{
		profile:  &internal.Profiles[0],
		registry: plugins.NewInTreeRegistry(),
		client:   client,
		recorder: metrics.NewMetricsAsyncRecorder(1000, 1<<62, nil),
	}, nil
})

type common struct {
	profile  *config.KubeSchedulerProfile
	registry frameworkruntime.Registry
	client   clientset.Interface
	recorder *metrics.MetricAsyncRecorder
}

func newWorld(found *objects) (*world, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{
		nodeInfos: newNodeInfos(found.nodes),
		plugins:   map[string]fwk.Plugin{},
		byName:    make(map[string]*v1.Pod, len(found.pods)),
		pods:      found.pods,
		ctx:       ctx,
		cancel:    cancel,
	}
	for _, pod := range found.pods {
		w.byName[podName(pod)] = pod
		if countsAsScheduled(pod) {
			w.place(pod)
			w.addsLabels = w.addsLabels || hasAddedLabels(pod)
		}
	}
	if err := w.buildFramework(found); err != nil {
		cancel()
		return nil, err
	}
	return w, nil
}

func (w *world) close() { w.cancel() }

// countsAsScheduled returns whether the scheduler's cache contains the pod: it is bound and not finished (the
// scheduler's informer excludes finished pods).
func countsAsScheduled(pod *v1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

func (w *world) buildFramework(found *objects) error {
	common, err := shared()
	if err != nil {
		return err
	}
	all := append([]runtime.Object{}, found.others...)
	for _, node := range found.nodes {
		all = append(all, node)
	}
	informers, err := newStores(all)
	if err != nil {
		return err
	}
	dra, err := w.draManager(informers, common.client)
	if err != nil {
		return err
	}
	w.framework, err = frameworkruntime.NewFramework(w.ctx, w.recording(common.registry), common.profile,
		frameworkruntime.WithClientSet(common.client),
		frameworkruntime.WithInformerFactory(informers),
		frameworkruntime.WithSnapshotSharedLister(w.nodeInfos),
		frameworkruntime.WithSharedDRAManager(dra),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(informers.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithMetricsRecorder(common.recorder),
	)
	return err
}

func (w *world) draManager(informers *stores, client clientset.Interface) (*dynamicresources.DefaultDRAManager, error) {
	claims := assumecache.NewAssumeCache(klog.FromContext(w.ctx), informers.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	tracker, err := resourceslicetracker.StartTracker(w.ctx, resourceslicetracker.Options{
		SliceInformer: informers.Resource().V1().ResourceSlices(),
		KubeClient:    client,
	})
	if err != nil {
		return nil, err
	}
	manager := dynamicresources.NewDRAManager(w.ctx, claims, tracker, informers)
	if resolver, ok := manager.DeviceClassResolver().(cache.ResourceEventHandler); ok {
		if _, err := informers.Resource().V1().DeviceClasses().Informer().AddEventHandler(resolver); err != nil {
			return nil, err
		}
	}
	return manager, nil
}

// recording wraps the factories to get access to the individual plugins, which the framework does not expose.
func (w *world) recording(registry frameworkruntime.Registry) frameworkruntime.Registry {
	wrapped := make(frameworkruntime.Registry, len(registry))
	for name, factory := range registry {
		wrapped[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, handle)
			w.plugins[name] = plugin
			return plugin, err
		}
	}
	return wrapped
}

// addedLabels are the labels that the API server copies from the node when it binds a pod (PodTopologyLabels).
var addedLabels = []string{v1.LabelTopologyRegion, v1.LabelTopologyZone}

func hasAddedLabels(pod *v1.Pod) bool {
	return slices.ContainsFunc(addedLabels, func(key string) bool { _, has := pod.Labels[key]; return has })
}

// bind sets the pod's node, and adds the labels that the API server adds.
func (w *world) bind(pod *v1.Pod, node *v1.Node) {
	pod.Spec.NodeName = node.Name
	for _, key := range addedLabels {
		if value, has := node.Labels[key]; has && w.addsLabels {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels[key] = value
		}
	}
}

// recreated returns the pod as its controller creates it again: unbound, without a status and without the labels that
// were added when it was bound, with a new UID.
func (w *world) recreated(pod *v1.Pod) *v1.Pod {
	w.serial++
	again := pod.DeepCopy()
	again.UID = types.UID(fmt.Sprintf("recreated-%d", w.serial))
	again.DeletionTimestamp = nil
	if again.Spec.NodeName != "" {
		for _, key := range addedLabels {
			delete(again.Labels, key)
		}
	}
	again.Spec.NodeName = ""
	again.Status = v1.PodStatus{}
	return again
}

func (w *world) pod(name string) (*v1.Pod, error) {
	pod := w.byName[name]
	if pod == nil {
		return nil, fmt.Errorf("pod %q is not in the snapshot", name)
	}
	return pod, nil
}
