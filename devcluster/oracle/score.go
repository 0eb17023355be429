package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// scores are the weighted and normalized scores of the default Score plugins for the nodes that accept the pod.
type scores struct {
	Pod   string                      `json:"pod"`
	Nodes map[string]map[string]int64 `json:"nodes"`
	Total map[string]int64            `json:"total"`
}

type scoreAnswer struct {
	Scores []scores `json:"scores"`
}

func score(w *world, asked explainRequest) (*scoreAnswer, error) {
	pods, nodes, err := w.selection(asked)
	if err != nil {
		return nil, err
	}
	answer := &scoreAnswer{Scores: make([]scores, 0, len(pods))}
	for _, pod := range pods {
		restore := w.without(pod)
		found, err := w.scorePod(w.recreated(pod), nodes)
		restore()
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", podName(pod), err)
		}
		answer.Scores = append(answer.Scores, *found)
	}
	return answer, nil
}

func (w *world) scorePod(pod *v1.Pod, nodes []string) (*scores, error) {
	found := &scores{Pod: podName(pod), Nodes: map[string]map[string]int64{}, Total: map[string]int64{}}
	f, err := w.frameOf(pod)
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(w.ctx, state, pod); !status.IsSuccess() {
		return found, nil
	}
	feasible := []fwk.NodeInfo{}
	for _, node := range nodes {
		info := w.byNode[node]
		if f.RunFilterPlugins(w.ctx, state, pod, info).IsSuccess() {
			feasible = append(feasible, info)
		}
	}
	if len(feasible) == 0 {
		return found, nil
	}
	if status := f.RunPreScorePlugins(w.ctx, state, pod, feasible); !status.IsSuccess() {
		return nil, status.AsError()
	}
	ranked, status := f.RunScorePlugins(w.ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	for _, node := range ranked {
		found.Total[node.Name] = node.TotalScore
		found.Nodes[node.Name] = map[string]int64{}
		for _, each := range node.Scores {
			found.Nodes[node.Name][each.Name] = each.Score
		}
	}
	return found, nil
}
