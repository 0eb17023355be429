//go:build kubernetes_1_34

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

type (
	sharedLister      = framework.SharedLister
	nodeInfoLister    = framework.NodeInfoLister
	storageInfoLister = framework.StorageInfoLister
	plugin            = framework.Plugin
	preFilterPlugin   = framework.PreFilterPlugin
	filterPlugin      = framework.FilterPlugin
	handle            = framework.Handle
)

func optionsSince135(*stores) []frameworkruntime.Option { return nil }

func resolveDeviceClasses(*dynamicresources.DefaultDRAManager, *stores) error { return nil }

func podStatusLists(*v1.Pod) []v1.ResourceList { return nil }
