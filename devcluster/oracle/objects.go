package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// objects is a snapshot: nodes and pods in list order, and all other objects for the informers.
type objects struct {
	nodes  []*v1.Node
	pods   []*v1.Pod
	others []runtime.Object
	seen   map[string]bool
}

// kinds are the kinds that the scheduler's plugins read, except nodes and pods.
var kinds = map[string]func() runtime.Object{
	"CSIDriver":             func() runtime.Object { return &storagev1.CSIDriver{} },
	"CSINode":               func() runtime.Object { return &storagev1.CSINode{} },
	"CSIStorageCapacity":    func() runtime.Object { return &storagev1.CSIStorageCapacity{} },
	"DeviceClass":           func() runtime.Object { return &resourcev1.DeviceClass{} },
	"Namespace":             func() runtime.Object { return &v1.Namespace{} },
	"PersistentVolume":      func() runtime.Object { return &v1.PersistentVolume{} },
	"PersistentVolumeClaim": func() runtime.Object { return &v1.PersistentVolumeClaim{} },
	"ReplicaSet":            func() runtime.Object { return &appsv1.ReplicaSet{} },
	"ReplicationController": func() runtime.Object { return &v1.ReplicationController{} },
	"ResourceClaim":         func() runtime.Object { return &resourcev1.ResourceClaim{} },
	"ResourceSlice":         func() runtime.Object { return &resourcev1.ResourceSlice{} },
	"Service":               func() runtime.Object { return &v1.Service{} },
	"StatefulSet":           func() runtime.Object { return &appsv1.StatefulSet{} },
	"StorageClass":          func() runtime.Object { return &storagev1.StorageClass{} },
	"VolumeAttachment":      func() runtime.Object { return &storagev1.VolumeAttachment{} },
}

func readObjects(inline json.RawMessage, path string) (*objects, error) {
	if path != "" {
		body, err := readFile(path)
		if err != nil {
			return nil, err
		}
		inline = body
	}
	found := &objects{seen: map[string]bool{}}
	if len(inline) == 0 {
		return found, nil
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(inline, &list); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	for i, item := range list.Items {
		if err := found.add(item); err != nil {
			return nil, fmt.Errorf("snapshot: items[%d]: %w", i, err)
		}
	}
	return found, nil
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if !strings.HasSuffix(path, ".gz") {
		return io.ReadAll(file)
	}
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unpacked)
}

func (o *objects) add(item json.RawMessage) error {
	var meta metav1.TypeMeta
	if err := decode(item, &meta); err != nil {
		return err
	}
	switch meta.Kind {
	case "Node":
		node := &v1.Node{}
		if err := decode(item, node); err != nil {
			return err
		}
		if o.isNew("Node", node.Name) {
			o.nodes = append(o.nodes, node)
		}
		return canonical(node.Status.Allocatable)
	case "Pod":
		pod := &v1.Pod{}
		if err := decode(item, pod); err != nil {
			return err
		}
		if pod.UID == "" {
			pod.UID = types.UID("uid-of-" + podName(pod))
		}
		if o.isNew("Pod", podName(pod)) {
			o.pods = append(o.pods, pod)
		}
		return canonicalPod(pod)
	}
	make, known := kinds[meta.Kind]
	if !known {
		return nil
	}
	object := make()
	o.others = append(o.others, object)
	return decode(item, object)
}

// isNew returns whether this is the first object of its kind and name. Duplicates in a dump are ignored.
func (o *objects) isNew(kind, name string) bool {
	key := kind + " " + name
	before := o.seen[key]
	o.seen[key] = true
	return !before
}

// decode decodes JSON like the API server: field names are case-sensitive, and unknown fields are dropped.
func decode(body []byte, into any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(body, into)
}

func podName(pod *v1.Pod) string {
	return pod.Namespace + "/" + pod.Name
}
