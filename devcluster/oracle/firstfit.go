package main

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type firstFitRequest struct {
	OnDemand []string            `json:"ondemand"`
	Spot     []string            `json:"spot"`
	Movable  map[string][]string `json:"movable"`
	Taint    *v1.Taint           `json:"taint"`
}

// nodePlan is the result for one on-demand node: either all movable pods are placed, or Unplaced is the first that does
// not fit.
type nodePlan struct {
	Node       string      `json:"node"`
	Placements []placement `json:"placements"`
	Unplaced   *string     `json:"unplaced"`
}

type firstFitAnswer struct {
	Nodes []nodePlan `json:"nodes"`
	// Seconds is the time of the planning, without reading the snapshot and creating the framework.
	Seconds     float64 `json:"seconds"`
	FilterCalls int     `json:"filter_calls"`
	PodsAsked   int     `json:"pods_asked"`
}

// firstFit plans each on-demand node independently. It places the pods in the given order, each on the first spot node
// in the given order that all plugins accept. PreFilter runs once per pod, Filter once per node.
func firstFit(w *world, asked firstFitRequest) (*firstFitAnswer, error) {
	spot := make([]*framework.NodeInfo, 0, len(asked.Spot))
	for _, name := range asked.Spot {
		info, err := w.node(name)
		if err != nil {
			return nil, err
		}
		spot = append(spot, info)
	}
	answer := &firstFitAnswer{Nodes: make([]nodePlan, 0, len(asked.OnDemand))}
	start := time.Now()
	for _, node := range asked.OnDemand {
		plan, err := w.planNode(node, spot, asked, answer)
		if err != nil {
			return nil, err
		}
		answer.Nodes = append(answer.Nodes, *plan)
	}
	answer.Seconds = time.Since(start).Seconds()
	return answer, nil
}

func (w *world) planNode(node string, spot []*framework.NodeInfo, asked firstFitRequest, answer *firstFitAnswer) (*nodePlan, error) {
	info, err := w.node(node)
	if err != nil {
		return nil, err
	}
	untainted := info.Node()
	leaving := drain{Node: node, Taint: asked.Taint}
	for _, name := range asked.Movable[node] {
		leaving.Placements = append(leaving.Placements, placement{Pod: name})
	}
	pods, err := w.evict(leaving)
	if err != nil {
		return nil, err
	}
	plan := &nodePlan{Node: node, Placements: []placement{}}
	moved := w.fill(pods, spot, plan, answer)
	for _, pod := range moved {
		w.remove(pod)
	}
	for _, pod := range pods {
		w.place(pod)
	}
	w.replaceNode(untainted)
	return plan, nil
}

func (w *world) fill(pods []*v1.Pod, spot []*framework.NodeInfo, plan *nodePlan, answer *firstFitAnswer) []*v1.Pod {
	moved := make([]*v1.Pod, 0, len(pods))
	for _, pod := range pods {
		again := w.recreated(pod)
		target := w.firstNode(again, spot, answer)
		if target == "" {
			name := podName(pod)
			plan.Unplaced = &name
			return moved
		}
		w.bind(again, w.byNode[target].Node())
		w.place(again)
		moved = append(moved, again)
		plan.Placements = append(plan.Placements, placement{Pod: podName(pod), Node: target})
	}
	return moved
}

func (w *world) firstNode(pod *v1.Pod, spot []*framework.NodeInfo, answer *firstFitAnswer) string {
	answer.PodsAsked++
	f, err := w.frameOf(pod)
	if err != nil {
		return ""
	}
	for _, plugin := range f.PreEnqueuePlugins() {
		if !plugin.PreEnqueue(w.ctx, pod).IsSuccess() {
			return ""
		}
	}
	state := framework.NewCycleState()
	result, status, _ := f.RunPreFilterPlugins(w.ctx, state, pod)
	if !status.IsSuccess() {
		return ""
	}
	for _, info := range spot {
		name := info.Node().Name
		if !result.AllNodes() && !result.NodeNames.Has(name) {
			continue
		}
		answer.FilterCalls++
		if f.RunFilterPlugins(w.ctx, state, pod, info).IsSuccess() {
			return name
		}
	}
	return ""
}
