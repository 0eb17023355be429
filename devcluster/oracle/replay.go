package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type replayRequest struct {
	Drains []drain `json:"drains"`
}

// drain is one node of a plan. The node remains, with the taint and without the pods of the placements, unless it is
// removed after them.
type drain struct {
	Node       string      `json:"node"`
	Taint      *v1.Taint   `json:"taint"`
	Placements []placement `json:"placements"`
	Remove     bool        `json:"remove"`
}

type placement struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
}

type placementVerdict struct {
	placement
	Drained string    `json:"drained"`
	Refused []refusal `json:"refused"`
}

type replayAnswer struct {
	Placements []placementVerdict `json:"placements"`
}

// replay performs the drains in order. A placement that the plugins reject is reported and not performed.
func replay(w *world, asked replayRequest) (*replayAnswer, error) {
	answer := &replayAnswer{Placements: []placementVerdict{}}
	for _, each := range asked.Drains {
		pods, err := w.evict(each)
		if err != nil {
			return nil, err
		}
		for i, wanted := range each.Placements {
			refused, err := w.move(pods[i], wanted.Node)
			if err != nil {
				return nil, err
			}
			answer.Placements = append(answer.Placements, placementVerdict{placement: wanted, Drained: each.Node, Refused: refused})
		}
		if each.Remove {
			w.removeNode(each.Node)
		}
	}
	return answer, nil
}

// evict taints the node and removes all pods of the placements from it. It returns the pods in order.
func (w *world) evict(each drain) ([]*v1.Pod, error) {
	if err := w.taint(each.Node, each.Taint); err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, 0, len(each.Placements))
	for _, wanted := range each.Placements {
		pod, err := w.pod(wanted.Pod)
		if err != nil {
			return nil, err
		}
		if pod.Spec.NodeName != each.Node || !w.remove(pod) {
			return nil, fmt.Errorf("pod %s is on node %q, not on %q", wanted.Pod, pod.Spec.NodeName, each.Node)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

func (w *world) taint(node string, taint *v1.Taint) error {
	info, err := w.node(node)
	if err != nil || taint == nil {
		return err
	}
	tainted := info.Node().DeepCopy()
	tainted.Spec.Taints = append(tainted.Spec.Taints, *taint)
	w.replaceNode(tainted)
	return nil
}

// move places the pod on the node if all plugins accept it. It reserves volumes and devices like the scheduler before it
// binds a pod.
func (w *world) move(pod *v1.Pod, node string) ([]refusal, error) {
	info, err := w.node(node)
	if err != nil {
		return nil, err
	}
	again := w.recreated(pod)
	frame, err := w.frameOf(again)
	if err != nil {
		return nil, err
	}
	if refused := w.reserve(frame, again, info); len(refused) > 0 {
		return refused, nil
	}
	w.bind(again, info.Node())
	w.place(again)
	w.byName[podName(again)] = again
	return []refusal{}, nil
}

func (w *world) reserve(f *frame, pod *v1.Pod, info *framework.NodeInfo) []refusal {
	for _, plugin := range f.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(w.ctx, pod); !status.IsSuccess() {
			return []refusal{refusalOf(plugin.Name(), status)}
		}
	}
	state := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(w.ctx, state, pod); !status.IsSuccess() {
		return []refusal{refusalOf(status.Plugin(), status)}
	}
	if status := f.RunFilterPlugins(w.ctx, state, pod, info); !status.IsSuccess() {
		return []refusal{refusalOf(status.Plugin(), status)}
	}
	if status := f.RunReservePluginsReserve(w.ctx, state, pod, info.Node().Name); !status.IsSuccess() {
		return []refusal{refusalOf(status.Plugin(), status)}
	}
	return nil
}
