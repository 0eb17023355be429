package main

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// nodeInfos is a SharedLister of NodeInfos that change when pods are placed and removed. The embedded interface is nil:
// a plugin that asks for pod groups panics, and the answer reports it.
type nodeInfos struct {
	sharedLister
	list         []fwk.NodeInfo
	byNode       map[string]*framework.NodeInfo
	usedClaims   map[string]int
	affinity     nodeSubset
	antiAffinity nodeSubset
}

// nodeSubset is the list of the nodes that meet a condition. It is rebuilt when a node enters or leaves it.
type nodeSubset struct {
	members sets.Set[string]
	list    []fwk.NodeInfo
	stale   bool
}

func (s *nodeSubset) set(node string, member bool) {
	if s.members.Has(node) == member {
		return
	}
	s.stale = true
	if member {
		s.members.Insert(node)
	} else {
		s.members.Delete(node)
	}
}

func (s *nodeSubset) of(all []fwk.NodeInfo) []fwk.NodeInfo {
	if s.stale {
		s.list = nil
		for _, info := range all {
			if s.members.Has(info.Node().Name) {
				s.list = append(s.list, info)
			}
		}
		s.stale = false
	}
	return s.list
}

func newNodeInfos(nodes []*v1.Node) *nodeInfos {
	n := &nodeInfos{
		byNode:       make(map[string]*framework.NodeInfo, len(nodes)),
		usedClaims:   map[string]int{},
		affinity:     nodeSubset{members: sets.New[string]()},
		antiAffinity: nodeSubset{members: sets.New[string]()},
	}
	images := imageNodes(nodes)
	for _, node := range nodes {
		if n.byNode[node.Name] != nil {
			continue
		}
		info := framework.NewNodeInfo()
		info.SetNode(node)
		info.ImageStates = imageStates(node, images)
		n.byNode[node.Name] = info
		n.list = append(n.list, info)
	}
	return n
}

func imageNodes(nodes []*v1.Node) map[string]sets.Set[string] {
	holders := map[string]sets.Set[string]{}
	for _, node := range nodes {
		for _, image := range node.Status.Images {
			for _, name := range image.Names {
				if holders[name] == nil {
					holders[name] = sets.New[string]()
				}
				holders[name].Insert(node.Name)
			}
		}
	}
	return holders
}

func imageStates(node *v1.Node, holders map[string]sets.Set[string]) map[string]*fwk.ImageStateSummary {
	states := map[string]*fwk.ImageStateSummary{}
	for _, image := range node.Status.Images {
		for _, name := range image.Names {
			states[name] = &fwk.ImageStateSummary{Size: image.SizeBytes, NumNodes: holders[name].Len()}
		}
	}
	return states
}

// place adds the pod to its node. A pod on a node that is not in the snapshot is ignored.
func (n *nodeInfos) place(pod *v1.Pod) {
	info := n.byNode[pod.Spec.NodeName]
	if info == nil {
		return
	}
	info.AddPod(pod)
	n.changed(info, pod, +1)
}

// remove removes the pod from its node, if it was placed.
func (n *nodeInfos) remove(pod *v1.Pod) bool {
	info := n.byNode[pod.Spec.NodeName]
	if info == nil || info.RemovePod(klog.Background(), pod) != nil {
		return false
	}
	info.UsedPorts = takenPorts(info.Pods)
	n.changed(info, pod, -1)
	return true
}

// takenPorts counts the host ports of all pods on a node. NodeInfo does not count them: when one of two pods with the
// same port is removed, it treats the port as free until it is rebuilt.
func takenPorts(pods []fwk.PodInfo) fwk.HostPortInfo {
	taken := fwk.HostPortInfo{}
	for _, pod := range pods {
		for _, port := range util.GetHostPorts(pod.GetPod()) {
			taken.Add(port.HostIP, string(port.Protocol), port.HostPort)
		}
	}
	return taken
}

func (n *nodeInfos) changed(info *framework.NodeInfo, pod *v1.Pod, sign int) {
	name := info.Node().Name
	n.affinity.set(name, len(info.PodsWithAffinity) > 0)
	n.antiAffinity.set(name, len(info.PodsWithRequiredAntiAffinity) > 0)
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			n.usedClaims[framework.GetNamespacedName(pod.Namespace, volume.PersistentVolumeClaim.ClaimName)] += sign
		}
	}
}

// without removes the pod from its node as if it had never been placed, and returns a function that undoes this. Unlike
// RemovePod, it keeps the order of the other pods: a plugin that fails because of one of them reports the first.
func (n *nodeInfos) without(pod *v1.Pod) (restore func()) {
	before := n.byNode[pod.Spec.NodeName]
	if before == nil || !countsAsScheduled(pod) {
		return func() {}
	}
	after := framework.NewNodeInfo()
	after.SetNode(before.Node())
	after.ImageStates = before.ImageStates
	for _, other := range before.Pods {
		if other.GetPod() != pod {
			after.AddPodInfo(other)
		}
	}
	n.exchange(before, after)
	n.changed(after, pod, -1)
	return func() {
		n.exchange(after, before)
		n.changed(before, pod, +1)
	}
}

func (n *nodeInfos) exchange(old, other *framework.NodeInfo) {
	n.byNode[other.Node().Name] = other
	for _, list := range [][]fwk.NodeInfo{n.list, n.affinity.list, n.antiAffinity.list} {
		if at := slices.Index(list, fwk.NodeInfo(old)); at >= 0 {
			list[at] = other
		}
	}
}

// replaceNode replaces the node with the same name by a changed one.
func (n *nodeInfos) replaceNode(node *v1.Node) { n.byNode[node.Name].SetNode(node) }

// removeNode removes a node and the pods on it.
func (n *nodeInfos) removeNode(name string) {
	info := n.byNode[name]
	if info == nil {
		return
	}
	for _, pod := range append([]fwk.PodInfo{}, info.Pods...) {
		n.remove(pod.GetPod())
	}
	delete(n.byNode, name)
	kept := n.list[:0]
	for _, other := range n.list {
		if other.Node().Name != name {
			kept = append(kept, other)
		}
	}
	n.list = kept
}

func (n *nodeInfos) node(name string) (*framework.NodeInfo, error) {
	info := n.byNode[name]
	if info == nil {
		return nil, fmt.Errorf("node %q is not in the snapshot", name)
	}
	return info, nil
}

func (n *nodeInfos) NodeInfos() nodeInfoLister       { return n }
func (n *nodeInfos) StorageInfos() storageInfoLister { return n }
func (n *nodeInfos) List() ([]fwk.NodeInfo, error)   { return n.list, nil }
func (n *nodeInfos) IsPVCUsedByPods(key string) bool { return n.usedClaims[key] > 0 }

func (n *nodeInfos) Get(name string) (fwk.NodeInfo, error) {
	info, err := n.node(name)
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (n *nodeInfos) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) {
	return n.affinity.of(n.list), nil
}

func (n *nodeInfos) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return n.antiAffinity.of(n.list), nil
}

// HavePodsWithRequiredNonHostScopedAntiAffinityList is read only with the gate InterPodAffinityHostnameFastPath, which is
// off.
func (n *nodeInfos) HavePodsWithRequiredNonHostScopedAntiAffinityList() ([]fwk.NodeInfo, error) {
	return n.antiAffinity.of(n.list), nil
}
