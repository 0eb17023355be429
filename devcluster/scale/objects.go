package main

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
)

// kinds are the resources that are served, by the path before the namespace and the plural.
var kinds = map[string]schema.GroupVersionKind{
	"/api/v1/namespaces":             corev1.SchemeGroupVersion.WithKind("Namespace"),
	"/api/v1/nodes":                  corev1.SchemeGroupVersion.WithKind("Node"),
	"/api/v1/pods":                   corev1.SchemeGroupVersion.WithKind("Pod"),
	"/api/v1/configmaps":             corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	"/api/v1/events":                 corev1.SchemeGroupVersion.WithKind("Event"),
	"/api/v1/persistentvolumes":      corev1.SchemeGroupVersion.WithKind("PersistentVolume"),
	"/api/v1/persistentvolumeclaims": corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	"/api/v1/resourcequotas":         corev1.SchemeGroupVersion.WithKind("ResourceQuota"),
	"/api/v1/limitranges":            corev1.SchemeGroupVersion.WithKind("LimitRange"),

	"/apis/apps/v1/replicasets":                    {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	"/apis/policy/v1/poddisruptionbudgets":         {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	"/apis/coordination.k8s.io/v1/leases":          {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	"/apis/storage.k8s.io/v1/storageclasses":       {Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"},
	"/apis/storage.k8s.io/v1/csinodes":             {Group: "storage.k8s.io", Version: "v1", Kind: "CSINode"},
	"/apis/storage.k8s.io/v1/csidrivers":           {Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver"},
	"/apis/storage.k8s.io/v1/csistoragecapacities": {Group: "storage.k8s.io", Version: "v1", Kind: "CSIStorageCapacity"},
	"/apis/storage.k8s.io/v1/volumeattachments":    {Group: "storage.k8s.io", Version: "v1", Kind: "VolumeAttachment"},
	"/apis/resource.k8s.io/v1/resourceclaims":      {Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaim"},
	"/apis/resource.k8s.io/v1/deviceclasses":       {Group: "resource.k8s.io", Version: "v1", Kind: "DeviceClass"},
}

// object is an object in both encodings, and the fields by which it is selected. It never changes.
type object struct {
	namespace, name, uid string
	node, phase          string
	version              uint64
	json                 []byte
	proto                []byte // without the envelope, as in lists
}

func (o *object) key() string { return keyOf(o.namespace, o.name) }

func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// decode returns the typed object of JSON text.
func decode(kind schema.GroupVersionKind, text []byte) (runtime.Object, error) {
	typed, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, typed); err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Kind, err)
	}
	return typed, nil
}

// encode sets the resourceVersion of a typed object and returns it in both encodings.
func encode(kind schema.GroupVersionKind, typed runtime.Object, version uint64) (*object, error) {
	access, err := meta.Accessor(typed)
	if err != nil {
		return nil, err
	}
	access.SetResourceVersion(fmt.Sprint(version))
	typed.GetObjectKind().SetGroupVersionKind(kind)
	text, err := json.Marshal(typed)
	if err != nil {
		return nil, err
	}
	binary, err := typed.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		return nil, err
	}
	encoded := &object{
		namespace: access.GetNamespace(), name: access.GetName(), uid: string(access.GetUID()),
		version: version, json: text, proto: binary,
	}
	if pod, ok := typed.(*corev1.Pod); ok {
		encoded.node, encoded.phase = pod.Spec.NodeName, string(pod.Status.Phase)
	}
	return encoded, nil
}

// enveloped puts a protobuf object into the envelope of bodies and watch events.
func enveloped(kind schema.GroupVersionKind, binary []byte) []byte {
	apiVersion, name := kind.ToAPIVersionAndKind()
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: name}, Raw: binary}
	body, err := unknown.Marshal()
	if err != nil {
		panic(err) // the lengths of the fields are below the limits of protobuf
	}
	return append([]byte("k8s\x00"), body...)
}
