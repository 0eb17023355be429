//go:build kubernetes_1_34 || kubernetes_1_35

package main

import frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

func optionsSince136() []frameworkruntime.Option { return nil }
