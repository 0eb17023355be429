//go:build !kubernetes_1_34 && !kubernetes_1_35 && !kubernetes_1_36 && !kubernetes_1_37

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	draapi "k8s.io/dynamic-resource-allocation/api"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

func optionsSince138() []frameworkruntime.Option {
	return []frameworkruntime.Option{frameworkruntime.WithPreemptionManager(func(handle fwk.Handle) fwk.PreemptionManager {
		return preemption.NewPreemptionManager(handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	})}
}

// sliceOptions converts the ResourceSlices to the type that the plugins read, as the scheduler's informer does.
func sliceOptions(informers *stores) (resourceslicetracker.Options, error) {
	for _, object := range informers.storeFor(&resourceapi.ResourceSlice{}).indexer.List() {
		converted := &draapi.ResourceSlice{}
		if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(object.(*resourceapi.ResourceSlice), converted, nil); err != nil {
			return resourceslicetracker.Options{}, err
		}
		if err := informers.storeFor(converted).indexer.Add(converted); err != nil {
			return resourceslicetracker.Options{}, err
		}
	}
	informer := draapi.NewInformerForResourceSlice(informers)
	return resourceslicetracker.Options{SliceInformer: informer, SliceLister: draapi.NewResourceSliceLister(informer.GetIndexer())}, nil
}
