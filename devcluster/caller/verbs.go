package main

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"google.golang.org/protobuf/proto"
)

// group has the fields of a node group that are used.
type group struct {
	id       string
	min, max int
}

// instance is a machine. Its states are those of the protocol: 0 unknown, 1 running, 2 creating, 3 deleting.
type instance struct {
	id    string
	state int64
	code  string
}

func (n node) wire() fields {
	return fields{"providerID": n.ProviderID, "name": n.Name, "labels": n.Labels, "annotations": n.Notes}
}

func (c *client) refresh() error {
	_, err := c.ask("Refresh", "", message("Empty", nil), "Empty")
	return err
}

func (c *client) groups() ([]group, error) {
	answer, err := c.ask("NodeGroups", "", message("Empty", nil), "NodeGroups")
	if err != nil {
		return nil, err
	}
	list := get(answer, "nodeGroups").List()
	groups := make([]group, list.Len())
	for at := range groups {
		entry := list.Get(at).Message()
		groups[at] = group{get(entry, "id").String(), int(get(entry, "minSize").Int()), int(get(entry, "maxSize").Int())}
	}
	return groups, nil
}

// groupOf returns the ID of the node's group, or "" if the node is not managed.
func (c *client) groupOf(of node) (string, error) {
	answer, err := c.ask("NodeGroupForNode", of.Name, message("OfNode", fields{"node": of.wire()}), "GroupOfNode")
	if err != nil {
		return "", err
	}
	return get(answer, "nodeGroup", "id").String(), nil
}

func (c *client) size(group string) (int, error) {
	answer, err := c.ask("NodeGroupTargetSize", group, message("OfGroup", fields{"id": group}), "Size")
	if err != nil {
		return 0, err
	}
	return int(get(answer, "targetSize").Int()), nil
}

func (c *client) instances(group string) ([]instance, error) {
	answer, err := c.ask("NodeGroupNodes", group, message("OfGroup", fields{"id": group}), "Instances")
	if err != nil {
		return nil, err
	}
	list := get(answer, "instances").List()
	instances := make([]instance, list.Len())
	for at := range instances {
		entry := list.Get(at).Message()
		instances[at] = instance{
			id:    get(entry, "id").String(),
			state: get(entry, "status", "instanceState").Int(),
			code:  get(entry, "status", "errorInfo", "errorCode").String(),
		}
	}
	return instances, nil
}

func (c *client) increase(group string, delta int32) error {
	_, err := c.ask("NodeGroupIncreaseSize", group, message("Change", fields{"id": group, "delta": delta}), "Empty")
	return err
}

func (c *client) decrease(group string, delta int32) error {
	request := message("Change", fields{"id": group, "delta": delta})
	_, err := c.ask("NodeGroupDecreaseTargetSize", group, request, "Empty")
	return err
}

func (c *client) deleteNodes(group string, nodes ...node) error {
	wire := make([]fields, len(nodes))
	for at, member := range nodes {
		wire[at] = member.wire()
	}
	request := message("Deletion", fields{"id": group, "nodes": wire})
	_, err := c.ask("NodeGroupDeleteNodes", nodes[0].Name, request, "Empty")
	return err
}

// template returns the template of the group, or nil if the provider has none.
func (c *client) template(group string) (*corev1.Node, error) {
	kind, field := "NewTemplate", "nodeBytes"
	if c.generation != "New" {
		kind, field = "OldTemplate", "nodeInfo"
	}
	answer, err := c.ask("NodeGroupTemplateNodeInfo", group, message("OfGroup", fields{"id": group}), kind)
	if unimplemented(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	raw := get(answer, field)
	var encoded []byte
	if c.generation == "New" {
		encoded = raw.Bytes()
	} else if encoded, err = proto.Marshal(raw.Message().Interface()); err != nil {
		return nil, err
	}
	if len(encoded) == 0 {
		return nil, errors.New("the template is empty, which makes Cluster Autoscaler dereference nil")
	}
	node := &corev1.Node{}
	return node, node.Unmarshal(encoded)
}

// options returns whether the provider sets options. These replace all options of the caller.
func (c *client) options(group string) (bool, error) {
	defaults := fields{"threshold": 0.5, "gpu": 0.5}
	for name, length := range map[string]time.Duration{"unneeded": 10 * time.Minute, "unready": 20 * time.Minute, "provision": 15 * time.Minute} {
		if c.generation == "New" {
			defaults[name] = fields{"seconds": int64(length.Seconds())}
		} else if c.generation == "Old" || name != "provision" {
			defaults[name] = encoded(&metav1.Duration{Duration: length})
		}
	}
	request := message(c.generation+"OptionsOf", fields{"id": group, "defaults": defaults})
	answer, err := c.ask("NodeGroupGetOptions", group, request, c.generation+"OptionsAnswer")
	if unimplemented(err) && c.generation != "Oldest" {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return has(answer, "options"), nil
}

// nodePrice returns the price of the next hour, or 0 if the provider knows no prices.
func (c *client) nodePrice(of node) (float64, error) {
	return c.price("PricingNodePrice", of.Name, "NodePrice", fields{"node": of.wire()})
}

func (c *client) podPrice(cpu string) (float64, error) {
	wanted := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "dummy", Namespace: "kube-system"}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: wanted}}}
	field := "pod"
	if c.generation == "New" {
		field = "pod_bytes"
	}
	return c.price("PricingPodPrice", pod.Name, "PodPrice", fields{field: encoded(pod)})
}

func (c *client) price(rpc, about, kind string, request fields) (float64, error) {
	start := time.Now()
	end := start.Add(time.Hour)
	if c.generation == "New" {
		request["startTimestamp"] = fields{"seconds": start.Unix(), "nanos": int32(start.Nanosecond())}
		request["endTimestamp"] = fields{"seconds": end.Unix(), "nanos": int32(end.Nanosecond())}
		kind = "New" + kind
	} else {
		request["startTime"] = encoded(&metav1.Time{Time: start})
		request["endTime"] = encoded(&metav1.Time{Time: end})
		kind = "Old" + kind
	}
	answer, err := c.ask(rpc, about, message(kind, request), "Price")
	if unimplemented(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	price := get(answer, "price").Float()
	if price <= 0 {
		return 0, fmt.Errorf("%s: %g for an hour", rpc, price)
	}
	return price, nil
}

// gpus requests the GPU label and the available GPU types.
func (c *client) gpus() error {
	if _, err := c.ask("GPULabel", "", message("Empty", nil), "Label"); err != nil {
		return err
	}
	_, err := c.ask("GetAvailableGPUTypes", "", message("Empty", nil), "Types")
	return err
}

func (c *client) cleanup() error {
	_, err := c.ask("Cleanup", "", message("Empty", nil), "Empty")
	return err
}

func encoded(object interface{ Marshal() ([]byte, error) }) []byte {
	raw, err := object.Marshal()
	if err != nil {
		panic(err)
	}
	return raw
}
