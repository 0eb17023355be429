//go:build !kubernetes_1_34

package main

import (
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

type (
	sharedLister      = fwk.SharedLister
	nodeInfoLister    = fwk.NodeInfoLister
	storageInfoLister = fwk.StorageInfoLister
	plugin            = fwk.Plugin
	preFilterPlugin   = fwk.PreFilterPlugin
	filterPlugin      = fwk.FilterPlugin
	handle            = fwk.Handle
)

func optionsSince135(informers *stores) []frameworkruntime.Option {
	manager := nodevolumelimits.NewCSIManager(informers.Storage().V1().CSINodes().Lister())
	return []frameworkruntime.Option{frameworkruntime.WithSharedCSIManager(manager)}
}

// resolveDeviceClasses tells the manager of dynamic resources which resources the DeviceClasses provide.
func resolveDeviceClasses(manager *dynamicresources.DefaultDRAManager, informers *stores) error {
	resolver, ok := manager.DeviceClassResolver().(cache.ResourceEventHandler)
	if !ok || !utilfeature.DefaultFeatureGate.Enabled(features.DRAExtendedResource) {
		return nil
	}
	_, err := informers.Resource().V1().DeviceClasses().Informer().AddEventHandler(resolver)
	return err
}

// podStatusLists returns the amounts in the status of the pod as a whole.
func podStatusLists(pod *v1.Pod) []v1.ResourceList {
	lists := []v1.ResourceList{pod.Status.AllocatedResources}
	if pod.Status.Resources != nil {
		lists = append(lists, pod.Status.Resources.Requests, pod.Status.Resources.Limits)
	}
	return lists
}
