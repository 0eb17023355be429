package main

import (
	"fmt"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type explainRequest struct {
	Pods  []string `json:"pods"`
	Nodes []string `json:"nodes"`
	// All evaluates every plugin, instead of stopping at the first that rejects.
	All bool `json:"all"`
}

// refusal is the rejection of one plugin. Code is the framework's name of the status: Unschedulable,
// UnschedulableAndUnresolvable, or Error if the plugin failed.
type refusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
	Code    string   `json:"code"`
}

// verdict contains the rejections of one pod. Everywhere contains those of PreEnqueue and PreFilter, which apply to every
// node; the one that the scheduler would report comes first. Nodes contains, for each node, the rejections of Filter: the
// first, or all of them. Without All, Nodes is omitted if Everywhere is not empty. A node that accepts the pod has an
// empty list.
type verdict struct {
	Pod        string               `json:"pod"`
	Everywhere []refusal            `json:"everywhere"`
	Skipped    []string             `json:"skipped"`
	NodeNames  []string             `json:"node_names"`
	Nodes      map[string][]refusal `json:"nodes"`
}

type explainAnswer struct {
	Verdicts []verdict `json:"verdicts"`
}

// explain evaluates each pod as if it alone were evicted and created again.
func explain(w *world, asked explainRequest) (*explainAnswer, error) {
	pods, nodes, err := w.selection(asked)
	if err != nil {
		return nil, err
	}
	answer := &explainAnswer{Verdicts: make([]verdict, 0, len(pods))}
	for _, pod := range pods {
		restore := w.without(pod)
		found, err := w.judge(w.recreated(pod), nodes, asked.All)
		restore()
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", podName(pod), err)
		}
		answer.Verdicts = append(answer.Verdicts, *found)
	}
	return answer, nil
}

// selection returns the requested names, or all of them if none were requested.
func (w *world) selection(asked explainRequest) ([]*v1.Pod, []string, error) {
	pods := w.pods
	if asked.Pods != nil {
		pods = nil
		for _, name := range asked.Pods {
			pod, err := w.pod(name)
			if err != nil {
				return nil, nil, err
			}
			pods = append(pods, pod)
		}
	}
	names := asked.Nodes
	if names == nil {
		for _, info := range w.list {
			names = append(names, info.Node().Name)
		}
	}
	for _, name := range names {
		if _, err := w.node(name); err != nil {
			return nil, nil, err
		}
	}
	return pods, names, nil
}

func (w *world) judge(pod *v1.Pod, nodes []string, all bool) (*verdict, error) {
	frame, err := w.frameOf(pod)
	if err != nil {
		return nil, err
	}
	first := w.firstRefusals(frame, pod, nodes)
	if !all {
		return first, nil
	}
	every := w.allRefusals(frame, pod, nodes)
	every.NodeNames = first.NodeNames
	return every, agree(first, every)
}

// firstRefusals evaluates the plugins like the scheduler, which stops at the first rejection.
func (w *world) firstRefusals(f *frame, pod *v1.Pod, nodes []string) *verdict {
	found := &verdict{Pod: podName(pod), Everywhere: []refusal{}, Skipped: []string{}, Nodes: map[string][]refusal{}}
	for _, plugin := range f.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(w.ctx, pod); !status.IsSuccess() {
			found.Everywhere = append(found.Everywhere, refusalOf(plugin.Name(), status))
			return found
		}
	}
	state := framework.NewCycleState()
	result, status, _ := f.RunPreFilterPlugins(w.ctx, state, pod)
	if !status.IsSuccess() && status.Plugin() != "" {
		found.Everywhere = append(found.Everywhere, refusalOf(status.Plugin(), status))
		return found
	}
	found.Skipped = sets.List(state.GetSkipFilterPlugins())
	if !result.AllNodes() {
		found.NodeNames = sets.List(result.NodeNames)
	}
	for _, node := range nodes {
		found.Nodes[node] = []refusal{}
		if status := f.RunFilterPlugins(w.ctx, state, pod, w.byNode[node]); !status.IsSuccess() {
			found.Nodes[node] = []refusal{refusalOf(status.Plugin(), status)}
		}
	}
	return found
}

