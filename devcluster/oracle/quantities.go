package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The API server writes quantities in their canonical form, so the scheduler never reads any other. With the same
// amount in a form like 1024.000Ki, which is stored as a big decimal, PodRequests adds the overhead to the pod's own spec each
// time it is called (k8s.io/component-helpers/resource/helpers.go copies the pod-level request by reference).
func canonical(lists ...v1.ResourceList) error {
	for _, list := range lists {
		for name, amount := range list {
			again, err := resource.ParseQuantity(amount.String())
			if err != nil {
				return err
			}
			list[name] = again
		}
	}
	return nil
}

func canonicalPod(pod *v1.Pod) error {
	lists := append([]v1.ResourceList{pod.Spec.Overhead}, podStatusLists(pod)...)
	if pod.Spec.Resources != nil {
		lists = append(lists, pod.Spec.Resources.Requests, pod.Spec.Resources.Limits)
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, each := range containers {
			lists = append(lists, each.Resources.Requests, each.Resources.Limits)
		}
	}
	for _, statuses := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, each := range statuses {
			lists = append(lists, each.AllocatedResources)
			if each.Resources != nil {
				lists = append(lists, each.Resources.Requests, each.Resources.Limits)
			}
		}
	}
	return canonical(lists...)
}
