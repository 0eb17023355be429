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

	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// world is the scheduler's view of one snapshot, and the framework of each profile, which runs the plugins on it.
type world struct {
	*nodeInfos
	frames     map[string]*frame
	byName     map[string]*v1.Pod
	pods       []*v1.Pod
	serial     int
	addsLabels bool // whether the API server of the cluster adds labels to pods that it binds: some pod has them
	ctx        context.Context
	cancel     context.CancelFunc
}

// frame is the framework of one profile, with its plugins by name, which the framework does not expose.
type frame struct {
	framework.Framework
	plugins map[string]plugin
}

// shared is the state that all worlds share, because it is expensive to create.
var shared = sync.OnceValues(func() (*common, error) {
	client, err := clientset.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	if err != nil {
		return nil, err
	}
	profiles, err := profilesOf("")
	if err != nil {
		return nil, err
	}
	return &common{
		profiles: profiles,
		registry: plugins.NewInTreeRegistry(),
		client:   client,
		recorder: metrics.NewMetricsAsyncRecorder(1000, 1<<62, nil),
	}, nil
})

type common struct {
	profiles []config.KubeSchedulerProfile
	registry frameworkruntime.Registry
	client   clientset.Interface
	recorder *metrics.MetricAsyncRecorder
}

// profilesOf returns the profiles of a KubeSchedulerConfiguration in YAML or JSON, with all defaults.
func profilesOf(configuration string) ([]config.KubeSchedulerProfile, error) {
	if configuration == "" {
		configuration = `{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}`
	}
	read, _, err := configscheme.Codecs.UniversalDecoder().Decode([]byte(configuration), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	internal, ok := read.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("config: %T is not a KubeSchedulerConfiguration", read)
	}
	return internal.Profiles, nil
}

func newWorld(found *objects, configuration string) (*world, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{
		nodeInfos: newNodeInfos(found.nodes),
		frames:    map[string]*frame{},
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
	if err := w.buildFrameworks(found, configuration); err != nil {
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

func (w *world) buildFrameworks(found *objects, configuration string) error {
	common, err := shared()
	if err != nil {
		return err
	}
	profiles := common.profiles
	if configuration != "" {
		if profiles, err = profilesOf(configuration); err != nil {
			return err
		}
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
	options := append([]frameworkruntime.Option{
		frameworkruntime.WithClientSet(common.client),
		frameworkruntime.WithInformerFactory(informers),
		frameworkruntime.WithSnapshotSharedLister(w.nodeInfos),
		frameworkruntime.WithSharedDRAManager(dra),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithMetricsRecorder(common.recorder),
	}, slices.Concat(optionsSince135(informers), optionsSince136(), optionsSince138())...)
	for i := range profiles {
		built := &frame{plugins: map[string]plugin{}}
		built.Framework, err = frameworkruntime.NewFramework(w.ctx, built.recording(common.registry), &profiles[i], options...)
		if err != nil {
			return fmt.Errorf("profile %q: %w", profiles[i].SchedulerName, err)
		}
		w.frames[profiles[i].SchedulerName] = built
	}
	return nil
}

// frameOf returns the framework of the pod's profile. A pod of another scheduler is treated like one of the default
// scheduler.
func (w *world) frameOf(pod *v1.Pod) (*frame, error) {
	for _, name := range []string{pod.Spec.SchedulerName, v1.DefaultSchedulerName} {
		if found := w.frames[name]; found != nil {
			return found, nil
		}
	}
	return nil, fmt.Errorf("no profile for the schedulerName %q of pod %s", pod.Spec.SchedulerName, podName(pod))
}

func (w *world) draManager(informers *stores, client clientset.Interface) (*dynamicresources.DefaultDRAManager, error) {
	claims := assumecache.NewAssumeCache(klog.FromContext(w.ctx), informers.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	options, err := sliceOptions(informers)
	if err != nil {
		return nil, err
	}
	options.KubeClient = client
	tracker, err := resourceslicetracker.StartTracker(w.ctx, options)
	if err != nil {
		return nil, err
	}
	manager := dynamicresources.NewDRAManager(w.ctx, claims, tracker, informers)
	return manager, resolveDeviceClasses(manager, informers)
}

// recording wraps the factories to get access to the individual plugins, which the framework does not expose.
func (f *frame) recording(registry frameworkruntime.Registry) frameworkruntime.Registry {
	wrapped := make(frameworkruntime.Registry, len(registry))
	for name, factory := range registry {
		wrapped[name] = func(ctx context.Context, args runtime.Object, handle handle) (plugin, error) {
			plugin, err := factory(ctx, args, handle)
			f.plugins[name] = plugin
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
