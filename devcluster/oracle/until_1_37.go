//go:build kubernetes_1_34 || kubernetes_1_35 || kubernetes_1_36 || kubernetes_1_37

package main

import (
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

func optionsSince138() []frameworkruntime.Option { return nil }

func sliceOptions(informers *stores) (resourceslicetracker.Options, error) {
	return resourceslicetracker.Options{SliceInformer: informers.Resource().V1().ResourceSlices()}, nil
}
