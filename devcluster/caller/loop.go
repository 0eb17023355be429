package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

const (
	running  = 1
	creating = 2
	deleting = 3

	// what Cluster Autoscaler writes on its stand-in for a machine without a Node
	fakeNodeReason = "k8s.io/cluster-autoscaler/fake-node-reason"
	pause          = 200 * time.Millisecond // between two rounds
)

// autoscaler remembers what Cluster Autoscaler remembers between two rounds.
type autoscaler struct {
	*client
	given    settings
	patience time.Duration
	group    group
	target   int
	seen     map[string]instance // of the group, by provider ID
	made     []string            // provider IDs of machines that came by a scale-up
}

// run is a life: start, scale-up, a machine that never joins, an order that is not fulfilled, scale-down.
func (a *autoscaler) run() error {
	for _, part := range []func() error{a.start, a.scaleUp, a.removeUnregistered, a.fixSize, a.scaleDown, a.end} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// start asks for the group of every node, to clean up taints of an earlier life.
func (a *autoscaler) start() error {
	a.step = "start"
	for _, one := range append(slices.Clone(a.given.Nodes), a.given.Foreign) {
		if _, err := a.groupOf(one); err != nil {
			return err
		}
	}
	return a.gpus()
}

// observe is the first half of each round.
func (a *autoscaler) observe() error {
	if err := a.refresh(); err != nil {
		return err
	}
	groups, err := a.groups()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(groups, func(one group) bool { return one.id == a.given.Group })
	if at < 0 {
		return fmt.Errorf("no group %s among %v", a.given.Group, groups)
	}
	if a.group = groups[at]; a.group.min < 0 || a.group.max < a.group.min {
		return fmt.Errorf("the group's sizes are %v", a.group)
	}
	if err := a.membership(); err != nil {
		return err
	}
	return a.sizes()
}

// membership: every node of the group is in it, and the other node in none.
func (a *autoscaler) membership() error {
	for _, one := range a.given.Nodes {
		found, err := a.groupOf(one)
		if err != nil {
			return err
		}
		if found != a.group.id {
			return fmt.Errorf("node %s is in the group %q", one.Name, found)
		}
	}
	found, err := a.groupOf(a.given.Foreign)
	if err == nil && found != "" {
		err = fmt.Errorf("the node of elsewhere is in the group %q", found)
	}
	return err
}

// sizes: machines are told from machines without a Node by their provider IDs.
func (a *autoscaler) sizes() error {
	target, err := a.size(a.group.id)
	if err != nil {
		return err
	}
	instances, err := a.instances(a.group.id)
	if err != nil {
		return err
	}
	a.target, a.seen = target, map[string]instance{}
	for _, one := range instances {
		if one.id == "" || a.seen[one.id].id != "" {
			return fmt.Errorf("an instance without an id of its own: %v", one)
		}
		a.seen[one.id] = one
	}
	return nil
}

// registered: each node's machine is listed and runs.
func (a *autoscaler) registered() error {
	for _, one := range a.given.Nodes {
		if machine := a.seen[one.ProviderID]; machine.state != running {
			return fmt.Errorf("the machine of node %s (%s) is not among the running: %v", one.Name, one.ProviderID, a.seen)
		}
	}
	return nil
}

// unregistered are the machines that no node of the cluster belongs to.
func (a *autoscaler) unregistered() []string {
	known := map[string]bool{}
	for _, one := range a.given.Nodes {
		known[one.ProviderID] = true
	}
	left := slices.Sorted(maps.Keys(a.seen))
	return slices.DeleteFunc(left, func(id string) bool { return known[id] || a.seen[id].state == deleting })
}

func (a *autoscaler) scaleUp() error {
	a.step = "scale-up"
	if err := errors.Join(a.observe(), a.registered()); err != nil {
		return err
	}
	before := a.target
	if before+1 > a.group.max {
		return fmt.Errorf("no room for a machine: %d of %d", before, a.group.max)
	}
	template, err := a.template(a.group.id)
	if err != nil {
		return err
	}
	if err := usable(template); err != nil {
		return err
	}
	if _, err := a.size(a.group.id); err != nil {
		return err
	}
	if err := a.judge(template); err != nil {
		return err
	}
	if err := a.increase(a.group.id, 1); err != nil {
		return err
	}
	a.step = "scale-up, later rounds"
	came := func() bool { return a.target == before+1 && len(a.unregistered()) == 1 }
	if err := a.until("a machine more", came); err != nil {
		return err
	}
	a.made = append(a.made, a.unregistered()...)
	return nil
}

// usable: the scheduler's simulation needs a Ready node with room.
func usable(template *corev1.Node) error {
	if template == nil {
		return nil
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		room, there := template.Status.Allocatable[name]
		whole := template.Status.Capacity[name]
		if !there || room.Sign() <= 0 || room.Cmp(whole) > 0 {
			return fmt.Errorf("the template's %s is %s of %s", name, room.String(), whole.String())
		}
	}
	ready := func(one corev1.NodeCondition) bool {
		return one.Type == corev1.NodeReady && one.Status == corev1.ConditionTrue
	}
	if template.Name == "" || !slices.ContainsFunc(template.Status.Conditions, ready) {
		return fmt.Errorf("the template %q is not Ready: %v", template.Name, template.Status.Conditions)
	}
	return nil
}

// judge is the choice among groups: options, and the prices of a dummy pod and of the node to come.
func (a *autoscaler) judge(template *corev1.Node) error {
	if _, err := a.options(a.group.id); err != nil {
		return err
	}
	if template == nil {
		return nil
	}
	if _, err := a.podPrice("500m"); err != nil {
		return err
	}
	// its name is all of it that the price expander's nodes have beside the template's labels
	_, err := a.nodePrice(node{Name: "template-node-for-" + a.group.id + "-123", Labels: template.Labels})
	return err
}

// removeUnregistered: the machine without a Node is deleted by a stand-in of which only the provider ID is known.
func (a *autoscaler) removeUnregistered() error {
	a.step = "long unregistered"
	before, machine := a.target, placeholder(a.made[0])
	found, err := a.groupOf(machine)
	if err != nil {
		return err
	}
	if found != a.group.id {
		return fmt.Errorf("the machine without a Node, %s, is in the group %q", machine.Name, found)
	}
	if _, err := a.options(found); err != nil {
		return err
	}
	if _, err := a.size(found); err != nil {
		return err
	}
	if err := a.deleteNodes(found, machine); err != nil {
		return err
	}
	a.step = "long unregistered, later rounds"
	return a.until("it to go", func() bool { return a.target == before-1 && len(a.unregistered()) == 0 })
}

func placeholder(id string) node {
	return node{Name: id, ProviderID: id, Notes: map[string]string{fakeNodeReason: "unregistered"}}
}

// fixSize: an order that is not fulfilled in time is taken back.
func (a *autoscaler) fixSize() error {
	a.step = "size fix"
	before := a.target
	if err := a.increase(a.group.id, 1); err != nil {
		return err
	}
	if err := a.observe(); err != nil {
		return err
	}
	if a.target != before+1 {
		return fmt.Errorf("the target is %d after an increase of %d by 1", a.target, before)
	}
	a.made = append(a.made, a.unregistered()...)
	if err := a.decrease(a.group.id, -1); err != nil {
		return err
	}
	a.step = "size fix, later rounds"
	return a.until("the old size", func() bool { return a.target == before && len(a.unregistered()) == 0 })
}

func (a *autoscaler) scaleDown() error {
	a.step = "scale-down"
	if err := errors.Join(a.observe(), a.registered()); err != nil {
		return err
	}
	before, victim := a.target, a.given.Nodes[0]
	if err := a.choose(); err != nil {
		return err
	}
	found, err := a.groupOf(victim)
	if err != nil {
		return err
	}
	if err := a.deleteNodes(found, victim); err != nil {
		return err
	}
	if err := a.gpus(); err != nil {
		return err
	}
	if _, err := a.template(a.group.id); err != nil {
		return err
	}
	a.step = "scale-down, later rounds"
	a.given.Nodes = a.given.Nodes[1:] // the Node goes with the machine
	gone := func() bool {
		machine, listed := a.seen[victim.ProviderID]
		return a.target == before-1 && (!listed || machine.state == deleting)
	}
	if err := a.until("the machine to go", gone); err != nil {
		return err
	}
	a.step = "scale-down, repeated"
	return a.deleteNodes(found, victim)
}

// choose is all that is asked before a node is tainted, and before it is deleted.
func (a *autoscaler) choose() error {
	if size, err := a.size(a.group.id); err != nil || size <= a.group.min {
		return errors.Join(err, fmt.Errorf("nothing to remove: %d, the minimum is %d", size, a.group.min))
	}
	for _, one := range a.given.Nodes {
		if _, err := a.groupOf(one); err != nil {
			return err
		}
	}
	for range 3 { // eligibility and times; budgets; actuation
		if _, err := a.options(a.group.id); err != nil {
			return err
		}
	}
	_, err := a.size(a.group.id)
	return err
}

// end: a deletion that fails is a refusal that names why; then the process says that it goes.
func (a *autoscaler) end() error {
	a.step = "end"
	err := a.deleteNodes(a.group.id, a.given.Foreign)
	if code := status.Code(errors.Unwrap(err)); code != codes.InvalidArgument {
		return fmt.Errorf("the deletion of a node of elsewhere was answered %v: %v", code, err)
	}
	return a.cleanup()
}

// until observes round after round.
func (a *autoscaler) until(what string, done func() bool) error {
	for end := time.Now().Add(a.patience); ; time.Sleep(pause) {
		if err := a.observe(); err != nil {
			return err
		}
		if done() {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for %s: target %d, instances %v", a.patience, what, a.target, a.seen)
		}
	}
}
