//go:build !kubernetes_1_34 && !kubernetes_1_35

package main

import (
	"k8s.io/client-go/tools/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

func (s *stores) InformerName() *cache.InformerName  { return nil }
func (s *store) HasSyncedChecker() cache.DoneChecker { return synced{} }
func (synced) HasSyncedChecker() cache.DoneChecker   { return synced{} }

func optionsSince136() []frameworkruntime.Option {
	return []frameworkruntime.Option{frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap())}
}
