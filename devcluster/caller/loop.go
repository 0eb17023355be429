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

	// the annotation of Cluster Autoscaler's placeholder for a machine without a Node
	fakeNodeReason = "k8s.io/cluster-autoscaler/fake-node-reason"
	pause          = 200 * time.Millisecond // between two rounds
)

// autoscaler is the state that Cluster Autoscaler keeps between two rounds.
type autoscaler struct {
	*client
	given    settings
	patience time.Duration
	group    group
	target   int
	seen     map[string]instance // of the group, by provider ID
	made     []string            // provider IDs of machines created by a scale-up
}

// run performs one run: start, scale-up, a machine that never joins, an order that is not completed, scale-down.
func (a *autoscaler) run() error {
	for _, part := range []func() error{a.start, a.scaleUp, a.removeUnregistered, a.fixSize, a.scaleDown, a.end} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// start requests the group of every node, as Cluster Autoscaler does to remove taints of an earlier process.
func (a *autoscaler) start() error {
	a.step = "start"
	for _, member := range append(slices.Clone(a.given.Nodes), a.given.Foreign) {
		if _, err := a.groupOf(member); err != nil {
			return err
		}
	}
	return a.gpus()
}

// observe performs the first half of a round: it reads the groups and their sizes.
func (a *autoscaler) observe() error {
	if err := a.refresh(); err != nil {
		return err
	}
	groups, err := a.groups()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(groups, func(entry group) bool { return entry.id == a.given.Group })
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

// membership checks that the group's nodes belong to it, and that the foreign node belongs to no group.
func (a *autoscaler) membership() error {
	for _, member := range a.given.Nodes {
		groupID, err := a.groupOf(member)
		if err != nil {
			return err
		}
		if groupID != a.group.id {
			return fmt.Errorf("node %s is in the group %q", member.Name, groupID)
		}
	}
	groupID, err := a.groupOf(a.given.Foreign)
	if err == nil && groupID != "" {
		err = fmt.Errorf("the foreign node is in the group %q", groupID)
	}
	return err
}

// sizes reads the target size and the instances. Their provider IDs must be unique.
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
	for _, entry := range instances {
		if entry.id == "" || a.seen[entry.id].id != "" {
			return fmt.Errorf("an instance without a unique ID: %v", entry)
		}
		a.seen[entry.id] = entry
	}
	return nil
}

// registered checks that the machine of each node is listed as running.
func (a *autoscaler) registered() error {
	for _, member := range a.given.Nodes {
		if machine := a.seen[member.ProviderID]; machine.state != running {
			return fmt.Errorf("the machine of node %s (%s) is not listed as running: %v", member.Name, member.ProviderID, a.seen)
		}
	}
	return nil
}

// unregistered returns the provider IDs of the machines without a node.
func (a *autoscaler) unregistered() []string {
	known := map[string]bool{}
	for _, member := range a.given.Nodes {
		known[member.ProviderID] = true
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
	if err := a.until("another machine", came); err != nil {
		return err
	}
	a.made = append(a.made, a.unregistered()...)
	return nil
}

// usable checks that the template is a Ready node with free resources, as the scheduler's simulation requires.
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
	ready := func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	}
	if template.Name == "" || !slices.ContainsFunc(template.Status.Conditions, ready) {
		return fmt.Errorf("the template %q is not Ready: %v", template.Name, template.Status.Conditions)
	}
	return nil
}

// judge makes the calls by which Cluster Autoscaler compares groups: options, and the prices of a sample pod and of the
// next node.
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
	// The price expander's nodes have only a name and the template's labels.
	_, err := a.nodePrice(node{Name: "template-node-for-" + a.group.id + "-123", Labels: template.Labels})
	return err
}

// removeUnregistered deletes the machine without a Node, by a placeholder with its provider ID.
func (a *autoscaler) removeUnregistered() error {
	a.step = "long unregistered"
	before, machine := a.target, placeholder(a.made[0])
	groupID, err := a.groupOf(machine)
	if err != nil {
		return err
	}
	if groupID != a.group.id {
		return fmt.Errorf("the machine without a Node, %s, is in the group %q", machine.Name, groupID)
	}
	if _, err := a.options(groupID); err != nil {
		return err
	}
	if _, err := a.size(groupID); err != nil {
		return err
	}
	if err := a.deleteNodes(groupID, machine); err != nil {
		return err
	}
	a.step = "long unregistered, later rounds"
	return a.until("the machine to disappear", func() bool { return a.target == before-1 && len(a.unregistered()) == 0 })
}

func placeholder(id string) node {
	return node{Name: id, ProviderID: id, Notes: map[string]string{fakeNodeReason: "unregistered"}}
}

// fixSize reverts an increase that was not completed in time.
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
	groupID, err := a.groupOf(victim)
	if err != nil {
		return err
	}
	if err := a.deleteNodes(groupID, victim); err != nil {
		return err
	}
	if err := a.gpus(); err != nil {
		return err
	}
	if _, err := a.template(a.group.id); err != nil {
		return err
	}
	a.step = "scale-down, later rounds"
	a.given.Nodes = a.given.Nodes[1:] // the Node is deleted with its machine
	gone := func() bool {
		machine, listed := a.seen[victim.ProviderID]
		return a.target == before-1 && (!listed || machine.state == deleting)
	}
	if err := a.until("the machine to terminate", gone); err != nil {
		return err
	}
	a.step = "scale-down, repeated"
	return a.deleteNodes(groupID, victim)
}

// choose makes the calls before a node is tainted and before it is deleted.
func (a *autoscaler) choose() error {
	if size, err := a.size(a.group.id); err != nil || size <= a.group.min {
		return errors.Join(err, fmt.Errorf("nothing to remove: %d, the minimum is %d", size, a.group.min))
	}
	for _, member := range a.given.Nodes {
		if _, err := a.groupOf(member); err != nil {
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

// end checks that the deletion of a foreign node is rejected, and then calls Cleanup.
func (a *autoscaler) end() error {
	a.step = "end"
	err := a.deleteNodes(a.group.id, a.given.Foreign)
	if code := status.Code(errors.Unwrap(err)); code != codes.InvalidArgument {
		return fmt.Errorf("the response to the deletion of a foreign node is %v: %v", code, err)
	}
	return a.cleanup()
}

// until observes the groups once per round until done returns true. It fails after the configured patience.
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