// allRefusals evaluates every plugin, regardless of the results of the others. A plugin that rejects the pod on all
// nodes is not evaluated for single nodes.
func (w *world) allRefusals(f *frame, pod *v1.Pod, nodes []string) *verdict {
	found := &verdict{Pod: podName(pod), Everywhere: []refusal{}, Skipped: []string{}, Nodes: map[string][]refusal{}}
	for _, plugin := range f.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(w.ctx, pod); !status.IsSuccess() {
			found.Everywhere = append(found.Everywhere, refusalOf(plugin.Name(), status))
		}
	}
	state := framework.NewCycleState()
	rejected := w.preFilterEach(f, state, pod, found)
	found.Everywhere = append(found.Everywhere, rejected...)
	silent := sets.New(found.Skipped...)
	for _, each := range found.Everywhere {
		silent.Insert(each.Plugin)
	}
	for _, node := range nodes {
		found.Nodes[node] = w.filterEach(f, state, pod, w.byNode[node], silent)
	}
	return found
}

func (w *world) preFilterEach(f *frame, state fwk.CycleState, pod *v1.Pod, found *verdict) []refusal {
	rejected := []refusal{}
	gated := sets.New(names(found.Everywhere)...)
	for _, enabled := range f.ListPlugins().PreFilter.Enabled {
		if gated.Has(enabled.Name) {
			continue
		}
		plugin := f.plugins[enabled.Name].(preFilterPlugin)
		_, status := plugin.PreFilter(w.ctx, state, pod, w.list)
		if status.IsSkip() {
			found.Skipped = append(found.Skipped, plugin.Name())
		} else if !status.IsSuccess() {
			rejected = append(rejected, failedIn("running PreFilter plugin %q", plugin.Name(), status))
		}
	}
	slices.Sort(found.Skipped)
	return namedFirst(rejected)
}

// namedFirst moves the rejection that the scheduler reports to the front: the first that is final, or else the last of
// the others, because each overwrites the one before it.
func namedFirst(rejected []refusal) []refusal {
	named := len(rejected) - 1
	for i, each := range rejected {
		if each.Code != fwk.Unschedulable.String() {
			named = i
			break
		}
	}
	if named <= 0 {
		return rejected
	}
	rest := slices.Delete(slices.Clone(rejected), named, named+1)
	return append([]refusal{rejected[named]}, rest...)
}

func (w *world) filterEach(f *frame, state fwk.CycleState, pod *v1.Pod, info *framework.NodeInfo, silent sets.Set[string]) []refusal {
	refused := []refusal{}
	for _, enabled := range f.ListPlugins().Filter.Enabled {
		if silent.Has(enabled.Name) {
			continue
		}
		plugin := f.plugins[enabled.Name].(filterPlugin)
		if status := plugin.Filter(w.ctx, state, pod, info); !status.IsSuccess() {
			refused = append(refused, failedIn("running %q filter plugin", plugin.Name(), status))
		}
	}
	return refused
}

// failedIn returns the framework's message for a plugin that failed.
func failedIn(where, plugin string, status *fwk.Status) refusal {
	if !status.IsRejected() {
		status = fwk.AsStatus(fmt.Errorf(where+": %w", plugin, status.AsError()))
	}
	return refusalOf(plugin, status)
}

func refusalOf(plugin string, status *fwk.Status) refusal {
	return refusal{Plugin: plugin, Reasons: status.Reasons(), Code: status.Code().String()}
}

// agree checks that both evaluations agree: the first rejection must be the first of all rejections.
func agree(first, every *verdict) error {
	if len(first.Everywhere) > 0 {
		if len(every.Everywhere) == 0 || every.Everywhere[0].Plugin != first.Everywhere[0].Plugin {
			return fmt.Errorf("the scheduler rejects with %v, its plugins one by one with %v", first.Everywhere, every.Everywhere)
		}
		return nil
	}
	for node, refused := range first.Nodes {
		all := every.Nodes[node]
		if len(all) > 1 {
			all = all[:1]
		}
		if !reflect.DeepEqual(names(refused), names(all)) {
			return fmt.Errorf("node %s: the scheduler rejects with %v, its plugins one by one with %v", node, refused, all)
		}
	}
	return nil
}

func names(refused []refusal) []string {
	plugins := make([]string, 0, len(refused))
	for _, each := range refused {
		plugins = append(plugins, each.Plugin)
	}
	return plugins
}
